"""Who of the cluster is there: the state machine alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hms.engine.cluster.members import (
    DEAF_MS,
    NOT_HEARD,
    Hello,
    Incarnation,
    Members,
    PeerState,
    Presence,
)
from hms.errors.catalogue import MemberRefused

OWN = Incarnation(50, 3)
SILENCE_MS = 1000
US = PeerState(OWN, 1)
OTHER = PeerState(Incarnation(9, 1), 1)
PIPE = b"pipe"


@pytest.fixture
def members():
    """Of node 1, which knows 2 and 3."""
    return make()


def make():
    return Members(Hello("hms", "n1", 1, OWN, 1), [(2, "n2"), (3, "n3")], SILENCE_MS)


def hello(life=Incarnation(9, 1), **changed):  # noqa: B008 - a constant
    said = Hello("hms", "n2", 2, life, 1)
    return said._replace(**changed)


def test_a_node_is_up_only_when_it_hears_this_one_too(members):
    """A link in one direction carries no answers."""
    assert members.hello(hello(), PIPE, 0) == []
    assert members.heard(2, OTHER, NOT_HEARD, 1) == []
    assert members.heard(2, OTHER, PeerState(Incarnation(50, 2), 1), 1) == []

    (up,) = members.heard(2, OTHER, US, 2)

    assert up.is_up
    assert members.is_welcome(2, Incarnation(9, 1))


def test_silence_fails_a_node_at_once_and_a_hello_brings_it_back(members):
    """F-J2."""
    members.hello(hello(), PIPE, 0)
    members.heard(2, OTHER, US, 0)
    assert members.tick(SILENCE_MS) == []

    (down,) = members.tick(SILENCE_MS + 1)

    assert not down.is_up
    assert not members.is_welcome(2, Incarnation(9, 1))
    members.hello(hello(), PIPE, 2000)
    assert members.heard(2, OTHER, PeerState(OWN, 2), 2000)[0].is_up


def test_an_old_life_is_refused_and_a_new_one_replaces_it(members):
    """A frame that was long under way must not speak for the node of today."""
    members.hello(hello(), PIPE, 0)
    members.heard(2, OTHER, US, 0)

    (down,) = members.hello(hello(Incarnation(9, 2)), PIPE, 1)

    assert not down.is_up
    with pytest.raises(MemberRefused, match="older"):
        members.hello(hello(Incarnation(9, 1)), PIPE, 2)
    with pytest.raises(MemberRefused, match="speaks as"):
        members.known(2, OTHER, PIPE)


def test_a_disk_that_is_replaced_while_the_clock_is_behind_makes_a_new_life(members):
    """Its store's number is lower than the last one's; it must not be refused for ever."""
    members.hello(hello(Incarnation(9, 5)), PIPE, 0)
    members.heard(2, OTHER._replace(life=Incarnation(9, 5)), US, 0)
    with pytest.raises(MemberRefused, match="older"):
        members.hello(hello(Incarnation(7, 1)), b"new", 1)  # two that say they are node 2

    members.tick(SILENCE_MS + 1)
    members.hello(hello(Incarnation(7, 1)), b"new", SILENCE_MS + 2)
    hears = PeerState(OWN, members.members[2].own_epoch)
    (up,) = members.heard(2, PeerState(Incarnation(7, 1), 1), hears, SILENCE_MS + 3)

    assert (up.is_up, up.life) == (True, Incarnation(7, 1))
    for old in (Incarnation(9, 5), Incarnation(9, 6)):
        with pytest.raises(MemberRefused, match="older"):
            members.hello(hello(old), PIPE, SILENCE_MS + 4)
    members.tick(3 * SILENCE_MS)
    with pytest.raises(MemberRefused, match="older"):
        members.hello(hello(Incarnation(9, 6)), PIPE, 3 * SILENCE_MS)


def test_a_node_that_does_not_hear_this_one_any_more_is_down(members):
    """Its half of the link is cut."""
    members.hello(hello(), PIPE, 0)
    members.heard(2, OTHER, US, 0)

    (down,) = members.heard(2, OTHER, NOT_HEARD, 1)

    assert (down.is_up, members.members[2].presence) == (False, Presence.HEARD)


def test_who_goes_down_with_the_other_begins_anew_too(members):
    """Its own connection may be dead, which only the other one can notice."""
    members.hello(hello(), PIPE, 0)
    members.heard(2, OTHER, US, 0)

    (down,) = members.hello(hello(epoch=2), b"another", 1)

    assert (down.is_up, members.members[2].own_epoch) == (False, 2)
    members.hello(hello(epoch=3), b"third", 2)
    assert members.members[2].own_epoch == 2, "else both go on for ever"


def test_who_is_not_up_for_long_is_told_to_be_deaf_once_in_a_while(members):
    """The connection to it may be dead from the beginning; a new one takes its time."""
    assert members.deaf(1) == []
    members.hello(hello(), PIPE, 1)
    assert members.deaf(DEAF_MS + 1) == []
    assert members.deaf(DEAF_MS + 2) == [2, 3]
    assert members.deaf(DEAF_MS + 3) == []

    members.heard(2, OTHER, US, DEAF_MS + 4)
    assert members.deaf(2 * DEAF_MS + 2) == []

    assert members.deaf(2 * DEAF_MS + 3) == [3]


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"cluster": "x"},
        {"name": "n1"},
        {"node": 1},
        {"node": 7},
        {"name": "n3"},
        {"key_name": "n3"},
    ],
)
def test_a_hello_that_is_wrong_changes_nothing(members, changed):
    """Refused, counted, named."""
    with pytest.raises(MemberRefused):
        members.hello(hello(**changed), PIPE, 0)

    assert members.members[2].presence is Presence.ABSENT


def test_a_pause_of_this_node_is_no_silence_of_the_others(members):
    """After SIGCONT everybody seems to have been silent."""
    members.hello(hello(), PIPE, 0)
    members.heard(2, OTHER, US, 0)
    members.paused(10_000)

    assert members.tick(10_500) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hello", "heard", "deaf", "tick", "gone"]),
            st.integers(1, 3),
            st.integers(0, 2000),
        ),
        max_size=30,
    )
)
def test_ups_and_downs_alternate_whatever_happens(steps):
    """Whoever listens keeps one bit for each node; two ups would double its books."""
    members, now_ms, told = make(), 0, []
    for what, incarnation, later_ms in steps:
        now_ms += later_ms
        life = Incarnation(9, incarnation)
        try:
            if what == "hello":
                told += members.hello(hello(life), PIPE, now_ms)
            elif what == "tick":
                told += members.tick(now_ms)
            elif what == "gone":
                told += members.gone(2, "bye")
            else:
                state = PeerState(life, 1)
                epoch = members.known(2, state, PIPE).own_epoch
                hears = PeerState(OWN, epoch) if what == "heard" else NOT_HEARD
                told += members.heard(2, state, hears, now_ms)
        except MemberRefused:
            continue

    assert [change.is_up for change in told] == [i % 2 == 0 for i in range(len(told))]
    assert members.is_welcome(2, members.members[2].life) == (len(told) % 2 == 1)
