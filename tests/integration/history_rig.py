"""A journal for tests of the history with Spark: what a node would have written, without a node."""

from datetime import UTC, datetime

from field_buffer.packing import ROW, Head, encode_head, pack_messages
from hms.records import Definition, Dictionary, Sent, dictionary, sent
from hms.store.journal import Journal

ORDERS, NEWS, BILLING = 1, 2, 3
DEFINITIONS = [
    Definition(ORDERS, "queue", "orders"),
    Definition(NEWS, "topic", "news"),
    Definition(BILLING, "subscription", "billing", topic=NEWS),
]
MINUTE_MS = 60_000
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


def begin(path, segment_bytes=64 * 1024, node_uid=1):
    journal = Journal.open(path, segment_bytes=segment_bytes, node_uid=node_uid)
    assert list(journal.recover()) == []
    first = dictionary(Dictionary(DEFINITIONS))
    journal.start(lambda: (int(first.type), first.events, first.parts))
    return journal
