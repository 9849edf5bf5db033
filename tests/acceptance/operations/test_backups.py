"""Backups of a node under load, and stores restored from them at random moments.

A long form restores as often as the environment says:

    HMS_RESTORES=20 scripts/test tests/acceptance/operations/test_backups.py

What each restored store must hold is computed twice: by the log's own reader, and by Spark.
"""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import hms
import hms.testing
from hms.boot import restored_boot
from hms.boot.calendar import CronCalendar
from hms.boot.cli import main
from hms.boot.cli.cells import written_time
from hms.errors.catalogue import BackupRefused, MessageFormatError, NodeStillStopping
from hms.history.backups import backup_chain, backup_creation, backup_restoration
from hms.history.backups.backup_chain import backups_in, holding, recovered, verify
from hms.history.backups.backup_manifest import read_manifest, write_manifest
from hms.history.backups.backup_restoration import restore
from hms.history.backups.shipped_mark import MARK, read_mark
from hms.history.events import COLUMNS
from hms.history.scan import plan, read_part
from hms.history.scope import Scope
from hms.store.journal.store_examination import examine
from hms.testing import nodes
from hms.testing.nodes import TestNode
from tests.acceptance.global_queue_rig import await_up
from tests.support.secured import document, secured_node
from tests.support.waiting import wait_until

RESTORES = int(os.environ.get("HMS_RESTORES", "2"))
SEED = int(os.environ.get("HMS_SEED", str(random.randrange(1 << 32))))
NODE = {
    "segment_bytes": 1 << 20,
    "max_transaction_bytes": 1 << 18,
    "max_message_bytes": 1 << 17,
}
CONFIG = {
    "node": {"N1": NODE},
    "alerts": {"backup_overdue_s": 0.2, "ship_lag_s": 0.2},
    "hms": {"queue": {"orders": {}, "late": {"redelivery_limit": 1}}},
}
CLUSTER = {
    "hms": {"queue": {"orders": {"GLOBAL": "Y", "GQTHR": 1, "GQFULL": 0}}},
    "svrgroup": {
        "g1": {"NODENAME": "node1", "HMSINDEX": 1},
        "g2": {"NODENAME": "node2", "HMSINDEX": 2},
    },
}
FROM = "$RestoredFrom"
NODE_UID_COLUMNS = ("offset", "event", "message_id", "destination")
COMES = ("sent", "forwarded")
GOES = ("acknowledged", "expired", "dead_lettered", "purged", "moved", "discarded")


class _Traffic:
    """Sends and receives until it is stopped; ids of all that was sent."""

    def __init__(self, address):
        self.ids, self.faults, self._is_over = [], [], threading.Event()
        self._address = address
        self._threads = [threading.Thread(target=one) for one in (self._send, self._receive)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
        assert self.faults == []

    def _guarded(self, work):
        try:
            with hms.connect(self._address) as connection, connection.session() as session:
                while not self._is_over.is_set():
                    work(session)
        except Exception as fault:  # noqa: BLE001 - told by the test
            self.faults.append(fault)

    def _send(self):
        def work(session):
            for queue in ("orders", "late"):
                producer = session.producer(queue)
                receipts = producer.send_many([hms.Message(os.urandom(6000)) for _ in range(20)])
                self.ids += [one.message_id for one in receipts]
                producer.close()

        self._guarded(work)

    def _receive(self):
        def work(session):
            consumer = session.consumer("orders", prefetch=5)
            for _ in range(15):
                consumer.receive(timeout_s=0.5)
            consumer.close()

        self._guarded(work)

    def more(self, count):
        """Wait until so many more were sent."""
        wanted = len(self.ids) + count
        wait_until(lambda: self.faults or len(self.ids) >= wanted, 60)
        assert not self.faults


def command(node, *words, code=0):
    """What hms backup prints, as data."""
    line = ["backup", *map(str, words), "--config", str(node.config_file), "--json"]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == code, f"{done.output} {done.exception}"
    return json.loads(done.stdout) if not code else f"{done.output} {done.exception}"


def books_at(store, lsn):
    """The ids that wait at each queue, as the log of the node itself tells up to a number."""
    waiting = {"orders": set(), "late": set()}
    for part in plan(store, Scope()):
        for batch in read_part(part, Scope(), NODE_UID_COLUMNS):
            for event in batch:
                if event.offset > lsn or event.destination not in waiting:
                    continue
                if event.event in COMES:
                    waiting[event.destination].add(event.message_id)
                elif event.event in GOES:
                    waiting[event.destination].discard(event.message_id)
    return waiting


def books_by_spark(rows, moments):
    """The same as books_at for each moment, out of a DataFrame of the whole history: in one go."""
    from pyspark.sql import functions

    col = functions.col
    known = functions.when(col("event").isin(*COMES), 1).when(col("event").isin(*GOES), -1)
    wanted = rows.sparkSession.createDataFrame([(lsn,) for lsn in set(moments)], "moment bigint")
    left = (
        rows.where(col("destination").isin("orders", "late"))
        .withColumn("step", known)
        .where(col("step").isNotNull())
        .join(functions.broadcast(wanted), col("offset") <= col("moment"))
        .groupBy("moment", "destination", "message_id")
        .agg(functions.sum("step").alias("there"))
        .where(col("there") != 0)
        .collect()
    )
    books = {lsn: {"orders": set(), "late": set()} for lsn in moments}
    for row in left:
        assert row["there"] == 1, row
        books[row["moment"]][row["destination"]].add(row["message_id"])
    return books


@pytest.fixture(scope="module")
def history(made, spark):
    """The history of the node that was backed up, in Spark."""
    _, folder, _, _ = made
    names = ", ".join(f"{name} {COLUMNS[name]}" for name in NODE_UID_COLUMNS)
    return spark.read.format("hms").schema(names).load(str(folder / "store"))


def books_of(folder, node_uid):
    """The same of a store, recovered."""
    state = recovered(folder, node_uid, CronCalendar()).state
    return {
        name: {f"{m.id:012x}" for m in state.queues[name].line.everything()}
        for name in ("orders", "late")
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A node that worked while three backups of it were made: a full one and two that follow."""
    folder = tmp_path_factory.mktemp("backups")
    with hms.testing.node(store=folder / "store", config=CONFIG) as node:
        with _Traffic(node.address) as traffic:
            traffic.more(300)
            first = command(node, "create", "--to", folder / "kept")
            traffic.more(300)
            command(node, "create", "--to", folder / "kept", "--since", "latest")
            traffic.more(300)
            command(node, "create", "--to", folder / "kept", "--since", "latest")
            while not list((folder / "store").glob("*.pinned")):
                traffic.more(100)
            command(node, "create", "--to", folder / "whole")
            for full_every in ("1d", "1d", "1d", "0s"):
                traffic.more(100)
                words = ["--rounds", 1, "--full-every", full_every]
                command(node, "ship", "--to", folder / "shipped", *words)
        for alert in ("backup_overdue", "ship_lag"):
            wait_until(lambda alert=alert: f"alert {alert} begins" in node.log, 60)
        node.stop()
        yield node, folder, traffic, first


def test_segments_behind_the_log_are_part_of_a_backup(made, tmp_path):
    """What waits for long lies in segments that are pinned, and not written again."""
    _, folder, _, _ = made
    (whole,) = backups_in(folder / "whole")
    assert list(whole.glob("*.pinned"))

    done = restore(whole, tmp_path / "new", CronCalendar())

    uid = read_manifest(whole).node_uid
    assert books_of(tmp_path / "new", uid) == books_at(folder / "store", done.lsn)
    for pinned in whole.glob("*.pinned"):
        pinned.unlink()
    with pytest.raises(BackupRefused, match="the file is missing"):
        verify(whole, CronCalendar())


def test_a_segment_that_was_sealed_early_takes_no_more_than_it_has(tmp_path):
    """Each backup seals one: shipped every minute, each would bring a whole segment of zeros."""
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as node:
        for number in range(4):
            with hms.connect(node.address) as connection, connection.session() as session:
                session.producer("late").send(b"%d" % number)
            last = command(node, "create", "--to", tmp_path / "kept")
        sizes = [file.stat().st_size for file in Path(last["backup"]).glob("*.log")]
        command(node, "verify", tmp_path / "kept")
        command(node, "restore", tmp_path / "kept", "--to", tmp_path / "restored")
    assert len(sizes) == 4
    assert max(sizes) < NODE["segment_bytes"] / 8
    with (
        hms.testing.node(store=tmp_path / "restored", config=CONFIG) as node,
        hms.connect(node.address) as connection,
        connection.session() as session,
    ):
        found = [message.body for message in session.browser("late", oldest_first=True)]
    assert found == [b"0", b"1", b"2", b"3"]


def test_what_the_log_lets_go_of_meanwhile_is_copied_out_of_the_history(tmp_path, monkeypatch):
    """A copy that takes some seconds of a busy node began anew five times, and was refused."""
    segments, seals = backup_creation._segments, []

    def late(store, *which):
        found = segments(store, *which)
        seals.append(found[-1].number)
        wait_until(lambda: not all(one.file.exists() for one in found), 60)
        return found

    monkeypatch.setattr(backup_creation, "_segments", late)
    store = tmp_path / "store"
    with hms.testing.node(store=store, config=CONFIG) as node:
        with _Traffic(node.address) as traffic:
            traffic.more(300)
            command(node, "create", "--to", tmp_path / "kept")
        done = command(node, "restore", tmp_path / "kept", "--to", tmp_path / "new")
    (kept,) = backups_in(tmp_path / "kept")
    assert len(seals) == 1
    assert books_of(tmp_path / "new", read_manifest(kept).node_uid) == books_at(store, done["lsn"])


def test_what_is_shipped_often_fills_no_history(tmp_path):
    """Every minute a segment of a few records: each kept its whole size in the history, 64 MiB."""
    rounds = 20
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as node:
        for number in range(rounds):
            with hms.connect(node.address) as connection, connection.session() as session:
                session.producer("orders").send(b"%d" % number)
                assert session.consumer("orders").receive(60) is not None
                session.producer("late").send(b"%d" % number)
            command(node, "ship", "--to", tmp_path / "kept", "--rounds", 1)
        wait_until(lambda: len(list((tmp_path / "store").glob("*.history"))) > rounds // 2)
        sizes = [file.stat().st_size for file in (tmp_path / "store").glob("*.history")]
        with hms.connect(node.address) as connection:
            said = connection.administer("metrics.show")["store"]
        command(node, "verify", tmp_path / "kept")
        done = command(node, "restore", tmp_path / "kept", "--to", tmp_path / "restored")
    shipped = [file.stat().st_size for file in (tmp_path / "kept").glob("*/*.log")]
    assert max(sizes + shipped) < NODE["segment_bytes"] / 8
    assert said["history_bytes"] <= sum(sizes) + NODE["segment_bytes"]
    assert examine(tmp_path / "store").verdict != "damaged"
    events = [e for part in plan(tmp_path / "store", Scope()) for batch in read_part(
        part, Scope(), NODE_UID_COLUMNS) for e in batch]  # fmt: skip
    assert sum(one.event == "sent" for one in events) == 2 * rounds
    assert done["counts"]["queue:late"] == rounds
    with (
        hms.testing.node(store=tmp_path / "restored", config=CONFIG) as node,
        hms.connect(node.address) as connection,
        connection.session() as session,
    ):
        found = [message.body for message in session.browser("late", oldest_first=True)]
    assert found == [b"%d" % number for number in range(rounds)]


@pytest.mark.parametrize("mode", ["open", "secured", "logins"])
def test_a_round_of_shipping_in_which_nothing_was_written_leaves_the_log_alone(tmp_path, mode):
    """An idle night: each round sealed a segment and made a backup of what sealing had written.
    That somebody logged in, as each round does, is no news."""
    is_audited = mode == "logins"
    made = (
        secured_node(tmp_path, document(audit_logins=is_audited), CONFIG)
        if mode != "open"
        else hms.testing.node(store=tmp_path / "store", config=CONFIG)
    )
    to, beside = tmp_path / "kept", tmp_path / "beside"

    def shipped(folder=to):
        return command(node, "ship", "--to", folder, "--rounds", 1)

    def send(body):
        with hms.connect(node.address) as connection, connection.session() as session:
            session.producer("late").send(body)

    def log():
        with hms.connect(node.address) as connection:
            said = connection.administer("status")
        return said["segments"], 0 if is_audited else said["last_lsn"]

    def leaves_the_log_alone(*folders):
        """Whether nothing was new in three rounds: what a seal lets the node tidy up is shipped."""
        before = log(), [backups_in(folder) for folder in folders]
        rounds = [shipped(folder)["new"] for _ in range(3) for folder in folders]
        return not any(rounds) and before == (log(), [backups_in(folder) for folder in folders])

    with made as node:
        send(b"0")
        full = shipped()
        assert (full["new"], full["base"]) == (True, "")
        wait_until(lambda: "alert ship_lag begins" in node.log, 60)
        wait_until(lambda: leaves_the_log_alone(to), 60)
        rounds = []
        wait_until(lambda: rounds.append(shipped()) or not rounds[-1]["new"], 60)
        name, same = backups_in(to)[-1], rounds[-1]
        assert (same["backup"], same["bytes"], same["why"]) == (str(name), 0, "")
        mark = read_mark(to)
        assert (mark.backup, mark.lsn) == (name.name, read_manifest(name).until_lsn - 1)
        assert shipped()["new"] is False
        assert read_mark(to).at_ms > mark.at_ms, "that nothing was written is known for longer"

        send(b"1")
        follows = shipped()
        assert (follows["new"], follows["base"]) == (True, name.name)
        assert shipped(beside)["new"] is True
        wait_until(lambda: leaves_the_log_alone(to, beside), 60)  # neither has news of the other

        node.kill()
        node.boot()
        send(b"2")
        assert shipped()["new"] is True
        wait_until(lambda: leaves_the_log_alone(to), 60)
        soon = datetime.now(UTC) + timedelta(minutes=1)  # a node that was killed is some s ahead
        command(node, "restore", to, "--to", tmp_path / "restored", "--until", soon.isoformat())
        command(node, "verify", to)
    books = books_of(tmp_path / "restored", read_manifest(backups_in(to)[-1]).node_uid)
    assert len(books["late"]) == 3


def test_a_restore_tells_up_to_when_nothing_is_missing(made, tmp_path):
    """As far as the mark of shipping goes; a mark that cannot be read takes nothing else with it,
    and one that cannot be written is told."""
    node, folder, _, _ = made
    to = tmp_path / "shipped"
    shutil.copytree(folder / "shipped", to)
    told = command(node, "restore", to, "--to", tmp_path / "whole")["complete_until"]
    assert told == written_time(read_mark(to).at_ms)
    (to / MARK).write_text("{")
    assert "complete_until" not in command(node, "restore", to, "--to", tmp_path / "again")
    (tmp_path / "kept" / MARK).mkdir(parents=True)
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as another:
        assert MARK in command(another, "ship", "--to", tmp_path / "kept", "--rounds", 1, code=1)


def test_backups_are_listed_and_verified(made):
    """Each with the one that it follows; the counts are those of its log."""
    node, folder, _, first = made

    rows = command(node, "list", folder / "kept")
    full, *others = backups_in(folder / "kept")

    assert [one["base"] for one in rows] == ["", full.name, others[0].name]
    assert first["backup"] == str(full)
    for path, row in zip(backups_in(folder / "kept"), rows, strict=True):
        assert command(node, "verify", path)["waiting"] == row["waiting"]
        manifest = read_manifest(path)
        books = books_at(folder / "store", manifest.until_lsn - 1)
        counts = {name: manifest.counts[f"queue:{name}"] for name in books}
        assert counts == {name: len(ids) for name, ids in books.items()}


def ids_given(store, count):
    """Of messages that are sent to a node with this store."""
    with (
        hms.testing.node(store=store, config=CONFIG) as node,
        hms.connect(node.address) as connection,
        connection.session() as session,
    ):
        sent = session.producer("orders").send_many([hms.Message(b"new")] * count)
        return {one.message_id for one in sent}


@pytest.mark.timeout(600 + 30 * RESTORES)
def test_a_store_restored_at_any_moment_has_what_the_log_says(made, history, tmp_path):
    """At random sequence numbers, where Spark says so too; no id that the node or one of the other
    stores has given is given again."""
    _, folder, traffic, _ = made
    full, *_, last = backups_in(folder / "kept")
    first_lsn, end_lsn = read_manifest(full).until_lsn - 1, read_manifest(last).until_lsn - 1
    chosen = random.Random(SEED)
    moments = [first_lsn, end_lsn, *(chosen.randint(first_lsn, end_lsn) for _ in range(RESTORES))]
    found, given = {}, set(traffic.ids)
    for at, lsn in enumerate(moments):
        done = restore(last, tmp_path / f"new{at}", CronCalendar(), until_lsn=lsn)

        uid = read_manifest(last).node_uid
        books = books_of(tmp_path / f"new{at}", uid)
        assert books == books_at(folder / "store", done.lsn), SEED
        found[done.lsn] = books
        assert lsn - 1024 < done.lsn <= lsn
        assert done.first_id > int(max(traffic.ids), 16) + (1 << 31)
        ids = ids_given(tmp_path / f"new{at}", 40)
        assert given.isdisjoint(ids)
        given |= ids
    assert found == books_by_spark(history, [*found]), SEED


def test_a_node_goes_on_with_a_restored_store_and_says_what_comes_again(made, tmp_path):
    """Redelivered, under its id; a new message has an id of its own."""
    node, folder, traffic, first = made
    last = backups_in(folder / "kept")[-1]
    done = command(node, "restore", last, "--to", tmp_path / "new", "--until", first["lsn"])
    books = books_at(folder / "store", done["lsn"])
    until_lsn = read_manifest(last).until_lsn - 1
    later = books_at(folder / "store", until_lsn)

    assert done["counts"]["queue:orders"] == len(books["orders"])
    gone = {n for n in later["late"] if n not in books["late"]}
    assert done["gone"]["queue:late"] == len(gone)
    assert done["come_again"]["queue:orders"] >= len(books["orders"] - later["orders"])
    with (
        hms.testing.node(store=tmp_path / "new", config=CONFIG) as restored,
        hms.connect(restored.address) as connection,
        connection.session() as session,
    ):
        receipt = session.producer("orders").send(b"new")
        came = session.consumer("late").receive(timeout_s=60)
        with session.browser("orders", oldest_first=True) as browser:
            found = {message.message_id for message in browser}
    assert receipt.message_id not in traffic.ids
    assert int(receipt.message_id, 16) >= done["first_id"]
    assert came.redelivered
    assert came.message_id in books["late"]
    assert found == books["orders"] | {receipt.message_id}


def test_a_message_of_a_backup_names_it_for_as_long_as_it_is_there(tmp_path):
    """Who handles it may look whether that was done before: at a consumer, in a browser, as a dead
    letter, and after a further boot."""
    with (
        hms.testing.node(store=tmp_path / "store", config=CONFIG) as node,
        hms.connect(node.address) as connection,
        connection.session() as session,
    ):
        producer = session.producer("late")
        first, second = (producer.send(b"x").message_id for _ in range(2))
        command(node, "create", "--to", tmp_path / "kept")
        assert session.consumer("late").receive(timeout_s=60).properties.get(FROM) is None
    (backup,) = backups_in(tmp_path / "kept")
    done = command(node, "restore", backup, "--to", tmp_path / "new")
    at = datetime.fromtimestamp(done["at_ms"] / 1000, UTC)
    said = f"{backup.name} {at.isoformat(timespec='milliseconds')}"

    with (
        hms.testing.node(store=tmp_path / "new", config=CONFIG) as restored,
        hms.connect(restored.address) as connection,
        connection.session(transacted=True) as session,
    ):
        with connection.session() as another:
            new = another.producer("late").send(b"new").message_id
        with session.browser("late", oldest_first=True) as browser:
            shown = {one.message_id: one.properties.get(FROM) for one in browser}
        assert shown == {first: said, second: said, new: None}
        with pytest.raises(hms.SelectorSyntaxError, match="belongs to a delivery"):
            session.consumer("late", selector=f"{FROM} IS NULL")
        consumer = session.consumer("late")
        came = [consumer.receive(timeout_s=60) for _ in range(3)]
        assert {one.message_id: one.properties.get(FROM) for one in came} == shown
        assert [one.redelivered for one in came] == [True, True, False]
        session.rollback()
    with (
        hms.testing.node(store=tmp_path / "new", config=CONFIG) as again,
        hms.connect(again.address) as connection,
        connection.session() as session,
    ):
        consumer = session.consumer("HMS.DLQ")
        letters = [consumer.receive(timeout_s=60) for _ in range(3)]
    assert {one.message_id: one.properties.get(FROM) for one in letters} == shown


def test_other_nodes_take_a_restored_node_for_a_new_one(tmp_path):
    """It counts its moves from the backup on again. A node that remembered answers to the numbers
    behind that said that it had the messages, and they were gone."""
    first = TestNode(tmp_path, tmp_path / "store", CLUSTER, (), (), (), 2)
    first, second = first.nodes
    try:
        for one in (first, second):
            one.boot()
        await_up(first)
        with hms.connect(first.address) as connection, connection.session() as session:
            command(first, "create", "--node", "node1", "--to", tmp_path / "kept")
            session.producer("orders").send(b"before")
        with hms.connect(second.address) as connection, connection.session() as session:
            consumer = session.consumer("orders")
            assert consumer.receive(timeout_s=60).body == b"before"
            first.stop()
            (tmp_path / "store").rename(tmp_path / "lost")
            command(first, "restore", tmp_path / "kept", "--to", tmp_path / "store")
            first.boot(warm=True)
            await_up(first)
            with hms.connect(first.address) as other, other.session() as sending:
                sending.producer("orders").send(b"after")
            assert consumer.receive(timeout_s=60).body == b"after"
    finally:
        for one in (first, second):
            if one.is_running:
                one.kill()


def test_what_is_shipped_can_be_restored_up_to_its_last_round(made, tmp_path):
    """Each round follows the one before, and is counted when somebody verifies it."""
    node, folder, _, _ = made
    full, second, third, again = backups_in(folder / "shipped")
    rows = command(node, "list", folder / "shipped")
    assert [row["base"] for row in rows] == ["", full.name, second.name, ""]
    assert [row["verified"] for row in rows] == [True, False, False, True]
    end_lsn = read_manifest(third).until_lsn - 1

    done = restore(third, tmp_path / "new", CronCalendar(), until_lsn=end_lsn)

    books = books_at(folder / "store", end_lsn)
    assert books_of(tmp_path / "new", read_manifest(third).node_uid) == books
    assert (done.lsn, done.gone) == (end_lsn, {})
    assert command(node, "verify", third, "--deep")["waiting"] == sum(done.counts.values())
    assert command(node, "verify", again)["waiting"] > 0


def test_old_backups_go_with_all_that_follow_them(made, tmp_path):
    """Never the last full one, and none is left that needs one that is gone."""
    node, folder, _, _ = made
    kept = tmp_path / "kept"
    shutil.copytree(folder / "shipped", kept)
    full, second, third, again = backups_in(kept)
    going = [full.name, second.name, third.name]

    assert command(node, "prune", kept, "--dry-run")["would_remove"] == going
    assert command(node, "prune", kept, "--older-than", "1d")["removed"] == []
    assert backups_in(kept) == [full, second, third, again]
    assert command(node, "prune", kept, "--keep", 2)["removed"] == []
    assert command(node, "prune", kept)["removed"] == going
    assert backups_in(kept) == [again]
    assert command(node, "verify", again)


def test_a_deep_look_reads_each_message(made, monkeypatch):
    """A body that no client could read is found before it is needed."""
    _, folder, _, _ = made
    (_, _, last, _) = backups_in(folder / "shipped")
    seen = []

    def spoilt(head):
        seen.append(head)
        if len(seen) > 100:
            raise MessageFormatError(detail="spoilt")

    monkeypatch.setattr(backup_chain, "decode_head", spoilt)
    verify(last, CronCalendar())
    assert seen == []
    with pytest.raises(BackupRefused, match=r"message [0-9a-f]{12} cannot be read"):
        verify(last, CronCalendar(), is_deep=True)


def test_a_time_is_a_moment_too(made, tmp_path):
    """What was sent later is not there."""
    _, folder, _, _ = made
    full, *_, last = backups_in(folder / "kept")
    until_ms = read_manifest(full).created_ms

    done = restore(last, tmp_path / "new", CronCalendar(), until_ms=until_ms)

    assert done.at_ms <= until_ms
    assert read_manifest(full).until_lsn - 1 <= done.lsn < read_manifest(last).until_lsn


def test_a_flipped_bit_in_any_file_is_named(made, tmp_path):
    """Of the manifest too; and a file more or less."""
    _, folder, _, _ = made
    shutil.copytree(folder / "kept", tmp_path / "kept")
    last = backups_in(tmp_path / "kept")[-1]
    files = [p for p in sorted((tmp_path / "kept").rglob("*")) if p.is_file()]
    assert len(files) >= 9
    for path in files:
        data = bytearray(path.read_bytes())
        at = random.Random(SEED + len(data)).randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(BackupRefused) as caught:
            verify(last, CronCalendar())
        assert str(path) in str(caught.value), SEED
        path.write_bytes(data)
    (last / "more").write_bytes(b"x")
    with pytest.raises(BackupRefused, match="more"):
        verify(last, CronCalendar())
    (last / "more").unlink()
    assert verify(last, CronCalendar())
    next(path for path in files if path.suffix == ".log").unlink()
    with pytest.raises(BackupRefused, match="the file is missing"):
        restore(last, tmp_path / "new", CronCalendar())
    assert not (tmp_path / "new").exists()


def test_a_moment_before_a_full_backup_is_found_in_another_one(made, tmp_path):
    """The error named the newest full backup, which is not the one that it takes."""
    node, folder, _, _ = made
    *_, earlier, newest = backups_in(folder / "shipped")
    before, after = read_manifest(earlier), read_manifest(newest)
    assert before.base
    assert not after.base
    moments = [("until_lsn", before.until_lsn - 1), ("until_ms", before.created_ms)]

    for name, moment in moments:
        with pytest.raises(BackupRefused, match=f"{earlier} has it"):
            restore(newest, tmp_path / "new", CronCalendar(), **{name: moment})
    first = read_manifest(backups_in(folder / "shipped")[0]).until_lsn - 1
    for moment in ({"until_ms": 1}, {"until_lsn": 1}):
        with pytest.raises(BackupRefused, match=rf"none .* has it; the earliest is {first}, of 20"):
            restore(newest, tmp_path / "new", CronCalendar(), **moment)
    assert list(tmp_path.iterdir()) == []

    words = "restore", folder / "shipped", "--to", tmp_path / "new", "--until", before.until_lsn - 1
    assert command(node, *words)["lsn"] == before.until_lsn - 1
    last_ms = restore(newest, tmp_path / "newest", CronCalendar()).at_ms
    assert last_ms < after.created_ms
    assert holding(earlier, at_ms=last_ms) == newest
    assert holding(newest, at_ms=last_ms - 1) == earlier


def test_what_cannot_be_restored_writes_nothing(made, tmp_path, monkeypatch):
    """A directory in use, a moment before the first backup, too little space."""
    node, folder, _, _ = made
    full, *_, last = backups_in(folder / "kept")
    before = sorted(p.name for p in (folder / "store").iterdir())

    with pytest.raises(BackupRefused, match="store of a node"):
        restore(last, folder / "store", CronCalendar())
    said = command(node, "restore", last, "--to", tmp_path / "new", "--until", "5", code=1)
    assert f"is not between {read_manifest(full).until_lsn - 1}" in said
    with pytest.raises(BackupRefused, match="before the full backup"):
        restore(last, tmp_path / "new", CronCalendar(), until_ms=1)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BackupRefused, match="1000 are free"):
        restore(last, tmp_path / "new", CronCalendar())

    assert list(tmp_path.iterdir()) == []
    assert sorted(p.name for p in (folder / "store").iterdir()) == before


def test_a_full_disk_ends_a_backup_and_leaves_nothing(tmp_path, monkeypatch):
    """The node goes on, and the next backup is made."""
    copy = backup_creation._copy
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            session.producer("orders").send(b"one")

        def full(source, target, *_):
            target.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(backup_creation, "_copy", full)
        said = command(node, "create", "--to", tmp_path / "kept", code=1)
        assert "the disk is full" in said
        assert list((tmp_path / "kept").iterdir()) == []
        monkeypatch.setattr(backup_creation, "_copy", copy)
        assert command(node, "create", "--to", tmp_path / "kept")["waiting"] == 1


def test_what_a_killed_backup_has_left_goes_with_the_next_one(tmp_path):
    """Each night's left a copy of the log there, until the disk was full."""
    kept = tmp_path / "kept"
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            session.producer("orders").send_many([os.urandom(100_000)] * 100)
        words = ["backup", "create", "--to", kept, "--config", node.config_file, "--rate", "1"]
        killed = subprocess.Popen([sys.executable, "-m", "hms.boot", *map(str, words)])
        wait_until(lambda: [*kept.glob(".part-*/*.log")], 60)
        killed.send_signal(signal.SIGSTOP)
        copied = {*kept.iterdir()}
        command(node, "create", "--to", kept)
        assert copied <= {*kept.iterdir()}  # that one is being made
        killed.kill()
        killed.wait()
        command(node, "create", "--to", kept)
    assert [path for path in kept.iterdir() if path.name.startswith(".")] == []
    assert len(backups_in(kept)) == 2


def test_the_security_file_is_in_a_backup_when_it_is_asked_for(tmp_path):
    """Who has lost the disk has lost users and roles too."""
    kept = tmp_path / "kept"
    with secured_node(tmp_path, document(clerk=["view node:*"])) as node:
        for words in ((), ("--with-secrets", "--since", "latest")):
            command(node, "create", "--to", kept, *words)
        command(node, "ship", "--to", tmp_path / "shipped", "--rounds", 1, "--with-secrets")
    without, full = backups_in(kept)
    assert not (without / "security.toml").exists()
    assert (without / "hms.conf").exists()
    for backup in (full, *backups_in(tmp_path / "shipped")):
        copy = backup / "security.toml"
        assert copy.read_bytes() == (tmp_path / "security.toml").read_bytes()
        assert copy.stat().st_mode & 0o777 == 0o600
        verify(backup, CronCalendar())
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as node:
        said = command(node, "create", "--to", kept, "--with-secrets", code=2)
    assert "names no security file" in said


def test_a_trial_restore_boots_what_was_backed_up_and_leaves_nothing_behind(tmp_path):
    """Messages that wait, are delayed, wait in a subscription, or are retained."""
    config = {**CONFIG, "hms": {**CONFIG["hms"], "topic": {"news": {}, "news/kept": {}}}}
    kept = tmp_path / "kept"
    with hms.testing.node(store=tmp_path / "store", config=config) as node:
        with hms.connect(node.address, client_id="c") as connection:
            session = connection.session()
            session.subscriber("news", durable="daily")
            session.producer(hms.Topic("news")).send(b"news")
            session.producer(hms.Topic("news/kept")).send(b"kept", retain=True)
            producer = session.producer("orders")
            producer.send_many([b"x"] * 10)
            producer.send(b"later", delay_s=3600)
            connection.close()
        command(node, "create", "--to", kept)
    before = sorted(kept.iterdir())
    manifest = read_manifest(before[-1])
    counts = manifest.counts
    assert (counts["queue:orders"], counts["subscription:daily@news"]) == (11, 1)

    for words in ((), ("--until", manifest.until_lsn - 1), ("--to", tmp_path)):
        said = command(node, "restore", kept, "--check", *words)
        assert (said["differs"], said["waiting"]) == ({}, 13)
    assert sorted(kept.iterdir()) == before
    assert not list(tmp_path.glob(".restore*"))


def test_a_trial_restore_boots_a_node_of_a_domain_with_a_name_of_its_own(tmp_path):
    """The number that the store has follows from the domain's name."""
    kept = tmp_path / "kept"
    with hms.testing.node(tmp_path / "store", {**CONFIG, "domain": {"name": "airline"}}) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            session.producer("orders").send(b"x")
        command(node, "create", "--to", kept)
        said = command(node, "restore", kept, "--check")
    assert (said["differs"], said["waiting"]) == ({}, 1)


def test_a_backup_that_does_not_say_its_domain_is_tried_with_that_which_fits(tmp_path, monkeypatch):
    """Backups of an older version could not be tried: HMS-5006, the store of another node."""
    kept = tmp_path / "kept"
    with hms.testing.node(tmp_path / "store", {**CONFIG, "domain": {"name": "airline"}}) as node:
        command(node, "create", "--to", kept)
        (backup,) = kept.iterdir()
        write_manifest(backup, msgspec.structs.replace(read_manifest(backup), domain=""))
        assert command(node, "restore", kept, "--check")["differs"] == {}  # as hms.conf has it
    monkeypatch.chdir(tmp_path)

    def trial(*words):
        done = CliRunner().invoke(main, ["backup", "restore", str(kept), "--check", *words])
        return done.exit_code, done.output

    code, said = trial()
    assert code == 1
    assert "say it with --domain" in said
    code, said = trial("--domain", "shop")
    assert code == 1
    assert "'shop' is not the domain of its node" in said
    assert trial("--domain", "airline")[0] == 0


def test_a_trial_restore_names_a_place_that_has_another_number(tmp_path, monkeypatch):
    """What was restored, and what the node found."""
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            session.producer("orders").send(b"x")
        command(node, "create", "--to", tmp_path / "kept")
    counted = backup_restoration.count_places
    more = {"queue:orders": 3}
    monkeypatch.setattr(backup_restoration, "count_places", lambda one: counted(one) | more)
    words = ["backup", "restore", str(tmp_path / "kept"), "--check"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 3, done.output
    assert "queue:orders: 3 restored, 1 after the boot" in done.output
    done = CliRunner().invoke(main, [*words, "--to", str(tmp_path / "nowhere")])
    assert "--to names another place" in done.output


def test_a_trial_whose_node_does_not_boot_or_end_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    """As an error with a number, whatever Python says: it is read by who is not at the desk."""
    kept = tmp_path / "kept"
    with hms.testing.node(store=tmp_path / "store", config=CONFIG) as node:
        with hms.connect(node.address) as connection, connection.session() as session:
            session.producer("orders").send(b"x")
        command(node, "create", "--to", kept)
    words = ["backup", "restore", str(kept), "--check", "--json"]
    before = sorted(kept.iterdir())

    def trial():
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 1, done.output
        assert sorted(kept.iterdir()) == before
        return done.output

    settings = restored_boot._settings
    with monkeypatch.context() as patched:
        wrong = {"hms": {"queue": {"orders": {"max_messages": -1}}}}
        patched.setattr(restored_boot, "_settings", lambda *about: settings(*about) | wrong)
        said = trial()
        assert "HMS-8096" in said
        assert "max_messages" in said
    kill = nodes.TestNode.kill

    def kill_late(self):
        kill(self)
        raise NodeStillStopping(node=self.name, timeout_s=90, pid=1)

    monkeypatch.setattr(nodes.TestNode, "kill", kill_late)
    assert "HMS-8005" in trial()


def test_a_store_is_restored_somewhere(tmp_path):
    """Without --to there is only the trial."""
    done = CliRunner().invoke(main, ["backup", "restore", str(tmp_path)])
    assert done.exit_code == 2
    assert "--to" in done.output
