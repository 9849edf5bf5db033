"""ack(wait=False): acknowledgements that share a sync, and what is told when they are in doubt."""

import pytest
from client_link import sent
from client_session import consume, deliver, make_prefetch_buffer, make_state, settlements

import hms
from hms.client.core.link import Link
from hms.errors.catalogue import AcknowledgeLost
from hms.wire.frames import Action, Kind


def seen_by(link: Link, count: int):
    """A CLIENT session whose application has seen so many messages."""
    state = make_state(link, hms.AckMode.CLIENT)
    prefetched = make_prefetch_buffer(link, state, credit=100)
    deliver(link, *range(1, count + 1))
    for _ in range(count):
        consume(state, prefetched)
    return state, prefetched


def test_they_are_sent_at_once_and_asked_about_at_a_tick(link):
    """So nobody waits, and what is in doubt stays known."""
    state, prefetched = seen_by(link, 3)
    assert state.acknowledge([(prefetched, [1, 2, 3])], is_awaited=False) is None
    assert settlements(link) == [(Action.ACKNOWLEDGE, [(1, 3)])]
    assert state in link.ticking
    before = len(link.asked)

    state.tick()

    assert len(link.asked) == before + 1


def test_a_later_one_that_waits_answers_for_them_with_nothing_new_to_say(link):
    """The node answers in order, and when all before is in the log."""
    state, prefetched = seen_by(link, 2)
    state.acknowledge([(prefetched, [1, 2])], is_awaited=False)

    pending = state.acknowledge([])

    assert pending is not None
    assert not pending.is_done
    pending.failed(pending.error_if_lost)
    with pytest.raises(AcknowledgeLost, match="000000000002"):
        pending.checked()


def test_nothing_is_asked_when_nothing_is_in_doubt(link):
    """An ack() too many costs no round trip."""
    state, _ = seen_by(link, 0)
    assert state.acknowledge([]) is None
    assert not sent(link, Kind.SETTLE)


def test_what_is_in_doubt_is_told_message_by_message(link):
    """F-K9: the application has to know which messages may come again."""
    state, prefetched = seen_by(link, 3)
    state.acknowledge([(prefetched, [1, 3])], is_awaited=False)

    assert state.in_doubt() == [1, 3]
    assert state.in_doubt() == []
