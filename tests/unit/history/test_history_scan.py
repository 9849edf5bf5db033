"""From the segments of a log to batches of events, without Spark."""

import pyarrow as pa
import pytest
from history_records import (
    ORDERS,
    append,
    log,
    message,
    open_journal,
    ranges_record,
    sent_record,
)

from hms.errors.catalogue import HistoryError, HistoryGone, SelectorSyntaxError, StoreUnavailable
from hms.history import scan, selection
from hms.history.events import Event
from hms.history.scope import Scope, parse_scope
from hms.records import RecordType
from hms.wire.packed_messages import Head

ALL = Event._fields


def read_all(path, scope=None):
    scope = scope or Scope()
    return [
        e for part in scan.plan(path, scope) for b in scan.read_part(part, scope, ALL) for e in b
    ]


@pytest.fixture
def store(tmp_path):
    """A journal of several segments: 40 messages of 512 bytes, one a record."""
    journal = open_journal(tmp_path / "store", segment_bytes=4096)
    for i in range(40):
        append(journal, sent_record([message(body=bytes(512))], first_id=i, at_ms=i))
    journal.close()
    return tmp_path / "store"


def test_a_history_of_several_segments_is_read_once_and_in_order(store):
    """Nothing is lost between two segments, nothing read twice."""
    parts = scan.plan(store, Scope())
    ids = [int(event.message_id, 16) for event in read_all(store)]

    assert len(parts) > 3
    assert ids == list(range(40))


def test_offsets_rise_over_all_parts(store):
    """Replay sends in this order, without sorting."""
    offsets = [event.offset for event in read_all(store)]

    assert offsets == sorted(set(offsets))


def test_only_segments_that_hold_the_wanted_offsets_are_read(store):
    """Going on after an earlier reading must not cost reading all that came before."""
    middle = read_all(store)[20].offset
    scope = Scope(first_offset=middle, until_offset=middle + 1)

    assert len(scan.plan(store, scope)) == 1
    assert [event.offset for event in read_all(store, scope)] == [middle]


def test_an_offset_inside_a_batch_cuts_the_batch():
    """A reading that stopped in the middle of a batch goes on with the next message."""
    records = list(log(sent_record([message() for _ in range(10)])))
    events = scan.read_events(records, Scope(first_offset=104), until_offset=107)

    assert [event.offset for event in events] == [104, 105, 106]


@pytest.mark.parametrize(
    "ids", [{0}, {9}, {3, 4}, {0, 9, 11}, {11, 12, 14}, {10, 13, 99}, set(range(20)), {500}]
)
def test_messages_that_are_asked_for_are_those_that_all_events_have(ids, monkeypatch):
    """Of a batch, of ranges with gaps, and with other offsets cut off; no other is unpacked."""
    texts = [message(body=b"%d" % n) for n in range(10)]
    records = list(
        log(
            sent_record(texts, first_id=0),
            sent_record(texts[:3], first_id=11),
            ranges_record(RecordType.ACKNOWLEDGED, (2, 4), (9, 9), (12, 13)),
        )
    )
    unpacked, expand = [], scan.EventDecoder.expand

    def counted(decoder, run):
        unpacked.append(run.size)
        return expand(decoder, run)

    for bounds in ({}, {"first_offset": 103}):
        every = list(scan.read_events(records, Scope(**bounds)))
        wanted = [event for event in every if int(event.message_id, 16) in ids]
        unpacked.clear()
        with monkeypatch.context() as patch:
            patch.setattr(scan.EventDecoder, "expand", counted)
            scope = Scope(message_ids=frozenset(ids), **bounds)
            assert list(scan.read_events(records, scope)) == wanted
        assert sum(unpacked) == len(wanted)


def test_the_live_tail_ends_where_it_was_when_the_scan_was_planned(tmp_path):
    """All tasks of a job must see one and the same picture, however late they start."""
    journal = open_journal(tmp_path / "live", segment_bytes=1 << 20)
    append(journal, sent_record([message()], first_id=1))
    parts = scan.plan(tmp_path / "live", Scope())
    append(journal, sent_record([message()], first_id=2))

    seen = [e.message_id for b in scan.read_part(parts[-1], Scope(), ALL) for e in b]
    later = [e.message_id for e in read_all(tmp_path / "live")]
    journal.close()

    assert seen == ["000000000001"]
    assert later == ["000000000001", "000000000002"]


def test_an_empty_store_has_nothing_to_read(tmp_path):
    """A node that was never sent anything is no error."""
    open_journal(tmp_path / "new").close()

    assert read_all(tmp_path / "new") == []


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    """A mistyped path must not look like an empty history."""
    with pytest.raises(StoreUnavailable):
        scan.plan(tmp_path / "nowhere", Scope())


def test_a_segment_that_was_retired_meanwhile_is_named(store):
    """The caller learns which offsets are gone, and does not take it for damage."""
    part = scan.plan(store, Scope())[0]
    (store / part.file).unlink()

    with pytest.raises(HistoryGone, match="was let go") as caught:
        list(scan.read_part(part, Scope(), ALL))
    assert (caught.value.first, caught.value.last) == (1, part.until_offset - 1)


def test_a_segment_that_is_missing_is_no_silent_gap(store):
    """A replay or a report that leaves out some thousand messages must not look complete."""
    (store / sorted(part.file for part in scan.plan(store, Scope()))[2]).unlink()

    with pytest.raises(HistoryError, match="missing or damaged"):
        read_all(store)


def test_a_segment_that_is_begun_while_a_scan_is_planned_is_left_out(store, monkeypatch):
    """The end of the picture is fixed first, whatever the node does meanwhile."""
    whole = read_all(store)
    monkeypatch.setattr(scan.Tail, "end", lambda _: whole[20].offset + 1)

    assert read_all(store) == whole[:21]


@pytest.mark.parametrize(
    ("selector", "ids"),
    [
        ("Month > 4", [2, 3]),
        ("Month = '5'", []),
        ("JMSPriority = 9", [3]),
        ("JMSType = 'News'", [2]),
        ("JMSTimestamp >= 1000", [1, 2, 3]),
        ("JMSMessageID = '000000000003'", [3]),
        ("JMSCorrelationID = 'c'", [3]),
        ("JMSDeliveryMode = 'PERSISTENT' AND Month IS NULL", [1]),
        ("absent = 1", []),
    ],
)
def test_a_selector_judges_as_the_broker_does(selector, ids):
    """What a consumer would have got is what the history shows."""
    messages = [
        message(),
        message(Head({"Month": 5}, type="News")),
        message(Head({"Month": 6}, correlation_id="c"), priority=9),
    ]
    records = log(sent_record(messages), ranges_record(RecordType.DELIVERED, (1, 3)))
    events = scan.read_events(records, parse_scope({"selector": selector}), ["offset"])

    assert [int(event.message_id, 16) for event in events] == ids


def test_a_selector_never_matches_a_head_that_cannot_be_read():
    """The broker takes such a message for one without properties."""
    records = log(sent_record([message(b"\xc1")]))

    assert list(scan.read_events(records, Scope(selector="a = 1"))) == []


def test_a_wrong_selector_is_refused_with_its_position():
    """Before anything is read, let alone sent."""
    with pytest.raises(SelectorSyntaxError) as caught:
        selection.selector_test("a = = 1")

    assert caught.value.position == 4


def test_columns_that_nobody_needs_are_not_decoded(monkeypatch):
    """A count must not pay for properties and bodies."""
    monkeypatch.setattr("hms.history.heads.decode_head", None)
    records = log(sent_record([message(Head({"a": 1}))]))
    (event,) = scan.read_events(records, Scope(), ["offset", "event"])

    assert (event.head, event.body) == (None, None)


def test_bodies_can_be_left_out():
    """Reports over large messages read heads only."""
    scope = parse_scope({"includeBody": "false"})
    (event,) = scan.read_events(log(sent_record([message(Head({"a": 1}))])), scope)

    assert (event.properties, event.body) == ({"a": "1"}, None)


def test_a_batch_ends_before_large_bodies_fill_the_memory(tmp_path, monkeypatch):
    """Eight thousand bodies of a megabyte would be too much for a worker."""
    monkeypatch.setattr(scan, "BATCH_BYTES", 1000)
    journal = open_journal(tmp_path / "s", segment_bytes=1 << 20)
    append(journal, sent_record([message(body=bytes(400)) for _ in range(7)]))
    journal.close()
    (part,) = scan.plan(tmp_path / "s", Scope())

    assert [len(batch) for batch in scan.read_part(part, Scope(), ALL)] == [3, 3, 1]


def test_a_record_batch_has_exactly_the_schema_that_was_asked_for():
    """Spark refuses a batch whose types differ in anything."""
    schema = pa.schema(
        {
            "time": pa.timestamp("us", "UTC"),
            "offset": pa.int64(),
            "long_properties": pa.map_(pa.string(), pa.int64()),
            "expiration": pa.timestamp("us", "UTC"),
            "body": pa.binary(),
        }
    )
    records = log(
        sent_record([message(Head({"a": 1}), ttl_ms=5)], at_ms=7),
        ranges_record(RecordType.DELIVERED, (1, 1), number=ORDERS),
    )
    batch = scan.to_record_batch(list(scan.read_events(records, Scope())), schema)

    assert batch.schema == schema
    assert batch.column("time").cast(pa.int64()).to_pylist() == [7_000, 2_000_000]
    assert batch.column("expiration").cast(pa.int64()).to_pylist() == [12_000, None]
    assert batch.column("long_properties").to_pylist() == [[("a", 1)], None]
    assert batch.column("body").to_pylist() == [b"x", None]
