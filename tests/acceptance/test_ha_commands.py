"""The commands about copies, standbys and the arbiter, on machines that boot as the pages say."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from hms.server.links.keys import make_key_file
from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from tests.acceptance.ha_rig import QUEUES, WAIT_S, begin_copies, connect, ended, hms_command
from tests.support.etcd import Etcd
from tests.support.postgres import postgres_server
from tests.support.slapd import Authority
from tests.support.waiting import wait_until

LEASE_S = 9
PATIENT_S = 60
"""The lease of an arbiter that is only looked at: a call that takes a tenth of it is warned of."""
SMALL = {"segment_bytes": "4 MiB", "max_message_bytes": "1 MiB", "max_transaction_bytes": "1 MiB"}
_groups = count(1)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    """One server for all tests."""
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


@contextmanager
def machines(folder, url, *names, **keys):
    """Replicas of one node, of which the first one has the first copy; none is booted."""
    scrubs = {"scrub_s": 86_400}  # else it may mend what is damaged before a command finds it
    replicas = {name: {"address": f"tcp://127.0.0.1:{free_port()}", **scrubs} for name in names}
    domain, made = {"name": f"typed{next(_groups)}-{os.getpid()}"}, []
    for name in names:
        own = folder / name
        own.mkdir()
        config = {
            "domain": domain,
            "hms": QUEUES,
            "node": {"node1": {"replica": name, "replica_timeout_s": 1, **SMALL, **keys}},
            "arbiter": {"kind": "etcd", "endpoints": [url], "lease_s": LEASE_S},
            "replica": replicas,
        }
        made.append(TestNode(own, own / "store", config, (), (), ()))
    begin_copies(made[0])
    with ended(made):
        yield made


@contextmanager
def booted(nodes):
    """By `hms boot`, as an operator does."""
    try:
        for one in nodes:
            code, said = hms_command(one, "boot")
            assert code == 0, said
        yield
    finally:
        for one in nodes:
            hms_command(one, "down", "--now")


def answer(one, *words):
    """Exit code, and what it says in JSON."""
    code, said = hms_command(one, *words, "--json")
    return code, json.loads(said.splitlines()[-1])


def in_sync(one):
    """What `hms standby list` says there when the copy has all; nothing before."""
    code, said = hms_command(one, "standby", "list", "--json")
    return json.loads(said) if code == 0 and '"state": "IN_SYNC"' in said else None


def fill(nodes, count=40):
    """More than one segment."""
    with connect(*nodes) as connection, connection.session() as session:
        producer = session.producer("orders")
        for _ in range(count):
            producer.send(os.urandom(200_000))


@pytest.mark.timeout(240)
def test_a_standby_is_listed_shown_and_stopped_and_one_that_leads_is_not(tmp_path, etcd):
    """What it waits for, and how far behind it is."""
    with machines(tmp_path, etcd.url, "a", "b") as (a, b), booted([a, b]):
        wait_until(lambda: hms_command(a, "replica", "status")[0] == 0, WAIT_S)
        (row,) = wait_until(lambda: in_sync(b), WAIT_S)
        assert (row["node"], row["replica"]) == ("node1", "b")
        assert row["waits_for"].startswith("a (epoch 1")
        assert (row["lag_bytes"], row["fault"]) == (0, "")
        assert answer(a, "standby", "list") == (0, [])
        told = answer(a, "replica", "status")[1]
        assert (told["take_overs"], told["switchovers"]) == (0, 0)
        code, said = hms_command(b, "queue", "list")  # it waited for 10 s, for nothing
        assert (code, said.startswith("HMS-5072 replica b of node node1 follows: a leads")) == (
            1,
            True,
        )
        code, shown = answer(b, "standby", "show")
        assert (code, shown["standby"], shown["damage"]) == (0, "HOT", [])
        for what in ("show", "stop"):
            code, said = hms_command(a, "standby", what)
            assert (code, "which is active" in said) == (1, True), said
        code, said = hms_command(b, "standby", "stop")
        assert (code, "waits no more" in said) == (0, True), said
        code, said = hms_command(b, "standby", "show")
        assert (code, "HMS-" in said) == (1, True), said
        assert hms_command(b, "standby", "list")[1] == "no process of this hms.conf waits\n"
        code, told = answer(b, "replica", "status")  # it was good where nothing ran
        assert (code, told["is_protected"], told["replicas"]) == (1, None, [])
        code, rows = answer(b, "replica", "history")
        assert (code, datetime.fromisoformat(rows[0]["at"]).tzinfo) == (0, UTC)
        for name, why in (("c", "its replicas are a, b"), ("a", "say it on the machine of a")):
            code, said = hms_command(b, "replica", "promote", name, "--lossy")
            assert (code, why in said) == (1, True), said
        with connect(a) as connection:
            assert connection.administer("status")["role"] == "active"


@pytest.mark.timeout(240)
def test_a_machine_whose_disk_was_replaced_is_told_of_its_new_copy(tmp_path, etcd):
    """It was told of the one that was lost, so it was away for as long as the other one led. While
    it has none, commands say to boot it; a traceback was all that one of them said."""
    with machines(tmp_path, etcd.url, "a", "b") as (a, b), booted([a, b]):
        wait_until(lambda: in_sync(b), WAIT_S)
        assert hms_command(b, "down", "--now")[0] == 0
        shutil.rmtree(b.store)
        for what in ("repair", "verify"):
            code, said = hms_command(b, "replica", what)
            assert (code, said[:18], "hms boot" in said) == (1, "HMS-5067 replica b", True), said
        assert hms_command(b, "boot")[0] == 0

        wait_until(lambda: in_sync(b), WAIT_S)
        wait_until(lambda: hms_command(b, "replica", "status")[0] == 0, WAIT_S)
        rows = answer(a, "replica", "status")[1]["replicas"]
        assert [row["replica"] for row in rows] == ["a", "b"]


@pytest.mark.timeout(240)
def test_a_command_that_is_interrupted_says_what_goes_on_without_it(tmp_path, etcd):
    """A move that was ordered happened half a minute after a command that said it was aborted."""
    with machines(tmp_path, etcd.url, "a", "b") as (a, b):
        code, said = hms_command(b, "boot")  # before the first one has led
        assert (code, "waits for a (which has not led yet, whose log it gets)" in said) == (0, True)
        with booted([a]):
            wait_until(lambda: hms_command(a, "replica", "status")[0] == 0, WAIT_S)
            with connect(a, b) as connection, connection.session(transacted=True) as session:
                session.producer("orders").send(b"under way")
                with interruptible(b, "switchover", "--drain-s", "600") as command:
                    wait_until(
                        lambda: connection.administer("status")["replication"]["drains_for"], WAIT_S
                    )
                    said = interrupted(command)
                told = "interrupted: a move that was begun goes on; hms status tells of it"
                assert (command.returncode, said.startswith(told)) == (1, True), said
                session.commit()
            wait_until(lambda: answer(b, "replica", "status")[1]["primary"] == "b", WAIT_S)
            wait_until(lambda: answer(b, "status")[1]["role"] == "active", WAIT_S)
            pid = answer(b, "status")[1]["pid"]
            os.kill(pid, signal.SIGSTOP)  # it cannot end meanwhile
            try:
                with interruptible(b, "down", "--now") as command:
                    wait_until(lambda: is_told_to_end(pid), WAIT_S)
                    said = interrupted(command)
            finally:
                os.kill(pid, signal.SIGCONT)
            told = "interrupted: node1, where it was told, stops: hms status tells when it has\n"
            assert (command.returncode, said) == (1, told)
            wait_until(lambda: hms_command(b, "status")[0], WAIT_S)


def is_told_to_end(pid):
    """Whether SIGTERM waits for a process that is stopped."""
    words = Path(f"/proc/{pid}/status").read_text().split()
    return bool(int(words[words.index("ShdPnd:") + 1], 16) & 1 << signal.SIGTERM - 1)


def interrupted(command):
    """What it says at Ctrl-C, which a person presses again: Python drops one that comes while it
    collects garbage."""
    for _ in range(4):
        command.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return command.communicate(timeout=WAIT_S / 4)[1]
    raise AssertionError("it goes on")


@contextmanager
def interruptible(one, *words):
    """A command that runs."""
    line = [sys.executable, "-m", "hms.boot", *words, "--config", str(one.config_file)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as command:
        try:
            yield command
        finally:
            command.kill()


@pytest.mark.timeout(240)
def test_commands_where_nobody_leads_say_what_is_waited_for(tmp_path):
    """They said that b follows and b leads, that asking is not available in this version, and,
    without an arbiter, that what was asked may have happened."""
    server = Etcd(tmp_path)
    server.start()
    try:
        with machines(tmp_path, server.url, "a", "b", "c") as nodes, booted(nodes):
            a, b, c = nodes
            wait_until(lambda: len(answer(a, "replica", "status")[1]["members"]) > 2, WAIT_S)
            for one in (c, b, a):
                assert hms_command(one, "down", "--now")[0] == 0
            assert hms_command(a, "boot")[0] == 0

            def waits():
                code, told = answer(a, "replica", "status")
                (row,) = told["replicas"]
                told = row["waits_for"], row["fault"]
                lease = "a has the lease, and leads when enough copies promise"
                return code == 1 and told == ("the promises of 2 copies", lease)

            wait_until(waits, WAIT_S)
            code, said = hms_command(a, "queue", "list")
            assert (code, "stands by here, and waits for " in said) == (1, True), said
            assert "HMS-5072" not in said
            code, said = hms_command(a, "switchover")
            assert (code, said[:8]) == (1, "HMS-5073"), said
            server.stop()
            code, said = hms_command(a, "switchover")
            assert (code, said[:8], "HMS-5060" in said) == (1, "HMS-5073", True), said
            server.start()
    finally:
        server.stop()


@pytest.mark.timeout(240)
def test_the_status_of_copies_is_bad_while_one_that_still_counts_is_away(tmp_path, etcd):
    """It was good for a minute, so that whoever maintains one machine after the other took the next
    one away."""
    with machines(tmp_path, etcd.url, "a", "b", "c", replica_lost_s=86_400) as nodes, booted(nodes):
        a, b, _ = nodes
        wait_until(lambda: answer(a, "replica", "status")[0] == 0, WAIT_S)
        wait_until(lambda: answer(b, "replica", "status")[0] == 0, WAIT_S)
        code, said = answer(b, "replica", "status")
        assert (said["replicas"][0]["state"], said["replicas"][0]["lag_bytes"]) == ("IN_SYNC", 0)

        assert hms_command(b, "down", "--now")[0] == 0
        code, said = wait_until(
            lambda: (found := answer(a, "replica", "status"))[0] and found, WAIT_S
        )
        assert (said["members"], said["is_protected"]) == (["a", "b", "c"], False)
        states = {row["replica"]: row.get("state") for row in said["replicas"]}
        assert (code, states["b"], states["c"]) == (1, "AWAY", "IN_SYNC")


@pytest.mark.timeout(300)
def test_a_copy_is_compared_with_the_one_that_leads_to_the_byte(tmp_path, etcd):
    """It is the same; a flipped byte is found where it lies, and repaired as the command says."""
    with machines(tmp_path, etcd.url, "a", "b") as (a, b), booted([a, b]):
        wait_until(lambda: hms_command(a, "replica", "status")[0] == 0, WAIT_S)
        fill([a, b])
        wait_until(lambda: in_sync(b), WAIT_S)
        code, found = answer(b, "replica", "verify")
        assert (code, found["is_same"], found["differs"], found["lacks"]) == (0, True, [], [])
        assert (found["primary"], found["epoch"]) == ("a", 1)
        assert found["segments"] > 1
        assert found["bytes"] > 4 << 20
        code, said = hms_command(a, "replica", "verify")
        assert (code, "a, which leads" in said) == (1, True), said

        oldest = min(Path(b.store).glob("*.log"))
        with oldest.open("r+b") as file:
            file.seek(1_500_000)
            byte = file.read(1)[0]
            file.seek(1_500_000)
            file.write(bytes([byte ^ 1]))
        code, found = answer(b, "replica", "verify")
        (one,) = found["differs"]
        assert (code, one["segment"], one["offset"]) == (4, int(oldest.stem), 1_500_000)
        assert "verify" in one["here"]
        code, said = hms_command(b, "replica", "verify")
        assert (code, "hms replica repair" in said) == (4, True), said
        assert hms_command(b, "replica", "repair")[0] == 0
        assert answer(b, "replica", "verify")[0] == 0


@pytest.mark.timeout(240)
def test_a_switchover_that_reaches_a_candidate_is_answered(tmp_path, etcd):
    """It asks for promises that do not come: the command says so instead of waiting for 90 s."""
    with machines(tmp_path, etcd.url, "a", "b", "c") as (a, b, c):
        for one in (a, b, c):
            one.boot()
        with connect(a, b, c) as connection:

            def members():
                return len(connection.administer("status")["replication"]["members"])

            wait_until(lambda: members() == 3, WAIT_S)
        b.pause()
        a.kill()
        wait_until(lambda: "c leads node1 from epoch 2" in c.log, WAIT_S)  # it has the lease

        def refused(one, why):
            code, said = hms_command(one, "switchover", "--timeout", "5")
            assert code == 1, said
            return "HMS-5073" in said and why in said

        wait_until(lambda: refused(b, "c asks the other copies for their promises"), WAIT_S)
        wait_until(lambda: refused(c, "c has the lease, and does not lead yet"), WAIT_S)
        b.resume()


@pytest.mark.parametrize("kind", ["etcd", "postgresql"])
def test_an_arbiter_is_looked_at_and_tried(tmp_path, etcd, kind):
    """Each check asks the engine; nothing of it is left, and nothing of the node's changes."""
    with _server(kind, etcd) as (url, keys):
        one = _machine(tmp_path, kind, [url])
        code, said = answer(one, "arbiter", "status")
        assert code == 1  # nobody has said hms replica init
        assert "HMS-5065" in said["nodes"][0]["fault"]
        assert hms_command(one, "replica", "init")[0] == 0
        before = keys()
        code, said = answer(one, "arbiter", "status")
        (endpoint,) = said["endpoints"]
        assert (code, endpoint["fault"], said["kind"]) == (0, "", kind)
        assert endpoint["version"].lower().startswith(kind)
        assert endpoint["latency_ms"] > 0
        assert said["nodes"][0] == {
            "node": "node1", "primary": "", "epoch": 0, "version": 1, "fault": ""
        }  # fmt: skip

        code, found = answer(one, "arbiter", "check", "--count", "5")
        assert (code, {row["verdict"] for row in found}) == (0, {"ok"}), found
        checks = {row["check"] for row in found}
        assert checks >= {"reach", "tls", "version", "clock", "compare_and_set"}
        assert checks >= {"latency.read", "latency.write"}
        assert keys() == before


def test_an_arbiter_that_is_away_or_of_another_kind_fails_its_check(tmp_path, etcd):
    """One of two endpoints that is away is named; what is no etcd is none."""
    away = f"http://127.0.0.1:{free_port()}"
    one = _machine(tmp_path, "etcd", [away, etcd.url])
    code, found = answer(one, "arbiter", "check", "--count", "2")
    faults = [row for row in found if row["verdict"] == "fail"]
    assert (code, [row["endpoint"] for row in faults]) == (1, [away])
    assert any(row["endpoint"] == etcd.url and row["check"] == "compare_and_set" for row in found)
    code, said = answer(one, "arbiter", "status")
    assert [bool(row["fault"]) for row in said["endpoints"]] == [True, False]

    alone = _machine(tmp_path / "alone", "etcd", [away])
    assert answer(alone, "arbiter", "check")[0] == 1
    assert answer(alone, "arbiter", "status")[0] == 1


@contextmanager
def _server(kind, etcd):
    """Its address, and what tells all that it has of the node."""
    if kind == "etcd":
        yield etcd.url, lambda: etcd.keys("hms/asked")
        return
    with postgres_server() as server:
        yield server.url, lambda: server.ask("SELECT node, value FROM hms_arbiter ORDER BY node")


def _machine(folder, kind, endpoints, **files):
    folder.mkdir(exist_ok=True)
    config = {
        "domain": {"name": f"asked{next(_groups)}-{os.getpid()}"},
        "node": {"node1": {"replica": "a"}},
        "arbiter": {"kind": kind, "endpoints": endpoints, "lease_s": PATIENT_S, **files},
        "replica": {n: {"address": f"tcp://127.0.0.1:{free_port()}"} for n in "ab"},
    }
    return TestNode(folder, folder / "store", config, (), (), ())


def test_the_certificates_of_an_arbiter_are_part_of_its_check(tmp_path):
    """Its own, which ends in ten days, is warned of; one of another authority fails; without one
    of ours nothing is answered."""
    Authority(tmp_path)
    server = Etcd(tmp_path / "etcd", tmp_path)
    (tmp_path / "etcd").mkdir()
    server.start()
    try:

        def checked(name, authority, own):
            files = {"ca_file": f"{tmp_path}/{authority}.pem"}
            if own:
                files |= {"cert_file": f"{tmp_path}/{own}.pem", "key_file": f"{tmp_path}/{own}.key"}
            one = _machine(tmp_path / name, "etcd", [server.url], **files)
            return answer(one, "arbiter", "check", "--count", "2")

        code, found = checked("good", "ca", "good")
        (tls,) = (row for row in found if row["check"] == "tls")
        assert (code, tls["verdict"]) == (3, "warn"), found
        assert tls["value"].startswith("TLSv1.3, the certificate of 127.0.0.1 ends in ")
        assert [row["check"] for row in found if row["verdict"] != "ok"] == ["tls"]
        for name, given in (("foreign", ("other-ca", "good")), ("bare", ("ca", None))):
            code, found = checked(name, *given)
            assert (code, [row["check"] for row in found]) == (1, ["reach"]), found
    finally:
        server.stop()


@pytest.mark.timeout(240)
def test_a_machine_whose_key_is_refused_says_so_and_comes_when_it_is_known(tmp_path, etcd):
    """What it said over a connection that was refused waited for good: commands hung, and its
    process, so that the machine was away also when the other one had been mended."""
    with machines(tmp_path, etcd.url, "a", "b") as (a, b):
        keys = {one: make_key_file(one.folder / "link.key") for one in (a, b)}
        files = {one: one.config_file.read_text() for one in (a, b)}
        other = make_key_file(tmp_path / "other.key")

        def know(one, key_of_b, key_of_a=None):
            told = files[one]
            for each, key in ((a, key_of_a or keys[a]), (b, key_of_b)):
                lines = f'key_file = "{each.folder}/link.key"\npublic_key = "{key}"\n'
                head = f"[replica.{each.folder.name}]\n"
                assert head in told
                told = told.replace(head, head + lines)
            one.config_file.write_text(told)

        know(a, other)
        know(b, keys[b])
        with booted([a, b]):
            told = "a to know the key of b"
            wait_until(lambda: told in hms_command(b, "status")[1], WAIT_S)
            for words in (("replica", "verify"), ("switchover",)):
                code, said = hms_command(b, *words)
                assert (code, said[:8]) == (1, "HMS-1017"), said
            assert "HMS-1017" in answer(b, "replica", "status")[1]["replicas"][0]["fault"]
            assert hms_command(a, "down", "--now")[0] == 0
            know(a, keys[b])
            assert hms_command(a, "boot")[0] == 0

            wait_until(lambda: in_sync(b), WAIT_S)
            assert hms_command(b, "down", "--now")[0] == 0
            know(b, keys[b], other)
            assert hms_command(b, "boot")[0] == 0
            told = "the key of a, which hangs up"
            wait_until(lambda: told in hms_command(b, "status")[1], WAIT_S)
            code, said = hms_command(b, "replica", "verify")
            assert (code, said[:8]) == (1, "HMS-1017"), said
