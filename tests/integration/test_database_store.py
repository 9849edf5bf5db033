"""What only a database store has: leases and epochs, outages, doubt, its own history."""

import dataclasses
import signal
import threading
import time

import pytest

from field_buffer.catalogue import (
    DatabaseLost,
    DatabaseUnavailable,
    StoreCorrupt,
    StoreFailed,
    StoreFenced,
    StoreFormatUnknown,
    StoreLocked,
)
from hms.records import RecordType
from hms.store.database import DatabaseSettings, departed, open_database, owner, store
from hms.store.database.backend import Unreachable
from hms.store.interface import SegmentGoneError
from tests.support.postgres import postgres_server
from tests.support.store_rig import DATABASE, Place, append, batch, happened, numbers_in

SHORT = dataclasses.replace(DATABASE, lease_s=1.0)
TABLES = ("message", "subscription_message", "log")


@pytest.fixture(scope="module")
def server():
    with postgres_server() as running:
        yield running


@pytest.fixture
def own_server():
    """One that a test may stop."""
    with postgres_server() as running:
        yield running


@pytest.fixture
def tables(server, tmp_path):
    """On PostgreSQL."""
    return Place("postgresql", tmp_path, server)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    is_server = request.param == "postgresql"
    return Place(request.param, tmp_path, request.getfixturevalue("server") if is_server else None)


def count(place, table):
    ((found,),) = place.ask(f"SELECT count(*) FROM {{p}}{table}")
    return found


def until(is_true, timeout_s=30):
    pause, end = threading.Event(), time.monotonic() + timeout_s
    while not (found := is_true()):
        assert time.monotonic() < end, "it does not happen"
        pause.wait(0.05)
    return found


def take_over(place, settings=SHORT):
    """Open as soon as the lease of the present owner is over."""

    def attempt():
        try:
            return place.started(settings)[0]
        except StoreLocked:
            return None

    return until(attempt)


# leases and epochs


def test_a_live_lease_is_refused_with_its_owner_and_its_end(tables):
    """Who is refused must know whom to ask and how long it takes."""
    first, _ = tables.started()

    with pytest.raises(StoreLocked, match=r"lease ends in \d+ s"):
        tables.open()

    first.close()


def test_a_node_that_was_silent_past_its_lease_writes_nothing_once_another_came(tables):
    """F-I3: a paused node that wakes up must not mix its messages into what is another's now."""
    old, _ = tables.started(SHORT)
    append(old, batch(0, 5, b"x"))
    old.commit()
    new = take_over(tables)
    before = [count(tables, table) for table in TABLES]
    append(old, batch(5, 5, b"stale"))

    with pytest.raises(StoreFenced, match="epoch is 2, ours was 1"):
        old.commit()

    assert [count(tables, table) for table in TABLES] == before
    with pytest.raises(StoreFenced):
        append(old, batch(10, 1, b"stale"))
    assert "epoch" in old.sends_refused()
    old.close()
    append(new, batch(5, 5, b"x"))
    new.commit()
    new.close()
    assert tables.numbers() == list(range(10))


def test_an_idle_node_notices_at_its_next_renewal_that_it_lost_the_store(tables):
    """It would go on delivering what is another's otherwise."""
    old, _ = tables.started(SHORT)
    new = take_over(tables)

    def is_maintained():
        if old.needs_maintenance:
            old.maintain()

    with pytest.raises(StoreFenced):
        until(is_maintained)

    assert not old.needs_maintenance
    old.close()
    new.maintain()
    new.close()


def test_a_lease_that_is_renewed_outlives_its_length(tables):
    """A node that has nothing to write keeps its store all the same."""
    first, _ = tables.started(SHORT)
    end = time.monotonic() + 1.5 * SHORT.lease_s
    pause = threading.Event()

    while time.monotonic() < end:
        if first.needs_maintenance:
            first.maintain()
        pause.wait(0.05)

    with pytest.raises(StoreLocked):
        tables.open()
    first.close()


def test_a_node_stopped_in_the_midst_of_a_transaction_does_not_keep_the_store(tables):
    """Its session holds the row of meta; who takes over ends that session."""
    old, _ = tables.started(SHORT)
    old._backend._writer.execute("BEGIN")
    old._backend._writer.execute(f"UPDATE {tables.prefix}meta SET now_ms = 5")

    new = take_over(tables)

    append(old, batch(0, 1, b"stale"))
    with pytest.raises(StoreFenced):
        old.commit()
    old.close()
    new.close()


def test_the_lease_of_a_process_that_is_gone_is_not_waited_for(tables, monkeypatch):
    """A node that crashed boots again at once."""
    crashed, _ = tables.started()
    world = owner._world()
    tables.ask(f"UPDATE {{p}}meta SET owner_mark = '{world}/4194999/17'")

    second, _ = tables.started()

    second.close()
    crashed.close()


def test_a_lease_of_another_machine_is_waited_for(tables):
    """Nobody can tell from here whether a process elsewhere lives."""
    first, _ = tables.started()
    tables.ask("UPDATE {p}meta SET owner_mark = 'elsewhere/1/4194999/17'")

    with pytest.raises(StoreLocked):
        tables.open()
    first.close()


# outages and doubt


class Doubtful:
    """A backend whose answers are lost: `lost` says of each write whether before or after it."""

    def __init__(self, backend, lost):
        self._backend, self._lost = backend, list(lost)
        self.writes = 0

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def write(self, transaction):
        self.writes += 1
        how = self._lost.pop(0) if self._lost else "not"
        if how != "before":
            self._backend.write(transaction)
        if how != "not":
            raise Unreachable("the answer is lost")


@pytest.mark.parametrize(
    "lost", [["after"], ["before"], ["after", "after"], ["before", "after", "before"]]
)
def test_a_commit_whose_answer_is_lost_is_there_once(place, lost):
    """Neither twice nor not at all, wherever the connection broke."""
    found, _ = place.started()
    doubtful = found._backend = Doubtful(found._backend, lost)
    append(found, batch(0, 5, b"x"))
    append(found, happened(RecordType.DELIVERED, 0, 5))

    durable_lsn = found.commit()

    assert durable_lsn == found.last_lsn
    assert doubtful.writes > 1
    assert count(place, "message") == count(place, "subscription_message") == 5
    append(found, batch(5, 5, b"y"))
    found.commit()
    found.close()
    assert place.numbers() == list(range(10))


def test_connections_that_break_at_random_lose_and_double_nothing(tables):
    """The real thing: the server ends the session while commits are under way."""
    found, _ = tables.started()
    ended, done = [0], threading.Event()

    def disturb():
        while not done.is_set():
            query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            query += f" WHERE application_name LIKE 'hms:{tables.prefix}:%%'"
            ended[0] += tables.server.ask(query)[0][0]
            done.wait(0.2)

    thread = threading.Thread(target=disturb)
    thread.start()
    number = 0
    try:
        while number < 500 or ended[0] < 5:
            append(found, batch(number, 10, b"x" * 2000))
            found.commit()
            number += 10
    finally:
        done.set()
        thread.join(20)
    found.close()

    assert tables.numbers() == list(range(number))


def test_a_server_that_comes_back_in_time_is_waited_for(own_server, tmp_path):
    """A restart of the database is no reason to stop a node."""
    tables = Place("postgresql", tmp_path, own_server)
    found, _ = tables.started()
    append(found, batch(0, 5, b"x"))
    found.commit()
    position = append(found, batch(5, 5, b"yy"))
    own_server.stop()
    committing = threading.Thread(target=found.commit)
    committing.start()
    until(lambda: found.describe()["database_outage"])
    assert found.backlog_bytes > 0

    own_server.start()

    committing.join(30)
    assert found.durable_lsn == found.last_lsn
    assert found.backlog_bytes == 0
    assert found.describe()["database_outage"] is None
    assert found.read(position + len(batch(5, 5, b"yy").parts[0]) + 5 * 32, 2) == b"yy"
    found.close()
    assert tables.numbers() == list(range(10))


def test_a_server_that_stays_away_ends_the_store_with_the_reason(own_server, tmp_path):
    """P7: beyond the limit the node stops; what it had confirmed is there at the next boot."""
    tables = Place("postgresql", tmp_path, own_server)
    found, _ = tables.started(dataclasses.replace(SHORT, retry_s=0.5))
    append(found, batch(0, 5, b"x"))
    found.commit()
    append(found, batch(5, 5, b"never confirmed"))
    own_server.stop(signal.SIGQUIT)

    with pytest.raises(DatabaseLost, match=r"waited for 0\.5 s"):
        found.commit()

    with pytest.raises(DatabaseLost):
        append(found, batch(10, 1, b"late"))
    assert found.sends_refused()
    found.close()
    own_server.start()
    take_over(tables).close()
    assert tables.numbers() == list(range(5))


def test_after_a_while_without_an_answer_new_messages_are_refused_with_the_reason(place):
    """Senders must not pile up behind a database that is away; short silences they only wait."""
    found, _ = place.started(dataclasses.replace(DATABASE, retry_s=0.0001))
    found._outage._limit_s = 0.5
    found._outage.failed("no route")
    assert found.sends_refused() is None

    told = until(found.sends_refused)

    assert "no route" in told
    found._outage.over()
    assert found.sends_refused() is None
    found.close()


def test_a_commit_that_waits_for_the_server_ends_when_the_store_is_closed(own_server, tmp_path):
    """An operator's second signal must not wait for a database that is away."""
    tables = Place("postgresql", tmp_path, own_server)
    found, _ = tables.started()
    append(found, batch(0, 1, b"x"))
    own_server.stop()
    said = []

    def commit():
        with pytest.raises(StoreFailed, match="closed while it did not answer") as caught:
            found.commit()
        said.append(caught.value)

    committing = threading.Thread(target=commit)
    committing.start()
    until(lambda: found.describe()["database_outage"])

    found.close()

    committing.join(30)
    assert said


def test_a_database_that_is_away_at_boot_is_named(tmp_path):
    """The night shift has to see which server does not answer."""
    with pytest.raises(DatabaseUnavailable, match=r"postgresql://127\.0\.0\.1:1/none"):
        open_database(
            "postgresql://hms@127.0.0.1:1/none",
            table_prefix="x_",
            node_uid=1,
            settings=DatabaseSettings(),
        )


def test_a_server_that_does_not_sync_is_refused(own_server, tmp_path):
    """What it confirms would not be safe (P1)."""
    own_server.ask("ALTER SYSTEM SET fsync = off")
    own_server.ask("SELECT pg_reload_conf()")
    until(lambda: own_server.ask("SHOW fsync") == [("off",)])

    with pytest.raises(DatabaseUnavailable, match="fsync = off"):
        Place("postgresql", tmp_path, own_server).open()


def test_a_role_that_does_not_wait_for_the_disk_is_told_to(tables):
    """The default of a role or database must not weaken what a confirmation means."""
    tables.server.ask("ALTER ROLE hms SET synchronous_commit = off")
    try:
        found, _ = tables.started()
        session = found._backend._writer
        assert session.execute("SHOW synchronous_commit").fetchone() == ("on",)
        found.close()
    finally:
        tables.server.ask("ALTER ROLE hms RESET synchronous_commit")


# the tables


def test_tables_of_a_newer_version_are_refused_and_not_changed(place):
    """An old node must not write what it does not understand."""
    place.started()[0].close()
    place.ask("INSERT INTO {p}migration VALUES (99, 0)")
    before = place.ask("SELECT epoch FROM {p}meta")

    with pytest.raises(StoreFormatUnknown, match="format 99; this version reads up to 1"):
        place.open()

    assert place.ask("SELECT epoch FROM {p}meta") == before


def test_nodes_with_prefixes_of_their_own_share_a_database(server, tmp_path):
    """One database server serves a whole domain."""
    one, two = Place("postgresql", tmp_path, server), Place("postgresql", tmp_path, server)
    first, second = one.started()[0], two.started()[0]
    append(first, batch(0, 3, b"x"))
    append(second, batch(0, 7, b"x"))
    first.commit()
    second.commit()

    assert (count(one, "message"), count(two, "message")) == (3, 7)
    first.close()
    second.close()


def test_a_missing_message_is_damage_and_not_served(place):
    """A row that somebody deleted by hand must not be missed in silence (P9)."""
    found, _ = place.started()
    append(found, batch(0, 3, b"x"))
    found.commit()
    found.close()
    place.ask("DELETE FROM {p}message WHERE id = (SELECT max(id) FROM {p}message)")

    damaged = place.open()
    with pytest.raises(StoreCorrupt, match="its row is not there"):
        list(damaged.recover())
    damaged.close()


def test_what_comes_and_goes_within_a_commit_writes_no_row(place):
    """Most messages of a busy node live shorter than a commit takes."""
    found, _ = place.started()
    append(found, batch(0, 50, b"x"))
    append(found, happened(RecordType.DELIVERED, 0, 50))
    append(found, happened(RecordType.ACKNOWLEDGED, 0, 49))
    found.commit()

    assert count(place, "message") == count(place, "subscription_message") == 1
    found.close()


def test_the_bytes_of_a_message_that_left_can_be_read_for_a_while(place, monkeypatch):
    """A consumer may acknowledge a message whose body is still being fetched."""
    found, _ = place.started()
    record = batch(0, 1, b"body")
    position = append(found, record) + len(record.parts[0]) + 32
    found.commit()
    append(found, happened(RecordType.ACKNOWLEDGED, 0, 1))
    found.commit()
    assert found.read(position, 4) == b"body"
    assert not found._departed.is_due(time.monotonic())

    monkeypatch.setattr(departed, "READABLE_S", 0.0)
    assert found.needs_maintenance
    found.maintain()

    with pytest.raises(SegmentGoneError):
        found.read(position, 4)
    assert count(place, "message") == 0
    found.close()


def test_rows_that_a_crash_has_left_behind_go_after_the_next_boot(place):
    """What nobody holds must not fill the database."""
    found, _ = place.started()
    append(found, batch(0, 5, b"x"))
    found.commit()
    append(found, happened(RecordType.ACKNOWLEDGED, 0, 4))
    found.commit()
    found.close()
    assert count(place, "message") == 5

    again, records = place.started()

    assert numbers_in(records) == [4]
    assert count(place, "message") == 1
    again.close()


def test_bytes_between_messages_are_not_made_up(place):
    """Whoever reads over a gap must be told, or would take zeros for a message."""
    found, _ = place.started()
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


# history


def test_the_history_keeps_every_record_as_it_was(place):
    """F-I4: what happened stays readable after the messages are gone."""
    found, _ = place.started()
    told = [batch(0, 3, b"x"), happened(RecordType.ACKNOWLEDGED, 0, 3)]
    lsns = []
    for record in told:
        lsns.append(found.last_lsn + 1)
        append(found, record)
    found.commit()

    rows = place.ask("SELECT lsn, kind, events, payload FROM {p}log ORDER BY lsn")[1:]

    assert [row[0] for row in rows] == lsns
    assert [(row[1], row[2]) for row in rows] == [(int(r.type), r.events) for r in told]
    assert [bytes(row[3]) for row in rows] == [b"".join(r.parts) for r in told]
    found.close()


def test_the_history_ends_where_its_limits_are(place, monkeypatch):
    """By bytes and by age; the oldest goes first and messages are not touched."""
    monkeypatch.setattr(store, "PRUNE_ROWS", 3)
    found, _ = place.started(dataclasses.replace(DATABASE, history_bytes=5_000))
    for number in range(20):
        append(found, batch(number, 1, b"x" * 900))
        found.commit()
    until(lambda: _maintained(found) and count(place, "log") <= 6)

    kept = [row[0] for row in place.ask("SELECT lsn FROM {p}log ORDER BY lsn")]
    assert kept == list(range(found.last_lsn - len(kept) + 1, found.last_lsn + 1))
    assert count(place, "message") == 20
    found.close()
    old = dataclasses.replace(DATABASE, history_age_s=3600.0)
    place.ask("UPDATE {p}log SET at_ms = 1000")
    found, _ = place.started(old)
    until(lambda: _maintained(found) and count(place, "log") == 1)
    found.close()


def _maintained(found):
    found._prune_at = 0.0
    found.maintain()
    return True


def test_a_store_without_history_writes_none(place):
    """It is the operator's choice: half of what is written otherwise."""
    found, _ = place.started(dataclasses.replace(DATABASE, history_bytes=0))
    append(found, batch(0, 3, b"x"))
    found.commit()

    assert count(place, "log") == 0
    assert count(place, "message") == 3
    found.close()
