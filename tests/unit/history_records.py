"""Records for tests of the history: what a node would have written, without a node."""

from hms.records import Cause, Definition, Record, Sent, Snapshot, dictionary, ranges, sent
from hms.store.journal import Journal
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages

ORDERS, NEWS, BILLING, DLQ = 1, 2, 3, 4
DEFINITIONS = [
    Definition(ORDERS, "queue", "orders"),
    Definition(NEWS, "topic", "news"),
    Definition(BILLING, "subscription", "billing", topic=NEWS),
    Definition(DLQ, "queue", "dead.letters"),
]


def message(head=None, body=b"x", *, ttl_ms=0, priority=4, kind=0):
    """A message as the client packs it; head may be bytes that nobody can read."""
    data = head if isinstance(head, bytes) else encode_head(head or Head())
    return ROW.pack(len(data), len(body), ttl_ms, 0, priority, kind, 0, 0), data, body


def sent_record(messages, *, number=ORDERS, first_id=1, at_ms=1000, forwarded=False):
    """A SENT record."""
    pack = pack_messages(messages)
    return sent(Sent(number, first_id, at_ms, 7, 1, 1, len(messages), forwarded, [], pack))


def ranges_record(kind, *spans, number=ORDERS, at_ms=2000, cause=Cause.NONE):
    """A record of what became of ranges of messages."""
    return ranges(kind, number, at_ms, spans, cause)


def log(*records: Record, first_lsn=100, definitions=DEFINITIONS):
    """(lsn, type, count, payload, position) of a segment that begins with its dictionary."""
    lsn = first_lsn
    for record in (dictionary(Snapshot(definitions)), *records):
        yield lsn, int(record.type), record.events, b"".join(record.parts), 0
        lsn += record.events


def open_journal(path, *, segment_bytes=8192, definitions=DEFINITIONS):
    """A journal that takes records."""
    journal = Journal.open(path, segment_bytes=segment_bytes, node_uid=1)
    for _ in journal.recover():
        pass
    journal.start(lambda: as_stored(dictionary(Snapshot(definitions))))
    return journal


def as_stored(record):
    """(kind, count, parts) as a store takes a record."""
    return int(record.type), record.events, record.parts


def append(journal, *records):
    """Write records, each with a commit of its own."""
    for record in records:
        journal.append(*as_stored(record))
        journal.commit()
        journal.maintain()
