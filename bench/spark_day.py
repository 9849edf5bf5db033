"""A day of events, written into a log as a node would, for the measurements of the history.

Each message is sent, delivered and acknowledged, in batches of 128, evenly over 24 hours and over
20 queues. Segments are of 16 MiB, so that a day of a few hundred MiB has enough of them.
"""

from collections.abc import Sequence
from pathlib import Path

from hms.records import Definition, Record, RecordType, Sent, Snapshot, dictionary, ranges, sent
from hms.store.journal import Journal
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages

DAY_MS = 86_400_000
START_MS = 1_793_491_200_000
"""2026-11-01T00:00Z."""
QUEUES = [Definition(number, "queue", f"queue.{number:02d}") for number in range(1, 21)]
BATCH = 128
SEGMENT_BYTES = 16 << 20


def write_day(path: Path, events: int) -> None:
    """So many events, a third of each kind, evenly over the day."""
    batches = events // 3 // BATCH
    journal = open_journal(path, SEGMENT_BYTES)
    append_batches(journal, 0, batches, START_MS, DAY_MS // batches)
    journal.close()


def open_journal(path: Path, segment_bytes: int) -> Journal:
    """A log with the queues."""
    journal = Journal.open(path, segment_bytes=segment_bytes, node_uid=1)
    for _ in journal.recover():
        pass
    journal.start(lambda: _stored(dictionary(Snapshot(QUEUES, now_ms=_NOW[0]))))
    return journal


_NOW = [START_MS]


def append_batches(journal: Journal, begin: int, count: int, at_ms: int, step_ms: int = 1) -> None:
    """Batches by their number: what they hold and when they were follows from it."""
    pack = _pack()
    for i in range(begin, begin + count):
        now_ms = _NOW[0] = at_ms + i * step_ms
        number, first = QUEUES[i % len(QUEUES)].number, 1 + i * BATCH
        span = [(first, first + BATCH - 1)]
        for record in (
            sent(
                Sent(
                    number,
                    first,
                    now_ms,
                    7,
                    1,
                    1,
                    BATCH,
                    is_forwarded=False,
                    placements=[],
                    pack=pack,
                )
            ),
            ranges(RecordType.DELIVERED, number, now_ms, span),
            ranges(RecordType.ACKNOWLEDGED, number, now_ms, span),
        ):
            journal.append(*_stored(record))
        if i % 50 == 0:
            journal.commit()
            journal.maintain()
    journal.commit()


def _pack() -> memoryview:
    messages = []
    for i in range(BATCH):
        properties = {"customer": f"c{i * 7919 % 1000}", "amount": i * 37 % 500, "vip": i % 9 == 0}
        head = encode_head(Head(properties, type="order"))
        body = f'{{"order": {i * 104729}, "lines": [{i}, {i + 1}], "note": "as agreed"}}'.encode()
        messages.append((ROW.pack(len(head), len(body), 0, 0, i % 10, 1, 0, 0), head, body))
    return memoryview(pack_messages(messages))


def _stored(record: Record) -> tuple[int, int, Sequence[bytes | memoryview]]:
    return int(record.type), record.events, record.parts
