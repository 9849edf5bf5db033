"""A store that two machines share: a standby takes it over, and the old owner confirms nothing.

Two processes with folders of their own and one store, on one machine. HMS_HA=full: 100 kills.
"""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import hms
from hms.testing.nodes import TestNode
from tests.acceptance.ha_rig import QUEUES, WAIT_S, Sender, bodies, connect, ended, hms_command
from tests.acceptance.test_clock_steps import HOUR, WallClock, waiting
from tests.support.postgres import postgres_server
from tests.support.waiting import wait_until

KILLS = 100 if os.environ.get("HMS_HA") == "full" else 2
LEASE_S = 6
LONG_S = 30
"""A lease whose end nobody waits for: on one machine the lock tells that an owner was killed."""


def config(**keys):
    """Of one of the machines."""
    return {"hms": QUEUES, "node": {"node1": {"shared": True, "lease_s": LEASE_S, **keys}}}


@contextmanager
def machines(folder, *names, **keys):
    """So many machines with one store."""
    made = []
    for name in names:
        own = folder / name
        own.mkdir()
        made.append(TestNode(own, folder / "store", config(**keys), (), (), ()))
    with ended(made):
        yield made


def generation(*nodes):
    with connect(*nodes) as connection:
        said = connection.administer("status")
        assert said["role"] == "active"
        return said["generation"]


@pytest.mark.timeout(30 * KILLS + 60)
def test_a_standby_takes_over_again_and_again_and_nothing_is_lost_or_doubled(
    tmp_path, record_property
):
    """Killed at any instant: every confirmed message is there once, in order."""
    with machines(tmp_path, "a", "b", lease_s=LONG_S) as nodes:
        active, standby = nodes
        active.boot()
        with pytest.raises(hms.BootFailed, match=f"HMS-5001.*process {active.pid}"):
            standby.boot()
        standby.boot(standby=True)
        sender = Sender(nodes)
        for _ in range(KILLS):
            sender.wait_for(20)
            active.kill()
            sender.wait_for(1)
            active.boot(standby=True)
            active, standby = standby, active
        sender.end()
        record_property("figures", {"kills": KILLS, "confirmed": len(sender.confirmed)})

        assert generation(*nodes) == 2 + KILLS - 1
        assert bodies(*nodes) == sender.confirmed


def test_an_owner_that_goes_on_after_a_pause_confirms_nothing(tmp_path):
    """It is stopped past the lease, with a client still connected, and continued."""
    with machines(tmp_path, "a", "b") as nodes:
        active, standby = nodes
        active.boot()
        standby.boot(standby=True)
        sender = Sender(nodes)
        sender.wait_for(20)
        with connect(active) as old, old.session() as session:
            producer = session.producer("orders")
            producer.send(b"before")
            active.pause()
            late = producer.send_async(b"late")
            with connect(standby) as connection:
                assert connection.administer("status")["role"] == "active"
            active.resume()

            assert active.wait() == 1
            assert "HMS-5020" in active.log
        sender.end()
        # Refused where the owner finds first that its folder is gone: then it is nowhere either.
        assert isinstance(late.exception(WAIT_S), hms.SendInDoubt | hms.StoreFull)

        found = bodies(standby)
        assert [body for body in found if body.isdigit()] == sender.confirmed
        assert [body for body in found if not body.isdigit()] == [b"before"]


def test_an_owner_that_was_booted_as_a_standby_stands_by_again(tmp_path):
    """It was stopped past its lease and replaced; nobody boots it, and it takes over next."""
    with machines(tmp_path, "a", "b") as nodes:
        a, b = nodes
        a.boot()
        b.boot(standby=True)
        a.kill()
        assert generation(b) == 2
        a.boot(standby=True)
        pid = b.pid
        b.pause()
        assert generation(a) == 3
        b.resume()
        wait_until(lambda: not is_active(b), WAIT_S)
        with connect(a) as connection, connection.session() as session:
            session.producer("orders").send(b"kept")
        a.kill()

        assert generation(b) == 4
        assert b.pid == pid
        assert "HMS-5020" in b.log
        assert bodies(b) == [b"kept"]


def test_two_standbys_are_never_both_active(tmp_path):
    """One rename wins; the other goes on waiting, and takes over next."""
    with machines(tmp_path, "a", "b", "c", lease_s=LONG_S) as nodes:
        a, b, c = nodes
        a.boot()
        for one in (b, c):
            one.boot(standby=True)
        for number in (2, 3)[: 1 + (KILLS > 2)]:
            active = next(one for one in nodes if one.is_running and is_active(one))
            active.kill()
            assert generation(*[one for one in nodes if one.is_running]) == number

        assert sum(one.is_running for one in nodes) == 4 - number


def is_active(one):
    """Whether it is not waiting: its role file is there as long as it is."""
    return not (Path(one.config_file).parent / "run" / "node1.standby").exists()


def test_the_commands_of_the_page_boot_two_machines(tmp_path):
    """Hms boot, hms boot --standby, hms status, and hms down as the planned move."""
    with machines(tmp_path, "a", "b", lease_s=LONG_S) as (a, b):
        assert hms_command(a, "boot")[0] == 0
        try:
            code, said = hms_command(b, "boot", "--standby")
            assert (code, "stands by" in said, "generation 1" in said) == (0, True, True), said
            assert '"role": "standby"' in hms_command(b, "status", "--json")[1]
            assert '"state": "standby"' in hms_command(b, "health", "--json")[1]
            assert hms_command(a, "down")[0] == 0
            assert generation(b) == 2
            assert '"role": "active"' in hms_command(b, "status", "--json")[1]
        finally:
            for one in (a, b):
                hms_command(one, "down", "--now")


def test_a_standby_of_a_database_takes_it_over(tmp_path):
    """It waits for the claim of the other one, which was killed."""
    keys = {"shared": False, "database": f"sqlite:{tmp_path / 'store.db'}"}
    with machines(tmp_path, "a", "b", **keys) as (a, b):
        a.boot()
        b.boot(standby=True)
        with connect(a, b) as connection, connection.session() as session:
            session.producer("orders").send(b"once")
            a.kill()
            session.producer("orders").send(b"twice")

        assert bodies(b) == [b"once", b"twice"]


@pytest.mark.parametrize("away_s", [-HOUR, HOUR], ids=["behind", "ahead"])
@pytest.mark.parametrize("kind", ["directory", "database"])
def test_time_and_ids_go_on_at_a_machine_whose_clock_is_wrong(tmp_path, kind, away_s):
    """H17 and H18: by an hour. Nothing that has ten minutes to live expires, nothing is older than
    what was sent before it, no id is given twice; and what is due in 2 s does come."""
    clock = WallClock(tmp_path)
    clock.set(away_s)
    with _kept_in(kind, tmp_path) as (keys, signs), machines(tmp_path, "a", "b", **keys) as (a, b):
        b._prefix = clock.prefix
        a.boot()
        b.boot(standby=True)
        with connect(a, b) as connection, connection.session() as session:
            producer = session.producer("orders", ttl_s=600)
            sent = [producer.send(b"%d" % n).message_id for n in range(3)]
            seen = {signs()}
            wait_until(lambda: seen.add(signs()) or len(seen) > 4, WAIT_S)  # b looks more often
            a.kill()
            sent += [producer.send(b"%d" % n).message_id for n in range(3, 6)]
            session.producer("held").send(b"due", delay_s=2)
            assert session.consumer("held").receive(WAIT_S).body == b"due"
            found = waiting(connection)  # what has expired is gone by then

        assert [one.message_id for one in found] == sent == sorted(set(sent))
        times = [one.timestamp for one in found]
        assert times == sorted(times)
        assert times[-1] - times[0] < HOUR / 2


@contextmanager
def _kept_in(kind, folder):
    """What hms.conf says of such a store, and what shows that its owner lives."""
    if kind == "directory":
        yield {}, lambda: _beat(folder / "store")
        return
    with postgres_server() as server:
        keys = {"database": server.url, "database_lease_s": 3}
        yield keys, lambda: server.ask("SELECT lease_until_ms FROM node1_meta")[0][0]


def _beat(store):
    return next(store.glob("gen.*/BEAT")).read_bytes()


def test_two_processes_try_a_folder_as_two_machines_would(tmp_path):
    """Before a store is put there; beside one that is there. On one machine all holds, and it is
    said that this is no word about two."""
    words = [sys.executable, "-m", "hms.boot", "store", "probe", str(tmp_path), "--peer"]
    words += ["--json", "--count", "10"]
    pair = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    found = [(*one.communicate(timeout=WAIT_S), one.returncode) for one in pair]
    assert [code for _, _, code in found] == [3, 3], found
    told = [json.loads(out) for out, _, _ in found]
    assert {one["role"] for one in told} == {"first", "second"}
    for one in told:
        assert (one["faults"], one["take_over_lost"], one["locks"]) == ([], 0, "hold")
        assert one["take_over_confirmed"] >= 20
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_was_not_shared_is_not_hidden_by_an_empty_one(tmp_path):
    """With shared = true a node began an empty log in gen.1, beside its messages; back, the same. A
    backup that was restored was not seen either. Moved as the error says, they are there."""
    store = tmp_path / "store"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    alone = TestNode(tmp_path / "a", store, {"hms": QUEUES}, (), (), ())
    shared = TestNode(tmp_path / "b", store, config(), (), (), ())
    with ended([alone, shared]):
        alone.boot()
        with connect(alone) as connection, connection.session() as session:
            session.producer("orders").send(b"kept")
        alone.stop()

        with pytest.raises(hms.BootFailed, match=r"HMS-5006.*make the folder gen\.1 in it"):
            shared.boot()
        move(store, store / "gen.1")
        shared.boot()
        with connect(shared) as connection, connection.session() as session:
            session.producer("orders").send(b"shared")
        shared.stop()
        (own,) = store.iterdir()
        with pytest.raises(hms.BootFailed, match=rf"HMS-5006.*what is in {own.name} to it"):
            alone.boot()
        move(own, store)
        own.rmdir()
        alone.boot()

        assert bodies(alone) == [b"kept", b"shared"]


def move(source, to):
    """All that is in a folder, as an operator does."""
    files = list(source.iterdir())
    to.mkdir(exist_ok=True)
    for one in files:
        one.rename(to / one.name)


def test_commands_on_a_store_find_it_where_it_is_shared(tmp_path):
    """They read the folder above, in which there is no log, and a backup failed after half a
    minute."""
    with machines(tmp_path, "a") as (one,):
        one.boot()
        with connect(one) as connection, connection.session() as session:
            session.producer("orders").send(b"in the backup")
        code, said = hms_command(one, "switchover")
        assert (code, "hms down on the machine that has the store" in said) == (1, True), said
        code, said = hms_command(one, "backup", "create", "--to", str(tmp_path / "backups"))
        assert (code, "1 messages wait" in said) == (0, True), said
        one.stop()
        code, said = hms_command(one, "store", "verify")
        assert (code, "is GOOD" in said) == (0, True), said
        code, said = hms_command(one, "store", "version")
        assert (code, "no segments" in said) == (0, False), said
        code, said = hms_command(one, "store", "salvage", "--to", str(tmp_path / "new"), "--yes")
        assert (code, "nothing is dropped" in said) == (0, True), said
