"""A journal for tests of the history with Spark: what a node would have written, without a node."""

from datetime import UTC, datetime

from hms.records import Definition, RecordType, Sent, Snapshot, dictionary, ranges, sent
from hms.store.journal import Journal
from hms.store.journal.disk import REAL_DISK
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages

ORDERS, NEWS, BILLING = 1, 2, 3
DEFINITIONS = [
    Definition(ORDERS, "queue", "orders"),
    Definition(NEWS, "topic", "news"),
    Definition(BILLING, "subscription", "billing", topic=NEWS),
]
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
START = datetime(2026, 11, 1, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)


def batch(first_id, count, *, number=ORDERS, at_ms=START_MS, size=20):
    """A SENT record: message i has the property Month = i % 12 and a body that names it."""
    messages = []
    for i in range(first_id, first_id + count):
        head = encode_head(Head({"Month": i % 12, "Type": "News"}, type="T"))
        body = f"{i}".encode().ljust(size)
        messages.append((ROW.pack(len(head), len(body), 0, 0, i % 10, 1, 0, 0), head, body))
    pack = pack_messages(messages)
    return sent(Sent(number, first_id, at_ms, 7, 1, 1, count, False, [], pack))  # noqa: FBT003


def write(journal, *records):
    for record in records:
        journal.append(int(record.type), record.events, record.parts)
        journal.commit()
        journal.maintain()


def begin(path, segment_bytes=64 * 1024, node_uid=1, disk=REAL_DISK):
    journal = Journal.open(path, segment_bytes=segment_bytes, node_uid=node_uid, disk=disk)
    assert list(journal.recover()) == []
    first = dictionary(Snapshot(DEFINITIONS))
    journal.start(lambda: (int(first.type), first.events, first.parts))
    return journal


def fill(journal, first, days=(0,)):
    """Of each day 300 orders, 100 of them acknowledged, and three news to a subscription."""
    for day in days:
        at_ms = START_MS + day * DAY_MS
        for start in range(first, first + 300, 100):
            write(journal, batch(start, 100, at_ms=at_ms))
        done = ranges(RecordType.ACKNOWLEDGED, ORDERS, at_ms, [(first, first + 99)])
        write(journal, done, batch(first + 300, 3, number=NEWS, at_ms=at_ms))
        told = ranges(RecordType.DELIVERED, BILLING, at_ms, [(first + 300, first + 302)])
        write(journal, told)
        first += 1000


def reopened(store):
    """The same log, begun again by a later boot."""
    journal = Journal.open(store, segment_bytes=16 * 1024, node_uid=1)
    for _ in journal.recover():
        pass
    first = dictionary(Snapshot(DEFINITIONS))
    journal.start(lambda: (int(first.type), first.events, first.parts))
    return journal
