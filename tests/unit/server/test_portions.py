"""A batch of a connection is applied in portions, between which the engine's lock is free (P8)."""

from dataclasses import replace

from hms.engine.groups import scan_slices
from hms.server.batch_portions import PORTION_WEIGHT, portions
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Envelope, Kind, SendHead, Settlement
from hms.wire.packed_messages import ROW
from tests.support.hello import hello_of
from tests.support.memory import MemoryNode

FRAMES = 256


def command(kind, head, payload=b""):
    return Envelope(kind, 0, 1, len(payload)), head, payload


def test_many_large_sends_are_many_portions():
    """256 frames of 1,024 messages kept the lock for half a second."""
    batch = [
        command(Kind.SEND, SendHead(1, 1024, 1 + n, is_persistent=True)) for n in range(FRAMES)
    ]

    found = list(portions(batch))

    assert [len(portion) for portion in found] == [1] * FRAMES
    assert [one for portion in found for one in portion] == batch


def test_small_commands_go_together():
    """A handover costs as much as ten messages."""
    batch = [command(Kind.HEARTBEAT, None)] * 100
    assert len(list(portions(batch))) == 1


def test_ranges_and_bytes_weigh_too():
    """Neither wide settlements nor large payloads hide behind a small number of frames."""
    wide = Settlement(frames.Action.ACKNOWLEDGE, 1, 0, 0, [(1, 2)] * PORTION_WEIGHT)
    large = bytes(PORTION_WEIGHT * 4096)
    for one in (command(Kind.SETTLE, [wide]), command(Kind.CALL, None, large)):
        assert len(list(portions([one] * 3))) == 3


def test_what_cannot_be_read_weighs_like_a_small_one():
    """Its error stands where its head would."""
    assert len(list(portions([command(Kind.SEND, wire.ProtocolError(detail="x"))] * 5))) == 1


def test_the_lock_is_given_back_between_portions_and_their_order_is_kept():
    """Otherwise a portion would be a name only."""
    node = MemoryNode()
    node.send("peer", Kind.HELLO, wire.encode(hello_of(1)))
    for request in (wire.OpenSession(1), wire.OpenProducer(1, 1, "queue", "orders")):
        node.send("peer", Kind.REQUEST, wire.encode(request))
    row = ROW.pack(0, 0, 0, 0, 4, 0, 0, 0)
    batch, holds = [], node.broker._holds.describe()["lock_holds"]
    for n in range(4):
        pack = row * 1024
        payload = frames.encode_send(SendHead(1, 1024, 1 + n * 1024, is_persistent=False), pack)
        batch.append((Envelope(Kind.SEND, n + 1, 1024, len(payload)), payload))

    node.broker.handle("peer", batch)
    node.step()

    assert node.broker._holds.describe()["lock_holds"] == holds + 4
    confirmed = [e.correlation for e, _ in node.outlet.take("peer") if e.kind is Kind.CONFIRM]
    assert confirmed == [1, 2, 3, 4]


def test_the_status_tells_whose_hold_was_the_longest():
    """Whoever finds others waiting asks for what."""
    node = MemoryNode()
    node.send("peer", Kind.HELLO, wire.encode(hello_of(1)))
    said = node.broker._holds.describe()
    assert said["lock_holds"] == 1
    assert said["lock_held_max_by"] == "HELLO"
    assert said["lock_held_max_of"].startswith("1 HELLO, 0 messages, ")
    assert said["lock_held_max_of"].endswith(" 0 records, 1 effects")
    assert said["lock_held_max_ms"] >= 0 <= said["lock_held_max_cpu_ms"]


def test_what_selectors_have_yet_to_look_at_goes_on_behind_what_waits(monkeypatch):
    """One TICK at a time: a second one would only hold the lock for nothing."""
    node, asked = MemoryNode(), []
    node.broker.begin(replace(node.broker.around, go_on=lambda: asked.append(1)))
    node.send("peer", Kind.HELLO, wire.encode(hello_of(1)))
    for request in (wire.OpenSession(1), wire.OpenProducer(1, 1, "queue", "orders")):
        node.send("peer", Kind.REQUEST, wire.encode(request))
    monkeypatch.setattr(scan_slices, "LOOK_STEPS", 10)
    payload = frames.encode_send(SendHead(1, 20, 1, is_persistent=False), row_of() * 20)
    node.send("peer", Kind.SEND, payload)
    node.engine.state.looking.refill()

    consumer = wire.OpenConsumer(1, 1, "queue", "orders", 9, selector="a IS NULL")
    node.send("peer", Kind.REQUEST, wire.encode(consumer))
    node.send("peer", Kind.REQUEST, wire.encode(wire.OpenSession(2)))
    assert len(asked) == 1
    ticks = 0
    while node.engine.is_behind:
        node.broker._tick()
        ticks += 1

    assert len(asked) == ticks > 1


def row_of():
    """A message without head and body."""
    return ROW.pack(0, 0, 0, 0, 4, 0, 0, 0)
