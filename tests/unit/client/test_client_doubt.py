"""Acknowledgements that nobody waits for: what is told when the connection is lost (F-K9)."""

import pytest
from client_link import LOST, answer, up
from client_session import consume, deliver, kind_of, make_prefetch_buffer, make_state

from hms.client.core.link import Link
from hms.wire import frames
from hms.wire.frames import Kind


def test_unsent_acknowledgements_are_reported_when_the_connection_is_lost(link):
    """F-K9: message by message, to the exception listener."""
    told = []
    link.on_error = told.append
    state = make_state(link)
    link.participants.append(state)
    prefetched = make_prefetch_buffer(link, state)
    deliver(link, 1, 2)
    consume(state, prefetched)

    link.lose(LOST, is_final=False)
    for call in link.calls:
        call()

    assert [error.message_id for error in told] == ["000000000001"]
    assert not prefetched.buffer


@pytest.fixture
def told_lost(link: Link):
    """What the exception listener was told of acknowledgements since the last time."""
    told = []
    link.on_error = told.append

    def since():
        for call in link.calls:
            call()
        link.calls.clear()
        news = [(error.message_id[-2:], error.fields["when"]) for error in told]
        told.clear()
        return news

    return since


def test_acknowledgements_without_an_answer_are_reported_when_the_connection_is_lost(
    link, told_lost
):
    """F-K9: they may have taken effect or not, and the application has gone on long ago."""
    state = make_state(link)
    link.participants.append(state)
    prefetched = make_prefetch_buffer(link, state)
    deliver(link, 1, 2, 3, 4)
    consume(state, prefetched)
    state.tick()
    consume(state, prefetched)
    state.tick()
    consume(state, prefetched)

    link.lose(LOST, is_final=False)

    assert told_lost() == [("01", "during"), ("02", "during"), ("03", "before")]
    up(link)
    link.lose(LOST, is_final=False)
    assert told_lost() == []


def test_acknowledgements_that_the_node_answered_are_not_in_doubt(link, told_lost):
    """One question at a time, and one more for what was said meanwhile."""
    state = make_state(link)
    link.participants.append(state)
    prefetched = make_prefetch_buffer(link, state)
    deliver(link, 1, 2)
    consume(state, prefetched)
    state.tick()
    consume(state, prefetched)
    state.tick()
    first, second = [parts for parts in link.outbox if kind_of(parts) is Kind.SETTLE]
    assert frames.decode_envelope(second, 1 << 30).correlation == 0

    link.ticking.clear()
    answer(link, first, Kind.REPLY)
    assert link.ticking == [state]
    state.tick()
    answer(link, link.outbox[-1], Kind.REPLY)

    assert link.asked == {}
    link.lose(LOST, is_final=False)
    assert told_lost() == []


def test_what_was_acknowledged_before_a_close_that_was_lost_is_reported(link, told_lost):
    """The session is gone from the link, its doubts are not."""
    state = make_state(link)
    link.participants.append(state)
    prefetched = make_prefetch_buffer(link, state)
    deliver(link, 1)
    consume(state, prefetched)
    state.close()

    link.lose(LOST, is_final=False)

    assert told_lost() == [("01", "during")]
