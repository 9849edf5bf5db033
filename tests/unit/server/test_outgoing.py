"""What a release says: a fan-out shares frames and bytes, and nobody's messages change places."""

import sys

import pytest

from hms.engine.effects import Confirm, Deliver
from hms.engine.messages import StoredMessage
from hms.server.doors.native_door import PACKS_MAX, NativeDoor
from hms.server.outgoing_frames import OutgoingFrames
from hms.wire.frames import Kind, decode_delivery, decode_envelope
from hms.wire.packed_messages import unpack_delivered
from tests.support.counted import Counted

PEER = "peer"


def run(first: int, count: int = 10) -> list[StoredMessage]:
    return [
        StoredMessage.of(one, one, 1, 0, 4, 0, 0, b"body %d" % one, is_persistent=False)
        for one in range(first, first + count)
    ]


def delivery(consumer: int, messages: list[StoredMessage], **other) -> Deliver:
    return Deliver(1, consumer, 0, messages, other.pop("counts", None), kind="topic", **other)


def said(outgoing: OutgoingFrames) -> list[tuple[object, list[int], list[int]]]:
    """Peer, consumers and message ids of each frame; no consumers for what is no delivery."""
    found = []
    for peer, parts in outgoing.frames():
        if decode_envelope(parts, 1 << 30).kind is not Kind.DELIVER:
            found.append((peer, [], []))
            continue
        receivers, count, rows_at = decode_delivery(parts[1])
        ids = [row.message_id for row, _, _ in unpack_delivered(parts[1], count, rows_at)]
        found.append((peer, [consumer for consumer, _ in receivers], ids))
    return found


def test_consumers_who_get_the_same_runs_in_turn_share_their_frames():
    """Credit of several consumers comes in one word, and each is given two runs for it."""
    one, two = run(1), run(11)
    outgoing = OutgoingFrames(NativeDoor(), {})
    for consumer in (5, 6):
        for messages in (one, two):
            outgoing.tell(PEER, delivery(consumer, list(messages)))

    assert [(who, ids[0]) for _, who, ids in said(outgoing)] == [([5, 6], 1), ([5, 6], 11)]


def test_a_delivery_never_goes_ahead_of_what_its_consumer_got_before():
    """Consumer 6 has the second run first: it gets the first one behind it."""
    one, two = run(1), run(11)
    outgoing = OutgoingFrames(NativeDoor(), {})
    outgoing.tell(PEER, delivery(5, one))
    outgoing.tell(PEER, delivery(5, two))
    outgoing.tell(PEER, delivery(6, two))
    outgoing.tell(PEER, delivery(6, one))

    mine = [ids[0] for _, who, ids in said(outgoing) if 6 in who]
    assert mine == [11, 1]


def test_a_delivery_never_goes_ahead_of_another_word_to_its_peer():
    """Such as the answer to the consumer's own opening."""
    one = run(1)
    outgoing = OutgoingFrames(NativeDoor(), {})
    outgoing.tell(PEER, delivery(5, one))
    outgoing.tell(PEER, Confirm(1, 7, 1, 1, 1))
    outgoing.tell(PEER, delivery(6, one))

    assert [who for _, who, _ in said(outgoing)] == [[5], [], [6]]


@pytest.mark.parametrize("which", ["counts", "parts"])
def test_what_is_said_about_one_consumers_attempts_is_not_shared(which):
    """A redelivery or a part of a list is its own."""
    one = run(1, 2)
    outgoing = OutgoingFrames(NativeDoor(), {})
    outgoing.tell(PEER, delivery(5, one, **{which: [1, 1]}))
    outgoing.tell(PEER, delivery(6, one))

    assert [who for _, who, _ in said(outgoing)] == [[5], [6]]


def test_a_pack_is_remembered_for_the_next_release_and_only_for_the_very_same_messages():
    """Subscribers come for the same messages one after the other; ids alone prove nothing, as a
    publication in memory and its like after a boot may share one."""
    door, one, other = NativeDoor(), run(1), run(1)
    for message in other:
        message.payload = message.payload.upper()
    frames = []
    for messages in (one, one, one, other):
        outgoing = OutgoingFrames(door, {})
        outgoing.tell(PEER, delivery(5, messages))
        frames.append(outgoing.frames()[0][1][1])

    assert frames[0] == frames[1] == frames[2]
    assert b"BODY 1" in frames[3]
    assert b"body 1" not in frames[3]


def test_only_the_last_packs_are_remembered_and_forgotten_when_told():
    """What is kept for others must not grow."""
    door, runs = NativeDoor(), [run(first) for first in range(1, 1000, 10)]

    def holders():
        return [sys.getrefcount(runs[n]) for n in range(len(runs))]

    before = holders()

    def held():
        """The runs that somebody else has still."""
        return [n for n, count in enumerate(holders()) if count > before[n]]

    for messages in runs:
        outgoing = OutgoingFrames(door, {})
        outgoing.tell(PEER, delivery(5, messages))
        outgoing.frames()
    del outgoing, messages
    assert held() == list(range(len(runs)))[-PACKS_MAX:]

    door.forget()

    assert held() == []


def _calls_of(consumers):
    """Of telling so many consumers of one connection of the same messages."""
    outgoing, messages, counted = OutgoingFrames(NativeDoor(), {}), run(1), Counted()
    deliveries = [delivery(consumer, messages) for consumer in range(1, consumers + 1)]
    with counted:
        for each in deliveries:
            outgoing.tell(PEER, each)
    return counted.most


def test_telling_many_consumers_costs_as_much_as_they_are_and_not_their_square():
    """2,048 of one connection were two million questions, a second for each tick."""
    assert _calls_of(1000) <= 12 * _calls_of(100)
