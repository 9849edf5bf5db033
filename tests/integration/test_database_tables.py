"""The tables of a database store: versions, prefixes, what is left in them, the history."""

import dataclasses
import itertools
import time

import pytest

from hms.errors.catalogue import StoreCorrupt, StoreFormatUnknown
from hms.records import RecordType
from hms.records.audit import NO_HASH, AuditEntry, audit_record, chained
from hms.store.aging import Aging
from hms.store.database import departed_messages, upkeep
from hms.store.interface import SegmentGoneError
from tests.support.store_place import DATABASE, Place, append, batch, happened, numbers_in
from tests.support.waiting import wait_until


def test_tables_of_a_newer_version_are_refused_and_not_changed(database_place):
    """An old node must not write what it does not understand."""
    database_place.started()[0].close()
    database_place.ask("INSERT INTO {p}migration VALUES (99, 0)")
    before = database_place.ask("SELECT epoch FROM {p}meta")

    with pytest.raises(StoreFormatUnknown, match="format 99; this version reads up to 3"):
        database_place.open()

    assert database_place.ask("SELECT epoch FROM {p}meta") == before


def test_nodes_with_prefixes_of_their_own_share_a_database(postgres, tmp_path):
    """One database server serves a whole domain."""
    one, two = Place("postgresql", tmp_path, postgres), Place("postgresql", tmp_path, postgres)
    first, second = one.started()[0], two.started()[0]
    append(first, batch(0, 3, b"x"))
    append(second, batch(0, 7, b"x"))
    first.commit()
    second.commit()

    assert (one.count("message"), two.count("message")) == (3, 7)
    first.close()
    second.close()


def test_a_missing_message_is_damage_and_not_served(database_place):
    """A row that somebody deleted by hand must not be missed in silence (P9)."""
    found, _ = database_place.started()
    append(found, batch(0, 3, b"x"))
    found.commit()
    found.close()
    database_place.ask("DELETE FROM {p}message WHERE id = (SELECT max(id) FROM {p}message)")

    damaged = database_place.open()
    with pytest.raises(StoreCorrupt, match="its row is not there"):
        list(damaged.recover())
    damaged.close()


def test_what_comes_and_goes_within_a_commit_writes_no_row(database_place):
    """Most messages of a busy node live shorter than a commit takes."""
    found, _ = database_place.started()
    append(found, batch(0, 50, b"x"))
    append(found, happened(RecordType.DELIVERED, 0, 50))
    append(found, happened(RecordType.ACKNOWLEDGED, 0, 49))
    found.commit()

    assert database_place.count("message") == database_place.count("subscription_message") == 1
    found.close()


def test_the_bytes_of_a_message_that_left_can_be_read_for_a_while(database_place, monkeypatch):
    """A consumer may acknowledge a message whose body is still being fetched."""
    found, _ = database_place.started()
    record = batch(0, 1, b"body")
    position = append(found, record) + len(record.parts[0]) + 32
    found.commit()
    append(found, happened(RecordType.ACKNOWLEDGED, 0, 1))
    found.commit()
    assert found.read(position, 4) == b"body"
    assert not found._upkeep.departed.is_due(time.monotonic())

    monkeypatch.setattr(departed_messages, "READABLE_S", 0.0)
    assert found.needs_maintenance
    found.maintain()

    with pytest.raises(SegmentGoneError):
        found.read(position, 4)
    assert database_place.count("message") == 0
    found.close()


def test_rows_that_a_crash_has_left_behind_go_after_the_next_boot(database_place):
    """What nobody holds must not fill the database."""
    found, _ = database_place.started()
    append(found, batch(0, 5, b"x"))
    found.commit()
    append(found, happened(RecordType.ACKNOWLEDGED, 0, 4))
    found.commit()
    found.close()
    assert database_place.count("message") == 5

    again, records = database_place.started()

    assert numbers_in(records) == [4]
    assert database_place.count("message") == 1
    again.close()


def test_bytes_between_messages_are_not_made_up(database_place):
    """Whoever reads over a gap must be told, or would take zeros for a message."""
    found, _ = database_place.started()
    record = batch(0, 2, b"body")
    first = append(found, record) + len(record.parts[0]) + 2 * 32
    second = append(found, batch(2, 1, b"tail")) + len(record.parts[0]) + 32
    found.commit()

    assert found.read(first, 8) == b"bodybody"
    assert found.read(second + 1, 3) == b"ail"
    assert found.read(second, 0) == b""
    with pytest.raises(SegmentGoneError):
        found.read(first, second + 4 - first)
    with pytest.raises(SegmentGoneError):
        found.read(second + 2, 10)
    found.close()


def test_the_history_keeps_every_record_as_it_was(database_place):
    """F-I4: what happened stays readable after the messages are gone."""
    found, _ = database_place.started()
    told = [batch(0, 3, b"x"), happened(RecordType.ACKNOWLEDGED, 0, 3)]
    lsns = []
    for record in told:
        lsns.append(found.last_lsn + 1)
        append(found, record)
    found.commit()

    rows = database_place.ask("SELECT lsn, kind, events, payload FROM {p}log ORDER BY lsn")[1:]

    assert [row[0] for row in rows] == lsns
    assert [(row[1], row[2]) for row in rows] == [(int(r.type), r.events) for r in told]
    assert [bytes(row[3]) for row in rows] == [b"".join(r.parts) for r in told]
    found.close()


def test_the_history_ends_where_its_limits_are(database_place, monkeypatch):
    """By bytes and by age; the oldest goes first and messages are not touched."""
    monkeypatch.setattr(upkeep, "PRUNE_ROWS", 3)
    found, _ = database_place.started(dataclasses.replace(DATABASE, history_bytes=5_000))
    for number in range(20):
        append(found, batch(number, 1, b"x" * 900))
        found.commit()
    wait_until(lambda: _maintained(found) and database_place.count("log") <= 6)

    kept = [row[0] for row in database_place.ask("SELECT lsn FROM {p}log ORDER BY lsn")]
    assert kept == list(range(found.last_lsn - len(kept) + 1, found.last_lsn + 1))
    assert database_place.count("message") == 20
    found.close()
    old = dataclasses.replace(DATABASE, history_age_s=3600.0)
    database_place.ask("UPDATE {p}log SET at_ms = 1000")
    found, _ = database_place.started(old)
    hours = itertools.count(0, 3600)
    found._upkeep._aging = Aging(steady_s=lambda: float(next(hours)))
    wait_until(lambda: _maintained(found) and database_place.count("log") == 1)
    found.close()


def test_a_clock_years_ahead_takes_neither_history_nor_audit_with_it(database_place):
    """A boot with a wrong clock removed both at once."""
    found, _ = database_place.started(DATABASE)
    append(found, batch(0, 1, b"x"))
    for number in (1, 2):
        entry = AuditEntry(number, 5000, "u", "s", "purge", "q", "c", "", 0, 1, NO_HASH)
        append(found, audit_record(chained(entry)))
    found.commit()
    found.close()
    before, year_ms = database_place.count("log"), 365 * 86_400_000
    ahead = dataclasses.replace(
        DATABASE,
        history_age_s=30 * 86_400.0,
        audit_keep_s=30 * 86_400.0,
        clock_ms=lambda: upkeep.wall_ms() + 10 * year_ms,
    )
    database_place.ask("UPDATE {p}audit SET at_ms = 5000 + number * 1000000000")
    database_place.ask("UPDATE {p}log SET at_ms = 5000 + lsn * 1000000000")
    for _ in range(2):
        found, _ = database_place.started(ahead)
        for _ in range(3):
            found._upkeep._prune_audit_at = 0.0
            _maintained(found)
        assert found.describe()["history_held_s"] > 9 * 365 * 86_400
        assert database_place.count("log") >= before
        assert database_place.count("audit") == 2
        found.close()


def _maintained(found):
    found._upkeep._prune_at = 0.0
    found.maintain()
    return True


def test_a_store_without_history_writes_none(database_place):
    """It is the operator's choice: half of what is written otherwise."""
    found, _ = database_place.started(dataclasses.replace(DATABASE, history_bytes=0))
    append(found, batch(0, 3, b"x"))
    found.commit()

    assert database_place.count("log") == 0
    assert database_place.count("message") == 3
    found.close()
