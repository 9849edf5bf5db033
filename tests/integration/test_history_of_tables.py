"""The history of a store in a database, by the same functions as that of a log."""

import pytest

from hms.errors.catalogue import DatabaseUnavailable, HistoryError
from hms.history import count_events, tables
from hms.history.events import Event
from hms.history.scan import plan, read_part
from hms.history.scope import Scope, parse_scope
from hms.records import RecordType
from tests.support.store_place import FIRST_ID, append, batch, happened

ALL = Event._fields


@pytest.fixture
def address(database_place):
    """Ten batches of eight messages, half of them acknowledged."""
    store, _ = database_place.started()
    for number in range(0, 80, 8):
        append(store, batch(number, 8, b"body"))
        append(store, happened(RecordType.ACKNOWLEDGED, number, 4))
        store.commit()
    store.close()
    return f"{database_place.address}#{database_place.prefix}"


def rows(address, **options):
    scope = parse_scope(options)
    return [
        event
        for part in plan(address, scope)
        for events in read_part(part, scope, ALL)
        for event in events
    ]


def test_every_event_is_there_once_with_its_place(address, monkeypatch):
    """Reports and replay do not ask which kind of store a node has."""
    counts = {(one.destination, one.event): one.count for one in count_events(address)}
    whole = rows(address)
    monkeypatch.setattr(tables, "RANGE_OFFSETS", 7)

    assert counts == {("a", "sent"): 80, ("a", "acknowledged"): 40}
    assert len(plan(address, Scope())) > 10
    assert rows(address) == whole
    assert [int(row.message_id, 16) for row in whole if row.event == "sent"] == [
        FIRST_ID + i for i in range(80)
    ]
    assert {row.body for row in whole if row.event == "sent"} == {b"body"}


def test_a_range_of_offsets_is_cut_within_a_record(address):
    """Going on from an offset works as with a log."""
    whole = rows(address)
    first, until = whole[3].offset, whole[21].offset

    assert rows(address, startingOffsets=str(first), endingOffsets=str(until)) == whole[3:21]


def test_an_address_that_leads_nowhere_is_refused(address):
    """An empty answer would look like an empty history."""
    plain, _, prefix = address.partition("#")
    with pytest.raises(HistoryError, match="prefix"):
        count_events(plain)
    with pytest.raises(DatabaseUnavailable):
        count_events(f"{plain}#other_")
    with pytest.raises(HistoryError, match="prefix"):
        count_events(f"{plain}#x;drop table {prefix}log")
