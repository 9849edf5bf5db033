"""A database that does not answer: waited for, judged, given up (P7)."""

import dataclasses
import signal
import threading

import pytest

from hms.errors.catalogue import DatabaseLost, DatabaseUnavailable, StoreFailed
from hms.records import RecordType
from hms.store.database import DatabaseSettings, open_database
from hms.store.database.backend import Unreachable
from tests.support.store_place import DATABASE, SHORT, Place, append, batch, happened, take_over
from tests.support.waiting import wait_until


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
def test_a_commit_whose_answer_is_lost_is_there_once(database_place, lost):
    """Neither twice nor not at all, wherever the connection broke."""
    found, _ = database_place.started()
    doubtful = found._backend = Doubtful(found._backend, lost)
    append(found, batch(0, 5, b"x"))
    append(found, happened(RecordType.DELIVERED, 0, 5))

    durable_lsn = found.commit()

    assert durable_lsn == found.last_lsn
    assert doubtful.writes > 1
    assert database_place.count("message") == database_place.count("subscription_message") == 5
    append(found, batch(5, 5, b"y"))
    found.commit()
    found.close()
    assert database_place.numbers() == list(range(10))


def disturb(tables, done, ended):
    """End the store's sessions again and again, counting."""
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    query += f" WHERE application_name LIKE 'hms:{tables.prefix}:%%'"
    while not done.wait(0.2):
        ended[0] += tables.server.ask(query)[0][0]


def test_connections_that_break_at_random_lose_and_double_nothing(tables):
    """The real thing: the server ends the session while commits are under way."""
    found, _ = tables.started()
    ended, done, number = [0], threading.Event(), 0
    thread = threading.Thread(target=disturb, args=(tables, done, ended))
    thread.start()
    try:
        while number < 500 or ended[0] < 5:
            append(found, batch(number, 10, b"x" * 2000))
            found.commit()
            number += 10
    finally:
        done.set()
        thread.join(60)
    found.close()

    assert tables.numbers() == list(range(number))


def test_a_server_that_comes_back_in_time_is_waited_for(own_postgres, tmp_path):
    """A restart of the database is no reason to stop a node."""
    tables = Place("postgresql", tmp_path, own_postgres)
    found, _ = tables.started()
    append(found, batch(0, 5, b"x"))
    found.commit()
    position = append(found, batch(5, 5, b"yy"))
    own_postgres.stop()
    committing = threading.Thread(target=found.commit)
    committing.start()
    wait_until(lambda: found.describe()["database_outage"])
    assert found.backlog_bytes > 0

    own_postgres.start()

    committing.join(60)
    assert found.durable_lsn == found.last_lsn
    assert found.backlog_bytes == 0
    assert found.describe()["database_outage"] is None
    assert found.read(position + len(batch(5, 5, b"yy").parts[0]) + 5 * 32, 2) == b"yy"
    found.close()
    assert tables.numbers() == list(range(10))


def test_a_server_that_stays_away_ends_the_store_with_the_reason(own_postgres, tmp_path):
    """P7: beyond the limit the node stops; what it had confirmed is there at the next boot."""
    tables = Place("postgresql", tmp_path, own_postgres)
    found, _ = tables.started(dataclasses.replace(SHORT, retry_s=0.5))
    append(found, batch(0, 5, b"x"))
    found.commit()
    append(found, batch(5, 5, b"never confirmed"))
    own_postgres.stop(signal.SIGQUIT)

    with pytest.raises(DatabaseLost, match=r"waited for 0\.5 s"):
        found.commit()

    with pytest.raises(DatabaseLost):
        append(found, batch(10, 1, b"late"))
    assert found.sends_refused() is None  # nobody is told that the store is full
    found.close()
    own_postgres.start()
    take_over(tables).close()
    assert tables.numbers() == list(range(5))


def test_after_a_while_without_an_answer_new_messages_are_refused_with_the_reason(database_place):
    """Senders must not pile up behind a database that is away; short silences they only wait."""
    found, _ = database_place.started(dataclasses.replace(DATABASE, retry_s=0.0001))
    found._outage._limit_s = 60
    found._outage.failed("no route")
    assert found.sends_refused() is None
    found._outage._limit_s = 0.5

    told = wait_until(found.sends_refused)

    assert "no route" in told
    found._outage.over()
    assert found.sends_refused() is None
    found.close()


def test_a_commit_that_waits_for_the_server_ends_when_the_store_is_closed(own_postgres, tmp_path):
    """An operator's second signal must not wait for a database that is away."""
    tables = Place("postgresql", tmp_path, own_postgres)
    found, _ = tables.started()
    append(found, batch(0, 1, b"x"))
    own_postgres.stop()
    said = []

    def commit():
        with pytest.raises(StoreFailed, match="closed while it did not answer") as caught:
            found.commit()
        said.append(caught.value)

    committing = threading.Thread(target=commit)
    committing.start()
    wait_until(lambda: found.describe()["database_outage"])

    found.close()

    committing.join(60)
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


def test_a_server_that_does_not_sync_is_refused(own_postgres, tmp_path):
    """What it confirms would not be safe (P1)."""
    own_postgres.ask("ALTER SYSTEM SET fsync = off")
    own_postgres.ask("SELECT pg_reload_conf()")
    wait_until(lambda: own_postgres.ask("SHOW fsync") == [("off",)])

    with pytest.raises(DatabaseUnavailable, match="fsync = off"):
        Place("postgresql", tmp_path, own_postgres).open()


def test_a_role_that_does_not_wait_for_the_disk_is_told_to(tables):
    """The default of a role or database must not weaken what a confirmation means."""
    tables.server.ask("ALTER ROLE hms SET synchronous_commit = off")
    try:
        found, _ = tables.started()
        session = found._backend._sessions._writer
        assert session.execute("SHOW synchronous_commit").fetchone() == ("on",)
        found.close()
    finally:
        tables.server.ask("ALTER ROLE hms RESET synchronous_commit")
