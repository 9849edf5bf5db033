"""Faults that the simulator found in what is answered and what comes again, each in a few steps."""

import pytest

import hms
from hms.wire import structures
from hms.wire.frames import (
    Action,
    Envelope,
    Kind,
    SendHead,
    Settlement,
    encode_send,
    encode_settle,
)
from hms.wire.packed_messages import ROW, pack_messages
from hms.wire.structures import (
    CloseConsumer,
    CloseSession,
    OpenConsumer,
    OpenProducer,
    OpenSession,
)
from tests.support.engine_rig import EngineRig
from tests.support.hello import hello_of
from tests.support.memory import SETTINGS, MemoryNode


def _pack():
    return pack_messages([(ROW.pack(0, 1, 0, 0, 4, 0, 0, 0), b"", b"x")])


def _sending(node, first_sequence):
    payload = encode_send(SendHead(2, 1, first_sequence, is_persistent=True), _pack())
    return [envelope.kind for envelope, _ in node.send("a", Kind.SEND, payload)]


def test_a_full_disk_does_not_refuse_what_was_taken_before():
    """Its sender was told that the message is not stored, sent another, and both came."""
    node = MemoryNode(SETTINGS)
    node.send("a", Kind.HELLO, structures.encode(hello_of(7)))
    for request in (OpenSession(1), OpenProducer(2, 1, "queue", "orders")):
        node.send("a", Kind.REQUEST, structures.encode(request))
    assert _sending(node, 1) == [Kind.CONFIRM]

    node.store.refusal = "No space left on device"

    assert _sending(node, 1) == [Kind.CONFIRM]
    assert _sending(node, 2) == [Kind.ERROR]


def test_what_became_short_after_a_batch_was_let_go_refuses_the_next_one():
    """A disk that fills up between the two looks refused what would only have had to wait."""
    node = MemoryNode(SETTINGS)
    node.send("a", Kind.HELLO, structures.encode(hello_of(7)))
    for request in (OpenSession(1), OpenProducer(2, 1, "queue", "orders")):
        node.send("a", Kind.REQUEST, structures.encode(request))
    payload = encode_send(SendHead(2, 1, 1, is_persistent=True), _pack())
    assert not node.broker.must_wait("a", [(Envelope(Kind.SEND, 1, 1, len(payload)), payload)])

    node.store.refusal = "No space left on device"

    assert _sending(node, 1) == [Kind.CONFIRM]
    assert _sending(node, 2) == [Kind.ERROR]


def _send(rig, first_sequence, *, is_persistent=True):
    pack = memoryview(_pack())
    fx = rig.run(
        lambda fx: rig.engine.send(1, 5, 1, first_sequence, 1, is_persistent, pack, 1000, fx)
    )
    return fx.out[0].first_message_id


def test_a_batch_sent_again_late_does_not_push_a_later_one_out_of_memory():
    """What a crash lost was taken again behind what it had not lost, confirmed first, and kept in
    the memory of repeats in the place of a batch that was not confirmed yet: that one came twice.
    """
    rig = EngineRig(frames_in_flight_max=3)
    _send(rig, 1, is_persistent=False)
    second = _send(rig, 2)
    _send(rig, 3)
    rig.start()
    _send(rig, 1, is_persistent=False)  # its confirmation arrives, that of 2 and 3 does not
    _send(rig, 4)

    assert _send(rig, 2) == second
    assert rig.engine.state.queues["orders"].line.waiting_count == 4


def test_a_batch_too_old_to_be_remembered_is_said_to_be_in_doubt():
    """With a smaller window after a boot: stored again without a word it would be there twice."""
    rig = EngineRig(frames_in_flight_max=3)
    for first_sequence in (1, 2, 3):
        _send(rig, first_sequence)
    rig.limits = {"frames_in_flight_max": 2}
    rig.start()

    with pytest.raises(hms.SendInDoubt):
        _send(rig, 1)

    assert rig.engine.state.queues["orders"].line.waiting_count == 3
    assert rig.engine.is_repeated(1, 1, 1)  # a full disk must not say that it is not stored


@pytest.mark.parametrize("closing", [CloseConsumer(3), CloseSession(1)])
def test_a_consumer_is_not_closed_before_what_it_acknowledged_is_safe(closing):
    """Else what a program has done, and has closed in order, comes again after a crash."""
    node = MemoryNode(SETTINGS)
    node.send("a", Kind.HELLO, structures.encode(hello_of(7)))
    opening = OpenConsumer(3, 1, "queue", "orders", 10)
    for request in (OpenSession(1), OpenProducer(2, 1, "queue", "orders"), opening):
        node.send("a", Kind.REQUEST, structures.encode(request))
    _sending(node, 1)
    message_id = node.engine.state.ids.next_id - 1
    said = encode_settle([Settlement(Action.ACKNOWLEDGE, 3, 0, 0, [(message_id, message_id)])])
    asked = structures.encode(closing)
    frames = [
        (Envelope(Kind.SETTLE, 0, 1, len(said)), said),
        (Envelope(Kind.REQUEST, 9, 1, len(asked)), asked),
    ]

    for one in frames:
        node.broker.handle("a", [one])

    assert node.outlet.take("a") == []
    node.step()
    assert [envelope.correlation for envelope, _ in node.outlet.take("a")] == [9]
