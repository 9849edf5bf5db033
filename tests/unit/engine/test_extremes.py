"""The largest numbers: what a node accepts fits into every record that it may have to write of it.

A number that is refused costs its sender an error. One that is taken and does not fit later, when
it is told again, stops the node at every boot.
"""

import msgspec
import pytest

from hms import records
from hms.engine.cluster.cluster_messages import (
    DirectoryEntries,
    Moving,
    Offer,
    decode_message,
    encode_message,
)
from hms.engine.effects import Deliver
from hms.engine.queue.pending_list import DELIVERIES_TOLD_MAX
from hms.engine.schedule.schedule_plans import TIME_MS_MAX
from hms.engine.session.deduplication import SEQUENCE_MAX
from hms.errors.catalogue import ProtocolError
from hms.records import Cause, RecordType, moves
from hms.records.audit import AuditEntry, audit_record, chained, decode_audit
from hms.records.definitions import decode_number
from hms.records.kept import decode_memory
from hms.records.pinned import Pinned, decode_pinned
from hms.server.doors.native_door import delivered_rows
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Kind
from hms.wire.packed_messages import ROW
from tests.support.cluster_rig import World
from tests.support.engine_rig import EngineRig
from tests.support.hello import hello_of
from tests.support.memory import MemoryNode

U16, U32, U48, U64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 48) - 1, (1 << 64) - 1
LAST_MS = TIME_MS_MAX + 100 * 366 * 86_400_000
"""What lives as long as it may, sent at the last moment."""
YES = True
TEXT, BYTES = "\U0001f600" * 255, b"\xff" * 134


def _sent(first_sequence, packs=(b"pack",)):
    head = records.Sent(
        *(U32, U48, LAST_MS, U64, U32, first_sequence, records.MESSAGES_PER_BATCH_MAX),
        is_forwarded=True,
        placements=[records.Placement(U32, b"\xff" * 128)] * 3,
        pack=memoryview(b"".join(packs)),
        first_seq=U48,
    )
    return records.sent(head)


_KEPT = records.Kept(
    *(U48, U48, LAST_MS, LAST_MS, 9, 255, U32, U32),
    [records.Stay(U32, U32, U32, LAST_MS, YES, U16, U48)],
)
_PINNED = Pinned(
    U48,
    U32,
    [
        records.pinned_run([U48, 1, U64], [U32, 0, U32], _KEPT.stays),
        records.pinned_run([U48 - 1, U48], [U32 - 1, U32], _KEPT.stays),
    ],
)
_TAKEN = records.ProducerTaken(
    U64, U32, SEQUENCE_MAX, [(SEQUENCE_MAX, U48, LAST_MS, 1024)], SEQUENCE_MAX
)
_IDENTITY = records.Identity(BYTES[:16], [(U48, BYTES[:16])] * 64)
_DEFINITION = records.Definition(
    *(U32, "subscription", TEXT, U32, TEXT, YES, TEXT, YES, YES, TEXT, TEXT, U32, TEXT, TEXT),
    *(LAST_MS, LAST_MS, {"max_bytes": 1 << 50}, "BOTH", "CREATED"),
)
_PREPARED = records.Prepared(
    *(BYTES, U48, LAST_MS),
    [records.PreparedBatch(U32, TEXT, U64, U32, U48, 1024, LAST_MS, 4)],
    [(U32, U48, U48)],
)
_ENTRY = records.Entry("queue", TEXT, U48, U16, YES, {"max_bytes": 1 << 50}, TEXT, "BOTH")
_PEERS = records.Peers(LAST_MS, U32, [records.PeerMemory(U16, U48, U64, U64, U48, [(U48, YES)])])
_AUDIT = chained(
    AuditEntry(U48, LAST_MS, TEXT, TEXT, "purge", TEXT, "queue.purge", "{}" * 8192, U16, U48, BYTES)
)
_SPANS = [(U48 - 1, U48)]
EXTREMES = [
    records.defined(_DEFINITION),
    records.undefined(U32),
    _sent(SEQUENCE_MAX),
    *(
        records.ranges(kind, U32, LAST_MS, _SPANS, Cause.ENDED)
        for kind in RecordType
        if 4 <= kind <= 8
    ),
    records.reserved(U48),
    records.dictionary(records.Snapshot([_DEFINITION], U48, U32, U48, LAST_MS, _IDENTITY)),
    records.node_event(records.NodeEvent("booted", LAST_MS, "WARM", TEXT)),
    records.moved([_KEPT], [b"payload"], None),
    records.memory(records.Memory([_TAKEN], [(U64, U32, U32)], [BYTES])),
    records.prepared(_PREPARED, [b"pack"]),
    records.ended(records.Ended(BYTES, 4, LAST_MS)),
    records.heuristic(records.Heuristic(BYTES, U48, LAST_MS, YES)),
    records.decided(records.Decided(BYTES[:64], U48, LAST_MS, b"x" * (48 << 10))),
    records.forgotten(BYTES[:64]),
    records.offered(records.Offered(U32, LAST_MS, U16, U64, U48, _SPANS)),
    records.arrived(records.Arrived(U16, U64, U48, YES, LAST_MS, U32, [(U48, U48, U48)])),
    records.offer_ended(records.OfferEnded(U16, U48, YES, LAST_MS, YES)),
    records.peers(_PEERS),
    records.entries([_ENTRY]),
    records.pinned(_PINNED.segment, _PINNED.part, _PINNED.runs),
    records.identity(_IDENTITY),
    audit_record(_AUDIT),
]
READERS = {
    RecordType.DEFINED: (records.decode_definition, _DEFINITION),
    RecordType.UNDEFINED: (decode_number, U32),
    RecordType.RESERVED: (decode_number, U48),
    RecordType.MEMORY: (
        decode_memory,
        records.Memory([_TAKEN], [(U64, U32, U32)], [BYTES]),
    ),
    RecordType.PEERS: (moves.decode_peers, _PEERS),
    RecordType.PINNED: (decode_pinned, _PINNED),
    RecordType.ENTRIES: (moves.decode_entries, [_ENTRY]),
    RecordType.IDENTITY: (records.decode_identity, _IDENTITY),
    RecordType.AUDIT: (decode_audit, _AUDIT),
}


def test_every_type_of_record_takes_the_largest_numbers():
    """The table above names each type; a new one must be added to it."""
    told = records.group(U64, U32, U32, LAST_MS, EXTREMES)
    found = records.decode_group(b"".join(told.parts))

    assert found[:4] == (U64, U32, U32, LAST_MS)
    assert {r.type for r in [*EXTREMES, told]} == set(RecordType)
    for before, after in zip(EXTREMES, found.records, strict=True):
        assert b"".join(before.parts) == bytes(after.parts[0])
    for record in EXTREMES:
        reader, wanted = READERS.get(record.type, (None, None))
        if reader is not None:
            assert msgspec.to_builtins(reader(record.parts[0])) == msgspec.to_builtins(wanted)
    sent = records.decode_sent(b"".join(_sent(SEQUENCE_MAX).parts))
    assert (sent.first_sequence, sent.timestamp_ms, sent.first_seq) == (SEQUENCE_MAX, LAST_MS, U48)


@pytest.mark.parametrize("first", [SEQUENCE_MAX, 1 << 63, U64 - 1, U64])
def test_a_sequence_number_that_cannot_be_told_again_is_refused(first):
    """One frame made a node unbootable: the number behind its last one had 65 bits."""
    node = MemoryNode()
    node.send("peer", Kind.HELLO, wire.encode(hello_of(5)))
    for request in (wire.OpenSession(1, 2), wire.OpenProducer(2, 1, "queue", "orders")):
        node.send("peer", Kind.REQUEST, wire.encode(request))
    head = frames.SEND_HEAD.pack(2, 2, first, frames.SEND_PERSISTENT, 0)
    pack = ROW.pack(0, 1, 0, 0, 4, 0, 0, 0) * 2 + b"ab"
    before = len(node.store.records)
    (answer,) = node.send("peer", Kind.SEND, head + pack)

    assert answer[0].kind is Kind.ERROR
    assert str(SEQUENCE_MAX) in str(wire.decode_error(answer[1]))
    assert len(node.store.records) == before
    schedule = wire.ScheduleHead(2, "s", every_ms=1000, request=9, sequence=first)
    body = wire.encode_with_body(schedule, ROW.pack(0, 1, 0, 0, 4, 0, 0, 0) + b"x")
    answers = [answer[0].kind for answer in node.send("peer", Kind.SCHEDULE, body)]
    assert answers == [Kind.REPLY if first == SEQUENCE_MAX else Kind.ERROR]


@pytest.mark.parametrize("first", [SEQUENCE_MAX, U64])
def test_a_log_with_such_a_number_boots_and_tells_it_again(first):
    """It was taken once; the producer is opened again, and the log is cleaned."""
    rig = EngineRig()
    pack = memoryview(ROW.pack(0, 1, 0, 0, 4, 0, 0, 0) * 2 + b"ab")
    rig.run(lambda fx: rig.engine.send(1, 5, 1, first, 2, YES, pack, rig.now_ms, fx))
    for _ in range(2):
        rig.start()
        assert rig.engine.state.queues["orders"].line.waiting_count == 2
        rig.run(lambda fx: rig.engine.restate(rig.engine.remembered(), fx))
        memory = rig.engine.state.memories.producer(77, 1)
        assert wire.encode({"last_sequence": memory.last_sequence})


@pytest.mark.parametrize("count", [U32, U32 + 1, U48])
def test_what_another_node_says_of_deliveries_fits_where_consumers_are_told(count):
    """It came over a link, was confirmed, and no consumer could be given the message."""
    world = World(2)
    world.link_all()
    world.settle()
    node = world.nodes[2]
    life = node.life.store
    one = Moving((1 << 40) + 1, 1000, 10, 0, 4, 0, 0, 1, YES, count)
    data = encode_message(Offer(1, 1, life, "orders", [one]), [b"x"])
    said, payloads = decode_message(data)
    node.run(lambda fx: node.engine.cluster.heard(1, said, payloads, 2000, fx))
    for is_booted in (False, True):
        if is_booted:
            node.boot()
        (delivers,) = [e for e in _opened(node).out if isinstance(e, Deliver)]
        assert delivered_rows(delivers.messages, delivers.counts)
        assert delivers.counts[0] > DELIVERIES_TOLD_MAX


def _opened(node):
    """What a consumer is given."""
    from hms.engine.engine import ConsumerRequest

    request = ConsumerRequest(9, 1, "queue", "orders", 10)
    fx = node.run(lambda fx: node.engine.open_consumer(1, request, 1, 3000, fx))
    node.sync()
    return fx


@pytest.mark.parametrize("version", [-1, 1 << 48, U64])
def test_a_version_that_nobody_could_go_on_from_is_refused(version):
    """The next change here would make one more of it."""
    entry = records.Entry("queue", "q", version, 1, not YES)
    with pytest.raises(ProtocolError):
        decode_message(encode_message(DirectoryEntries([entry])))
