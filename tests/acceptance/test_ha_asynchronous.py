"""An asynchronous replica, in another city: it gets the log, nothing waits for it, and it leads
only when an operator says so. Real processes and a real arbiter."""

import json
import os
import re
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

import hms
from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from hms.testing.toml_text import to_toml
from tests.acceptance.ha_rig import (
    QUEUES,
    WAIT_S,
    begin_copies,
    bodies,
    connect,
    ended,
    hms_command,
    type_switchover,
)
from tests.acceptance.pair_rig import readable
from tests.support.etcd import Etcd
from tests.support.waiting import wait_until

LEASE_S = 3
SMALL = {"segment_bytes": "4 MiB", "max_message_bytes": "1 MiB", "max_transaction_bytes": "1 MiB"}
SENT = 60
"""Messages of 500,000 bytes: more than the machines' sockets hold."""
_groups = count(1)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    """One server for all tests."""
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


@contextmanager
def machines(folder, url, **modes):
    """Replicas of one node with their modes; the first one has the first copy."""
    domain = f"far{next(_groups)}-{os.getpid()}"
    replicas = {
        name: {"address": f"tcp://127.0.0.1:{free_port()}", "mode": mode}
        for name, mode in modes.items()
    }
    made = []
    for name in modes:
        own = folder / name
        own.mkdir()
        config = {
            "domain": {"name": domain},
            "hms": QUEUES,
            "node": {"node1": {"replica": name, "replica_timeout_s": 1, **SMALL}},
            "arbiter": {"kind": "etcd", "endpoints": [url], "lease_s": LEASE_S},
            "replica": replicas,
        }
        made.append(TestNode(own, own / "store", config, (), (), ()))
    begin_copies(made[0])
    with ended(made):
        yield made


def said_by(*nodes):
    """What the replica that leads says of the copies; rows by name."""
    with connect(*nodes) as connection:
        said = connection.administer("status")["replication"]
    return {**said, "rows": {row["replica"]: row for row in said["replicas"]}}


def row_when(nodes, name, is_so):
    """Of that replica, when it is so."""

    def look():
        row = said_by(*nodes)["rows"].get(name)
        return row if row and is_so(row) else None

    return wait_until(look, WAIT_S)


def promoted(one):
    """What an operator is asked, who agrees."""
    words = "replica", "promote", one.folder.name, "--lossy", "--config", str(one.config_file)
    command = [sys.executable, "-m", "hms.boot", *words]
    given = {"input": "y\n", "capture_output": True, "text": True, "timeout": 3 * WAIT_S}
    done = subprocess.run(command, check=False, **given)
    assert (done.returncode, f"{one.folder.name} leads" in done.stdout) == (0, True), done
    return done.stderr


@pytest.mark.timeout(300)
def test_a_copy_far_away_is_waited_for_by_nobody_and_leads_when_an_operator_says_so(tmp_path, etcd):
    """It stands still, and sends go on; both others are killed, and it does not take over; promoted
    it has what it had, and its clients are told what is missing."""
    with machines(tmp_path, etcd.url, a="SYNC", b="SYNC", c="ASYNC") as nodes:
        a, b, c = nodes
        for one in nodes:
            one.boot()
        row = row_when((a, b), "c", lambda row: row["state"] == "IN_SYNC")
        assert (row["mode"], row["is_member"]) == ("ASYNC", False)
        wait_until(lambda: said_by(a, b)["is_protected"], WAIT_S)
        assert said_by(a, b)["members"] == ["a", "b"]
        lost = []
        with connect(*nodes, exception_listener=lost.append) as connection:
            producer = connection.session().producer("orders")
            producer.send(b"at all three")
            row_when((a, b), "c", lambda row: row["lag_bytes"] == 0 and row["lag_s"] == 0)
            code, said = hms_command(a, "switchover", "--to", "c")
            assert (code, "it is ASYNC" in said) == (1, True), said

            c.pause()
            for _ in range(SENT):
                producer.send(os.urandom(500_000))
            row = row_when((a, b), "c", lambda row: row["state"] == "AWAY" and row["lag_s"] > 1)
            assert row["lag_bytes"] > SENT * 250_000
            assert said_by(a, b)["is_protected"]
            for one in (a, b):
                one.kill()
            c.resume()

            said = promoted(c)
            assert re.search(r"needs 1 of a, b; .* it has what was written until 20..-", said), said
            assert "Be sure that a, b do not run" in said
            producer.send(b"goes on")
            wait_until(lambda: any(isinstance(one, hms.ConfirmedLost) for one in lost), WAIT_S)
        (fault,) = (one for one in lost if isinstance(one, hms.ConfirmedLost))
        assert 0 < fault.count <= SENT  # what was on its way when it stood still it may have
        code, said = hms_command(c, "replica", "status", "--json")
        said = json.loads(said)
        assert (said["members"], said["primary"]) == (["c"], "c")
        assert said["lossy"]

        a.boot()
        wait_until(lambda: said_by(*nodes)["members"] == ["c", "a"], WAIT_S)
        assert list(Path(a.store).glob("*.aside"))  # what it had confirmed alone with b
        wait_until(lambda: type_switchover(c, "--to", "a")[0] == 0, WAIT_S)
        wait_until(lambda: said_by(*nodes)["members"] == ["a"], WAIT_S)
        row_when(nodes, "c", lambda row: row["state"] == "IN_SYNC")
        found = bodies(a)
        assert found[:1] + found[-1:] == [b"at all three", b"goes on"]
        assert len(found) == 2 + SENT - fault.count


def write_mode(nodes, name, mode):
    """In hms.conf of each machine."""
    for one in nodes:
        config = tomllib.loads(one.config_file.read_text())
        config["replica"][name]["mode"] = mode
        one.config_file.write_text(to_toml(config))


@pytest.mark.timeout(300)
def test_one_machine_works_alone_with_a_copy_elsewhere_which_may_come_to_count(tmp_path, etcd):
    """The copy is read like any standby; the mode in hms.conf holds from `hms replica add` on, or
    from the next boot of the machine that leads."""
    with machines(tmp_path, etcd.url, a="SYNC", c="ASYNC") as nodes:
        a, c = nodes
        code, said = hms_command(c, "replica", "init")
        assert (code, "which is ASYNC" in said) == (1, True), said
        a.boot()
        with connect(*nodes) as connection:
            producer = connection.session().producer("orders")
            producer.send(b"alone")
            assert said_by(a)["rows"]["c"]["state"] == "AWAY"
            c.boot()
            producer.send(b"with a copy")
        row = row_when(nodes, "c", lambda row: row["state"] == "IN_SYNC")
        wait_until(lambda: readable(c)[-1:] == [b"with a copy"], WAIT_S)
        assert (row["mode"], said_by(a)["members"], said_by(a)["copies"]) == ("ASYNC", ["a"], 1)

        write_mode(nodes, "c", "SYNC")
        code, said = hms_command(a, "replica", "add", "c")
        assert (code, "that count: a, c" in said) == (0, True), said
        assert said_by(a)["copies"] == 2
        write_mode(nodes, "c", "ASYNC")
        c.kill()
        c.boot()  # it counts, and is not to take over: the machine that leads says when it may
        a.kill()
        a.boot()
        wait_until(lambda: said_by(*nodes)["members"] == ["a"], WAIT_S)
        code, said = hms_command(a, "replica", "add", "c")
        assert (code, "that count: a\n" in said) == (0, True), said
        row = said_by(*nodes)["rows"]["c"]
        assert (row["mode"], row["state"], row["lag_bytes"]) == ("ASYNC", "IN_SYNC", 0)
        assert said_by(*nodes)["epoch"] == 2  # c, which counted, let a lead again
        assert bodies(*nodes) == [b"alone", b"with a copy"]
