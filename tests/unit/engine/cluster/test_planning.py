"""Whom to ask, to whom to push: the plan alone, over figures."""

from hypothesis import given
from hypothesis import strategies as st

from hms.engine.cluster.cluster_settings import GlobalQueue, Scope
from hms.engine.cluster.planning import Figures, drains, pushes, requests, surplus_of

QUEUE = GlobalQueue("orders", threshold=10, request_max=25, full=100)
FIGURES = st.builds(
    Figures,
    length=st.integers(0, 1000),
    consumers=st.integers(0, 5),
    rate=st.integers(0, 100),
    is_taking=st.booleans(),
)
PEERS = st.dictionaries(st.integers(2, 9), FIGURES, max_size=8)


def test_a_queue_asks_the_richest_first_and_never_above_gqmaxreq():
    """F-J5, F-J6."""
    peers = {2: Figures(30), 3: Figures(300), 4: Figures(0)}

    assert requests(QUEUE, Figures(0, 4), peers) == [(3, 25), (2, 15)]


def test_nobody_asks_for_what_others_need_themselves():
    """A node's own buffer is not a surplus."""
    assert requests(QUEUE, Figures(0, 1), {2: Figures(10, 1)}) == []
    assert requests(QUEUE, Figures(0, 1), {2: Figures(13, 1)}) == [(2, 3)]


def test_who_has_no_consumers_is_asked_in_advance_the_busiest_first():
    """What arrives there next has no other way to go."""
    peers = {2: Figures(0, rate=1), 3: Figures(0, rate=9), 4: Figures(0, 1, rate=99)}

    assert requests(QUEUE, Figures(0, 1), peers) == [(3, 5), (2, 5)]


def test_a_little_missing_is_not_worth_a_word():
    """Hysteresis: a quarter of the buffer has to be missing."""
    assert requests(QUEUE, Figures(8, 1), {2: Figures(500)}) == []
    assert requests(QUEUE, Figures(7, 1), {2: Figures(500)}) == [(2, 3)]


@given(own=FIGURES, peers=PEERS, coming=st.integers(0, 100))
def test_a_plan_never_asks_for_more_than_is_missing_and_there(own, peers, coming):
    """More would travel for nothing, or come back."""
    asked = requests(QUEUE, own, peers, coming)

    missing = max(0, own.consumers * QUEUE.threshold - own.length - coming)
    assert all(0 < request.most <= QUEUE.request_max for request in asked)
    assert len({request.peer for request in asked}) == len(asked)
    of_rich = [r for r in asked if surplus_of(QUEUE, peers[r.peer])]
    assert sum(request.most for request in of_rich) <= missing
    assert all(request.most <= surplus_of(QUEUE, peers[request.peer]) for request in of_rich)


@given(own=FIGURES, peers=PEERS, movable=st.integers(0, 1000))
def test_a_push_only_makes_lengths_more_even(own, peers, movable):
    """F-J7: what is pushed ends nowhere above where it came from."""
    pushed = pushes(QUEUE, own, peers, movable)

    left = own.length - sum(request.most for request in pushed)
    assert sum(request.most for request in pushed) <= movable
    for peer, most in pushed:
        assert peers[peer].is_taking
        assert peers[peer].length + most <= left + 1


@given(lengths=st.lists(st.integers(0, 2000), min_size=2, max_size=9))
def test_full_queues_together_do_not_flood_a_short_one(lengths):
    """All push at the same moment, each by the figures of all."""
    queue = GlobalQueue("orders", request_max=10_000, full=100)
    after = list(lengths)
    for source, length in enumerate(lengths):
        peers = {i: Figures(n) for i, n in enumerate(lengths) if i != source}
        for peer, most in pushes(queue, Figures(length), peers, length):
            after[source] -= most
            after[peer] += most

    assert sum(after) == sum(lengths)
    assert max(after) <= max(lengths)
    assert min(after) >= min(lengths)


@given(own=FIGURES, peers=PEERS)
def test_a_drain_gives_to_those_that_take_and_no_more_than_there_is(own, peers):
    """Whoever is drained too is no place to go."""
    found = drains(own, peers, QUEUE.request_max)

    assert sum(request.most for request in found) <= own.length
    assert all(peers[request.peer].is_taking for request in found)


def test_what_is_local_is_no_surplus():
    """By the operator's word."""
    local = GlobalQueue("orders", scope=Scope.LOCAL_ONLY)
    preferred = GlobalQueue("orders", threshold=1, scope=Scope.LOCAL_PREFERRED)

    assert surplus_of(local, Figures(100)) == 0
    assert surplus_of(preferred, Figures(100, 1)) == 0
    assert surplus_of(preferred, Figures(100)) == 100
