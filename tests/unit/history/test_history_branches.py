"""Distributed transactions in the history."""

from history_records import log, message, ranges_record, sent_record

from hms.history.events import EventDecoder
from hms.records import Ended, Prepared, RecordType, ended, group, prepared
from hms.wire.xid import Xid

ONE, OTHER = Xid(7, b"one", b"x"), Xid(7, b"other", b"y")


def _decode(records):
    decoder = EventDecoder()
    return [event for record in records for event in decoder.decode(*record[:2], record[3])]


def test_what_a_branch_brought_carries_its_name_and_each_event_its_number():
    """A transfer is found in the history of each system by the same name."""
    vote = prepared(Prepared(ONE.pack(), 1, 1000), [])
    decision = group(
        0,
        0,
        0,
        5000,
        [
            ended(Ended(ONE.pack(), 1, 5000), 0),
            sent_record([message(), message()]),
            ended(Ended(OTHER.pack(), 1, 5000), 0),
            ranges_record(RecordType.ACKNOWLEDGED, (7, 7)),
        ],
    )

    rows = _decode(log(vote, decision))

    assert [(r.offset, r.event, r.transaction) for r in rows] == [
        (102, "sent", str(ONE)),
        (103, "sent", str(ONE)),
        (104, "acknowledged", str(OTHER)),
    ]
