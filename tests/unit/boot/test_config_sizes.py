"""hms.conf: whatever sizes it accepts, no frame of a client is too large for the log."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hms.boot import compose
from hms.boot.config import load
from hms.boot.sizes import RECORD_ROOM_BYTES, SENDER_ROOM_BYTES, frame_bytes_max
from hms.client import send_buffer
from hms.engine.engine import Engine
from hms.engine.queue.incoming import accepted
from hms.engine.queue.sender_identity import with_sender
from hms.engine.session.opening import open_connection
from hms.engine.settings import EngineSettings
from hms.errors.catalogue import ConfigError
from hms.records import Definition, Placement, Sent, Snapshot, dictionary, sent
from hms.store.journal import Journal
from hms.store.journal.append_backlog import Backlog
from hms.wire.frames import RANGE, SEND_HEAD, SETTLE_ITEM
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages, unpack_rows

KIB = 1 << 10
STAMPS_BESIDE_BYTES = 64 * KIB
"""What times of delivery may add besides, in a frame of 1,024 messages."""
SMALLEST = """[node.N1]
max_message_bytes = {message}
max_transaction_bytes = {message}
segment_bytes = {segment}
"""
ONE_QUEUE = [Definition(1, "queue", "HMS.DLQ"), Definition(2, "queue", "q")]


def _configured(path, message, segment):
    """The node of a file with these sizes, or the report."""
    path.write_text(SMALLEST.format(message=message, segment=segment))
    try:
        return load(path).node(), ""
    except ConfigError as fault:
        return None, fault.report


def _largest_record(frame_bytes):
    """What the engine writes for the largest frame that the gateway lets in."""
    pack = bytes(frame_bytes - SEND_HEAD.size)
    return _record(1, [Placement(2, b"")], pack)


def _record(count, placements, pack):
    return sent(Sent(2, 1, 1, 1, 1, 1, count, is_forwarded=False, placements=placements, pack=pack))


@pytest.mark.parametrize("message", [1 * KIB, 320 * KIB])
def test_the_largest_frame_fits_into_the_smallest_segment(tmp_path, message):
    """A record that is larger than a segment would stop the node: any client could do that."""
    node, report = _configured(tmp_path / "hms.conf", message, 1024 * KIB)
    assert report == ""
    limits = compose.gateway_limits(node)
    assert compose.identity(load(tmp_path / "hms.conf"), node).limits.frame_bytes_max == (
        limits.frame_bytes_max
    )

    journal = Journal.open(tmp_path / "store", segment_bytes=node.segment_bytes, node_uid=1)
    list(journal.recover())
    journal.start(lambda: msgspec.structs.astuple(dictionary(Snapshot(ONE_QUEUE)))[:3])
    for _ in range(3):
        journal.append(*msgspec.structs.astuple(_largest_record(limits.frame_bytes_max))[:3])
        journal.commit()
    journal.close()


@given(
    message=st.integers(1 * KIB, 1 << 20) | st.integers(1 * KIB, 1 << 30),
    segment=st.integers(128 * KIB, 256 * KIB).map(lambda n: n * 8) | st.just(2 << 30),
)
def test_a_frame_fits_beside_what_its_segment_begins_with(tmp_path_factory, message, segment):
    """Whatever the operator writes: it is refused by name, or it holds."""
    path = tmp_path_factory.getbasetemp() / "sizes.conf"
    node, report = _configured(path, message, segment)

    if node is not None:
        frame = compose.gateway_limits(node).frame_bytes_max
        assert frame == frame_bytes_max(message, segment)
        assert frame + RECORD_ROOM_BYTES <= segment
    else:
        assert "is above" in report or "is too small" in report


def test_a_frame_has_room_for_what_a_client_packs_into_one():
    """A client that fills its frames would lose its connection at a node with small limits."""
    packed = (
        send_buffer.FRAME_BYTES_MAX + send_buffer.FRAME_MESSAGES_MAX * ROW.size + SEND_HEAD.size
    )
    settled = 65_535 // 2 * RANGE.size + SETTLE_ITEM.size

    assert max(packed, settled) <= frame_bytes_max(1 * KIB, 1024 * KIB)


def test_a_segment_that_is_too_small_is_refused_by_name(tmp_path):
    """The next larger one is good: the rule holds exactly."""
    _, report = _configured(tmp_path / "hms.conf", 320 * KIB + 1, 1024 * KIB)

    assert report.split(":", 1)[1] == (
        "4: [node.N1] segment_bytes 1 MiB is too small for max_message_bytes 327681 B: "
        "a frame of 983041 B needs 64 KiB beside it"
    )
    assert _configured(tmp_path / "hms.conf", 320 * KIB + 1, 1025 * KIB)[1] == ""


def test_the_room_beside_a_frame_holds_a_dictionary_and_many_placements():
    """A topic with four hundred durable subscriptions, each with a mark for every message."""
    segment, message = 1024 * KIB, 320 * KIB
    frame, every = frame_bytes_max(message, segment), range(3, 403)
    definitions = [Definition(n, "subscription", f"durable{n}", 2) for n in every]
    pack = bytes(frame - SEND_HEAD.size)
    marks = [Placement(n, bytes(256 // 8)) for n in every]
    record = _record(256, marks, pack)
    backlog = Backlog(
        segment, 1, 1, lambda: msgspec.structs.astuple(dictionary(Snapshot(definitions)))[:3]
    )

    backlog.append(*msgspec.structs.astuple(record)[:3])
    assert backlog.last_lsn >= 256


def test_who_sent_a_frame_of_many_messages_fits_beside_it(tmp_path):
    """Else any client of a node with sender_identity could stop it, by a long name of its own."""
    engine = Engine(EngineSettings(is_sender_told=True))
    opened = open_connection(engine.state, 1, 7, "u" * 63 + "/" + "\N{SNOWMAN}" * 255, "u" * 63)
    heads = [encode_head(Head({"a": number}, node={"b": 1})) for number in range(1024)]
    rows = [ROW.pack(len(head), 0, 0, 0, 4, 0, 0, 0) for head in heads]
    pack = pack_messages([(row, head, b"") for row, head in zip(rows, heads, strict=True)])
    batch = accepted(memoryview(pack), unpack_rows(pack, 1024))
    stamped = with_sender(batch, opened.sender)
    assert 0 < len(stamped.pack) - len(pack) <= SENDER_ROOM_BYTES - STAMPS_BESIDE_BYTES

    path = tmp_path / "hms.conf"
    text = SMALLEST.format(message=320 * KIB, segment=1024 * KIB)
    path.write_text(text + 'security = "s"\nlisten = ["ipc:///s"]\n')
    load(path)
    path.write_text(path.read_text() + "sender_identity = true\n")
    with pytest.raises(ConfigError, match="576 KiB beside it"):
        load(path)
