"""Decoding the log's records into events."""

import pytest
from history_records import (
    BILLING,
    DLQ,
    NEWS,
    ORDERS,
    log,
    message,
    ranges_record,
    sent_record,
)

from hms.history.events import COLUMNS, EVENT_NAMES, Event, EventDecoder
from hms.records import (
    Cause,
    Definition,
    NodeEvent,
    Record,
    RecordType,
    decode_ranges,
    defined,
    group,
    node_event,
    ranges,
    reserved,
    undefined,
)
from hms.wire.packed_messages import Head


def decode(records, **options):
    decoder = EventDecoder(**options)
    return [
        event for lsn, kind, _, data, *_ in records for event in decoder.decode(lsn, kind, data)
    ]


def test_every_message_of_a_batch_is_a_row_with_an_offset_and_an_id_of_its_own():
    """Offsets name events for ever, so that two readings can be compared row by row."""
    rows = decode(log(sent_record([message(body=b"a"), message(body=b"b")], first_id=0x2A)))

    assert [(r.offset, r.event, r.message_id, r.body) for r in rows] == [
        (101, "sent", "00000000002a", b"a"),
        (102, "sent", "00000000002b", b"b"),
    ]


def test_a_sent_row_shows_what_the_sender_said():
    """Analysis and replay know a message from this row alone."""
    head = Head({"Month": 5}, correlation_id="c", reply_to="queue:r", type="News")
    (row,) = decode(log(sent_record([message(head, b"b", ttl_ms=500, priority=9, kind=1)])))

    assert row.destination == "orders"
    assert row.destination_kind == "queue"
    assert (row.priority, row.kind, row.persistent) == (9, "text", True)
    assert (row.time, row.timestamp, row.expiration) == (1000, 1000, 1500)
    assert (row.correlation_id, row.reply_to, row.type) == ("c", "queue:r", "News")


def test_properties_come_as_text_and_by_type():
    """A selector must not find the text '5' equal to the number 5, a person wants to read both."""
    values = {"s": "5", "i": 5, "d": 0.5, "b": True, "raw": b"\x01\xff"}
    (row,) = decode(log(sent_record([message(Head(values))])))

    assert row.properties == {"s": "5", "i": "5", "d": "0.5", "b": "true", "raw": "01ff"}
    assert row.string_properties == {"s": "5"}
    assert row.long_properties == {"i": 5}
    assert row.double_properties == {"d": 0.5}
    assert row.boolean_properties == {"b": True}


def test_what_the_node_added_is_among_the_properties():
    """Why a message became a dead letter stands there."""
    (row,) = decode(log(sent_record([message(Head(node={"JMS_HMS_reason": "expired"}))])))

    assert row.properties == {"JMS_HMS_reason": "expired"}


def test_a_number_that_no_column_holds_is_shown_as_text_only():
    """One client's unsigned number must not end the scan of everybody's history."""
    (row,) = decode(log(sent_record([message(Head({"huge": 2**64 - 1}))])))

    assert row.properties == {"huge": str(2**64 - 1)}
    assert row.long_properties == {}


def test_a_head_that_nobody_can_read_leaves_the_row_without_properties():
    """The node stores heads unread; a foreign client's mistake must not hide all other rows."""
    damaged, healthy = decode(log(sent_record([message(b"\xc1\xc1"), message(Head({"a": 1}))])))

    assert (damaged.head, damaged.properties, damaged.body) == (b"\xc1\xc1", None, b"x")
    assert healthy.properties == {"a": "1"}


def test_an_expiration_beyond_the_year_9999_counts_as_never():
    """Timestamps of Spark and Python end there."""
    (row,) = decode(log(sent_record([message(ttl_ms=2**63)])))

    assert row.expiration is None


def test_ranges_become_one_row_per_message():
    """A message's life is found by its id, not by a range that covers it."""
    rows = decode(log(ranges_record(RecordType.ACKNOWLEDGED, (5, 6), (9, 9))))

    assert [(r.offset, r.event, int(r.message_id, 16), r.time) for r in rows] == [
        (101, "acknowledged", 5, 2000),
        (102, "acknowledged", 6, 2000),
        (103, "acknowledged", 9, 2000),
    ]


def test_a_return_with_a_time_is_read_as_one_without_it():
    """The release before reads the ranges, and no further: it can take the log back."""
    spans = [(5, 6), (9, 9)]
    plain, timed = (ranges(RecordType.FAILED, ORDERS, 2000, spans, due_ms=due) for due in (0, 7000))

    assert timed.parts[0][: len(plain.parts[0])] == plain.parts[0]
    assert decode_ranges(timed.parts[0])._replace(due_ms=0) == decode_ranges(plain.parts[0])
    assert decode(log(timed)) == decode(log(plain))


@pytest.mark.parametrize(
    ("kind", "cause", "event", "shown"),
    [
        (RecordType.DELIVERED, Cause.NONE, "delivered", None),
        (RecordType.FAILED, Cause.NONE, "failed", None),
        (RecordType.RELEASED, Cause.NONE, "released", None),
        (RecordType.DISCARDED, Cause.EXPIRED, "expired", "expired"),
        (RecordType.DISCARDED, Cause.DEAD_LETTERED, "dead_lettered", "dead_lettered"),
        (RecordType.DISCARDED, Cause.PURGED, "purged", "purged"),
        (RecordType.DISCARDED, Cause.MOVED, "moved", "moved"),
        (RecordType.DISCARDED, Cause.COLD, "discarded", "cold"),
        (RecordType.DISCARDED, Cause.LIMIT, "discarded", "limit"),
        (RecordType.DISCARDED, Cause.UNSUBSCRIBED, "discarded", "unsubscribed"),
    ],
)
def test_every_end_of_a_message_has_a_name_and_a_cause(kind, cause, event, shown):
    """Nothing leaves in silence (P9): reports count by these words."""
    (row,) = decode(log(ranges_record(kind, (1, 1), cause=cause)))

    assert (row.event, row.cause) == (event, shown)
    assert event in EVENT_NAMES


def test_events_of_a_durable_subscription_name_the_topic_and_the_subscription():
    """The backlog of one subscriber is asked for by its name."""
    (row,) = decode(log(ranges_record(RecordType.DELIVERED, (1, 1), number=BILLING)))

    assert (row.destination, row.destination_kind, row.subscription) == ("news", "topic", "billing")


def test_a_commit_expands_to_its_rows_with_consecutive_offsets_and_one_transaction():
    """The log numbers the inner events as if they stood alone."""
    commit = group(
        0xAB,
        2,
        3,
        5000,
        [
            sent_record([message(), message()], number=NEWS),
            defined(Definition(9, "queue", "late")),
            ranges_record(RecordType.ACKNOWLEDGED, (7, 7)),
        ],
    )
    rows = decode(log(commit, ranges_record(RecordType.DELIVERED, (1, 1))))

    assert [(r.offset, r.event) for r in rows] == [
        (101, "sent"),
        (102, "sent"),
        (104, "acknowledged"),
        (105, "delivered"),
    ]
    assert {r.transaction for r in rows[:3]} == {"00000000000000ab-2-3"}
    assert rows[3].transaction is None


def test_a_dead_lettering_is_a_forwarded_row_at_the_time_of_the_move_in_no_transaction():
    """The dead letter keeps the time of its sending; the history tells when it was moved."""
    move = group(
        0,
        0,
        0,
        9000,
        [
            ranges_record(RecordType.DISCARDED, (1, 1), at_ms=9000, cause=Cause.DEAD_LETTERED),
            sent_record([message()], number=DLQ, at_ms=1000, forwarded=True),
        ],
    )
    left, arrived = decode(log(move))

    assert (left.event, left.destination, left.transaction) == ("dead_lettered", "orders", None)
    assert (arrived.event, arrived.destination) == ("forwarded", "dead.letters")
    assert (arrived.time, arrived.timestamp, arrived.transaction) == (9000, 1000, None)


def test_records_that_are_not_about_messages_give_no_rows():
    """Definitions, reservations and boots are the node's own affair."""
    records = [
        defined(Definition(9, "queue", "late")),
        undefined(ORDERS),
        reserved(99),
        node_event(NodeEvent("booted", 1, "WARM", "0.1")),
    ]
    assert decode(log(*records)) == []


def test_a_destination_that_was_defined_inside_the_segment_is_known_by_name():
    """Queues made at run time are in no dictionary before the next segment."""
    late = defined(Definition(9, "queue", "late"))
    (row,) = decode(log(late, sent_record([message()], number=9)))

    assert row.destination == "late"


def test_a_destination_that_is_gone_keeps_its_name_in_the_history():
    """What happened before a queue was deleted is still told."""
    (row,) = decode(log(undefined(ORDERS), ranges_record(RecordType.DELIVERED, (1, 1))))

    assert row.destination == "orders"


def test_a_record_type_of_a_later_version_gives_no_rows():
    """An older reader tells what it understands."""
    assert decode([(1, 200, 1, b"?")]) == []


def test_a_record_that_nobody_asked_for_is_not_unpacked():
    """Reading one destination of many must not cost the decoding of all."""
    broken = Record(RecordType.SENT, 1, (b"".join(sent_record([message()]).parts)[:-1],))
    asked = []

    assert decode(log(broken), wants=lambda *what: asked.append(what) or False) == []
    assert asked == [("sent", ("orders", "queue", None), 1000)]


def test_heads_and_bodies_are_left_out_when_nobody_needs_them():
    """Counting events must not copy every body."""
    records = [sent_record([message(Head({"a": 1}))])]
    (row,) = decode(log(*records), columns=("offset", "event"))

    assert (row.head, row.properties, row.body, row.priority) == (None, None, None, 4)


def test_the_columns_are_the_fields_of_an_event():
    """Rows become columns by their position."""
    assert tuple(COLUMNS) == Event._fields
