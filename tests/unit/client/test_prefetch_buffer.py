"""Prefetch buffer and session state, sans-IO: acknowledgements, credit, epochs, transactions."""

import pytest
from client_link import LOST, sent, up
from client_session import (
    consume,
    credits_given,
    deliver,
    make_prefetch_buffer,
    make_state,
    settlements,
)

import hms
from hms.client.settlement import ACKNOWLEDGEMENTS_MAX, LAZY_TICK_S
from hms.wire import frames
from hms.wire.frames import Action, Kind
from hms.wire.structures import Recover, decode_request


def test_acknowledgements_are_sent_together_as_ranges(link):
    """One item instead of 256."""
    state = make_state(link)
    prefetched = make_prefetch_buffer(link, state, credit=1_000)
    deliver(link, *range(1, ACKNOWLEDGEMENTS_MAX + 1))

    for _ in range(ACKNOWLEDGEMENTS_MAX):
        consume(state, prefetched)

    assert settlements(link) == [(Action.ACKNOWLEDGE, [(1, ACKNOWLEDGEMENTS_MAX)])]


def test_a_tick_sends_what_is_held_back(link):
    """A single message must not stay unacknowledged because none follows."""
    state = make_state(link)
    prefetched = make_prefetch_buffer(link, state)
    deliver(link, 1)
    consume(state, prefetched)
    assert link.ticking == [state]
    assert settlements(link) == []

    state.tick()

    assert settlements(link) == [(Action.ACKNOWLEDGE, [(1, 1)])]


def test_credit_is_given_when_half_of_it_is_used(link):
    """And only for the consumer from which more is wanted."""
    state = make_state(link)
    prefetched = make_prefetch_buffer(link, state, credit=4)
    deliver(link, 1, 2)
    consume(state, prefetched)
    state.settle(prefetched)
    consume(state, prefetched)
    state.settle(prefetched)

    assert settlements(link) == [
        (Action.ACKNOWLEDGE, [(1, 1)]),
        (Action.ACKNOWLEDGE, [(2, 2)]),
        (Action.CREDIT, 2),
    ]


def test_credit_that_is_due_soon_goes_along_with_that_of_another_consumer(link):
    """So the node can say the same messages to both in one frame."""
    state = make_state(link)
    first, second, third = (
        make_prefetch_buffer(link, state, credit=16, number=n) for n in (5, 6, 7)
    )
    for number, taken in (5, 8), (6, 6), (7, 5):
        deliver(link, *range(1, 17), consumer=number)
        for _ in range(taken):
            consume(state, {5: first, 6: second, 7: third}[number])

    state.want_more(first)

    items = [(consumer, credit) for consumer, credit in credits_given(link) if credit]
    assert items == [(5, 8), (6, 6)]


def test_little_credit_is_given_only_to_who_comes_for_more(link):
    """What stays at the node can go to others meanwhile."""
    state = make_state(link)
    first, second = (make_prefetch_buffer(link, state, credit=4, number=n) for n in (5, 6))
    for number, prefetched in (5, first), (6, second):
        deliver(link, 1, 2, 3, 4, consumer=number)
        consume(state, prefetched)
        consume(state, prefetched)

    state.want_more(first)

    assert [(consumer, credit) for consumer, credit in credits_given(link) if credit] == [(5, 2)]


def test_an_expired_message_is_released_and_its_credit_given_back(link):
    """F-D2, and the consumer must not starve on expired messages."""
    state = make_state(link)
    prefetched = make_prefetch_buffer(link, state, credit=100)
    deliver(link, 1, expires_at_ms=1_000)

    assert prefetched.take() is None
    state.settle(prefetched)
    state.settle(prefetched)

    assert settlements(link) == [(Action.RELEASE, [(1, 1)]), (Action.CREDIT, 1)]


def test_what_expired_is_released_once_and_soon_also_without_credit(link):
    """Nothing else may ever have to be said; and twice would be said for others' messages."""
    state = make_state(link)
    prefetched = make_prefetch_buffer(link, state, credit=100)
    deliver(link, 1, expires_at_ms=1_000)
    assert prefetched.take() is None

    state.say_soon(prefetched)
    assert link.ticking == [state]
    state.tick()
    state.tick()

    assert settlements(link) == [(Action.RELEASE, [(1, 1)])]


def test_a_delivery_of_an_older_epoch_is_dropped(link):
    """It crossed the Recover on the wire; the node has it back already."""
    state = make_state(link, hms.AckMode.CLIENT)
    prefetched = make_prefetch_buffer(link, state)
    deliver(link, 1, 2)
    consume(state, prefetched)

    state.recover()
    deliver(link, 3, epoch=0)
    deliver(link, 1, epoch=1)

    assert settlements(link) == [(Action.FAIL, [(1, 1)])]
    assert [delivered[0].message_id for delivered in prefetched.buffer] == [1]
    assert prefetched.stamp.epoch == 1


def test_everything_said_in_a_transaction_is_said_before_its_commit(link):
    """F-B5: otherwise the receipts would belong to the next one."""
    state = make_state(link, transacted=True)
    prefetched = make_prefetch_buffer(link, state)
    deliver(link, 1, 2)
    consume(state, prefetched)

    state.commit()

    kinds = [frames.decode_envelope(parts, 1 << 30).kind for parts in link.outbox]
    assert kinds == [Kind.SETTLE, Kind.REQUEST]
    assert state.commit() is None  # nothing happened since


def test_only_work_that_was_lost_dooms_a_transaction(link):
    """F-K7: an empty transaction loses nothing."""
    state = make_state(link, transacted=True)
    link.participants.append(state)
    link.lose(LOST, is_final=False)
    assert not state.is_doomed
    up(link)

    state.has_work = True
    link.lose(LOST, is_final=False)

    assert state.is_doomed


def test_lazy_acknowledgements_are_sent_by_ten_and_credit_without_them(link):
    """F-B3: neither a receive that blocks nor the credit that is due sends them before."""
    state = make_state(link, hms.AckMode.DUPS_OK)
    prefetched = make_prefetch_buffer(link, state, credit=8)
    deliver(link, *range(1, 12))

    for _ in range(11):
        consume(state, prefetched)
        state.want_more(prefetched)

    assert [what for what in settlements(link) if what[0] is Action.ACKNOWLEDGE] == [
        (Action.ACKNOWLEDGE, [(1, 10)])
    ]
    assert (Action.CREDIT, 4) in settlements(link)
    assert link.ticking == [state]
    assert state.tick_s == LAZY_TICK_S


def test_nothing_is_said_of_messages_that_the_node_has_acknowledged(link):
    """F-B4: credit only, and recover() must not give the prefetched messages up."""
    state = make_state(link, hms.AckMode.NONE)
    prefetched = make_prefetch_buffer(link, state, credit=2)
    deliver(link, 1, 2)

    consume(state, prefetched)
    state.want_more(prefetched)

    assert state.recover() is None
    assert consume(state, prefetched) == 2
    assert settlements(link) == [(Action.CREDIT, 1)]
    assert link.ticking == []


@pytest.mark.parametrize("ordered", [True, False])
def test_a_failed_message_takes_back_what_is_behind_it_only_when_order_is_kept(link, ordered):
    """F-E9: FAIL counts the attempt, the Recover after it brings all back in their places."""
    state = make_state(link)
    prefetched = make_prefetch_buffer(link, state, ordered=ordered)
    deliver(link, 1, 2, 3)
    prefetched.take()

    state.fail(prefetched, 1)

    assert settlements(link) == [(Action.FAIL, [(1, 1)])]
    requests = [decode_request(one) for one in sent(link, Kind.REQUEST)]
    assert requests == ([Recover(state.number)] if ordered else [])
    assert len(prefetched.buffer) == (0 if ordered else 2)
    assert prefetched.stamp.epoch == int(ordered)
