"""The history of a store in a database, by the same functions as that of a log."""

import itertools
from dataclasses import replace

import pytest

from hms.errors.catalogue import DatabaseUnavailable, HistoryError
from hms.history import count_events, tables
from hms.history.audit_pages import page_of_tables
from hms.history.audit_trail import entries_of_tables
from hms.history.erasing import Erasure
from hms.history.events import Event
from hms.history.scan import plan, read_part
from hms.history.scope import Scope, parse_scope
from hms.history.table_erasing import erase_tables
from hms.records import RecordType
from hms.records.audit import NO_HASH, AuditEntry, audit_record, breaks_of, chained
from hms.store.aging import Aging
from tests.support.store_place import DATABASE, FIRST_ID, append, batch, happened
from tests.support.waiting import wait_until

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


def test_what_is_erased_is_blank_in_the_tables_and_what_waits_is_left(database_place):
    """A dry run changes nothing; the audit is whole; a second run finds what waits and no more."""
    store, _ = database_place.started()
    previous = NO_HASH
    for number, said in enumerate(("ann", "bob"), 1):
        entry = AuditEntry(number, 5, "u", "s", "purge", "q", "c", said, 0, 1, previous)
        previous = chained(entry).hash
        append(store, audit_record(chained(entry)))
    for number, body in ((0, b"of ann"), (4, b"of ann, too")):
        append(store, batch(number, 4, body))
    append(store, happened(RecordType.ACKNOWLEDGED, 0, 4))
    store.commit()
    address = f"{database_place.address}#{database_place.prefix}"
    erasure = Erasure("JMSPriority = 4", ["ann"])

    assert erase_tables(address, None, erasure, is_dry=True)[:2] == (9, 4)
    assert {row.body for row in rows(address) if row.event == "sent"} == {b"of ann", b"of ann, too"}
    assert erase_tables(address, None, erasure, is_dry=False)[:2] == (9, 4)
    bodies = {row.body for row in rows(address) if row.event == "sent"}
    assert bodies == {bytes(6), bytes(11)}
    assert database_place.count("message") == 4
    assert erase_tables(address, None, erasure, is_dry=False)[:2] == (4, 4)

    entries = list(entries_of_tables(address))
    assert [entry.arguments for entry in entries] == ["***", "bob"]
    assert list(breaks_of(entries)) == []
    append(store, happened(RecordType.ACKNOWLEDGED, 4, 4))
    store.commit()
    store.close()
    assert erase_tables(address, None, erasure, is_dry=False)[:2] == (4, 0)
    assert erase_tables(address, None, erasure, is_dry=False)[:2] == (0, 0)
    store, records = database_place.started()
    store.close()
    assert records[-1][1] == RecordType.AUDIT
    if database_place.kind == "sqlite":
        files = [file for file in database_place.folder.iterdir() if file.name.startswith("store")]
        assert not any(b"ann" in file.read_bytes() for file in files)


def test_the_audit_of_tables_is_shown_a_page_at_a_time(database_place):
    """The newest first; a search whose time is over goes on where it ended."""
    store, _ = database_place.started()
    for number in range(1, 31):
        user = "rare" if number == 3 else "anna"
        entry = AuditEntry(number, 5, user, "s", "purge", "q", "c", "", 0, 1, NO_HASH)
        append(store, audit_record(chained(entry)))
    store.commit()
    store.close()
    address = f"{database_place.address}#{database_place.prefix}"
    found, before = [], 0
    while True:
        page = page_of_tables(address, None, lambda _: True, before, 7)
        found.append([one.number for one in page.entries])
        before = page.before
        if not before:
            break
    assert [len(one) for one in found] == [7, 7, 7, 7, 2]
    assert [number for one in found for number in one] == list(range(30, 0, -1))

    def wanted(one):
        return one.user == "rare"

    ticks = itertools.count()
    page = page_of_tables(address, None, wanted, 0, 7, lambda: float(next(ticks)))
    assert (page.entries, page.is_cut) == ([], True)
    assert 3 < page.before < 30
    page = page_of_tables(address, None, wanted, page.before, 7)
    assert ([one.number for one in page.entries], page.before) == ([3], 0)


def test_the_audit_of_tables_is_kept_so_long_and_its_last_record_for_ever(database_place):
    """The next record continues that one."""
    store, _ = database_place.started(replace(DATABASE, audit_keep_s=3600.0))
    for number in (1, 2):
        entry = AuditEntry(number, 5, "u", "s", "purge", "q", "c", "", 0, 1, NO_HASH)
        append(store, audit_record(chained(entry)))
    store.commit()
    assert database_place.count("audit") == 2

    hours = itertools.count(0, 3600)
    store._upkeep._audit_aging = Aging(steady_s=lambda: float(next(hours)))

    def is_pruned():
        store._upkeep._prune_at = store._upkeep._prune_audit_at = 0.0
        store.maintain()
        return database_place.count("audit") == 1

    assert not is_pruned()  # nothing goes at a boot
    wait_until(is_pruned)
    address = f"{database_place.address}#{database_place.prefix}"
    assert [entry.number for entry in entries_of_tables(address)] == [2]
    store.close()
