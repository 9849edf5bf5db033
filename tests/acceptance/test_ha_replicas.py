"""Two copies of a log on two machines, and an arbiter: nothing confirmed is lost with one of them.

Two processes with folders of their own, and a real arbiter. HMS_HA=full: 100 kills with each kind.
"""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import tomllib
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
import zmq

import hms
from hms.server.links.keys import make_key_file
from hms.store.journal.format import FORMATS
from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from tests.acceptance.ha_rig import (
    NOT_NOW,
    QUEUES,
    WAIT_S,
    Sender,
    begin_copies,
    bodies,
    connect,
    ended,
    hms_command,
    type_switchover,
)
from tests.acceptance.test_clock_steps import HOUR, WallClock, waiting
from tests.support.etcd import Etcd
from tests.support.postgres import postgres_server
from tests.support.project import ROOT
from tests.support.waiting import wait_until

IS_FULL = os.environ.get("HMS_HA") == "full"
KILLS = int(os.environ.get("HMS_KILLS", "100")) if IS_FULL else 1
full = pytest.mark.skipif(not IS_FULL, reason="HMS_HA=full: it takes 15 s and more")
LEASE_S = 3 if IS_FULL else 9
"""Only with HMS_HA=full is its end waited for."""
SMALL = {
    "segment_bytes": "4 MiB",
    "max_message_bytes": "1 MiB",
    "max_transaction_bytes": "1 MiB",
}
_groups = count(1)


@pytest.fixture(scope="module")
def postgres():
    """One server for all tests."""
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    """The same."""
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["postgresql", "etcd"] if IS_FULL else ["etcd"])
def arbiter(request):
    """As hms.conf has it; each test has a domain of its own. The page's test has PostgreSQL."""
    kind = request.param
    url = request.getfixturevalue("postgres" if kind == "postgresql" else kind).url
    return {"kind": kind, "endpoints": [url], "lease_s": LEASE_S}


@contextmanager
def machines(folder, arbiter, *names, has_keys=False, **keys):
    """Replicas of one node; the first one has the first copy."""
    domain = f"d{next(_groups)}{os.getpid()}"
    replicas = {name: {"address": f"tcp://127.0.0.1:{free_port()}"} for name in names}
    for name in names if has_keys else ():
        file = folder / f"{name}.key"
        replicas[name] |= {"key_file": str(file), "public_key": make_key_file(file)}
    made = []
    for name in names:
        own = folder / name
        own.mkdir()
        node = {"replica": name, "replica_timeout_s": 1, **keys}
        config = {
            "domain": {"name": domain},
            "hms": QUEUES,
            "node": {"node1": node},
            "arbiter": arbiter,
            "replica": replicas,
        }
        made.append(TestNode(own, own / "store", config, (), (), ()))
    begin_copies(made[0])
    with ended(made):
        yield made


def said_by(*nodes):
    """What the primary says of its copies."""
    with connect(*nodes) as connection:
        return connection.administer("status")["replication"]


def wait_for_both(*nodes):
    """Until both copies count."""
    wait_until(lambda: said_by(*nodes)["is_protected"], WAIT_S)


def wait_for_all(nodes):
    """Until each copy counts."""
    wait_until(lambda: len(said_by(*nodes)["members"]) == len(nodes), 2 * WAIT_S)


@pytest.mark.timeout(60 * KILLS + 90)
def test_one_of_three_takes_over_again_and_again_and_nothing_is_lost_or_doubled(
    tmp_path, arbiter, record_property
):
    """The primary is killed at any instant, a standby is stopped and another one killed meanwhile:
    two of three go on, with all that was confirmed. Nobody waits for the end of its lease."""
    arbiter = arbiter if IS_FULL else {**arbiter, "lease_s": 20}
    with machines(tmp_path, arbiter, "a", "b", "c", replica_timeout_s=10) as nodes:
        for one in nodes:
            one.boot()
        wait_for_all(nodes)
        sender = Sender(nodes)
        remove_and_add(nodes, sender)
        for number in range(KILLS):
            sender.wait_for(20)
            led = said_by(*nodes)
            primary = nodes["abc".index(led["replica"])]
            standby, other = (one for one in nodes if one is not primary)
            standby.pause()
            sender.wait_for(20)  # the other one suffices
            standby.resume()
            if IS_FULL and number % 3 == 1:
                other.kill()
                sender.wait_for(20)
                other.boot()
                wait_for_all(nodes)
            primary.kill()
            sender.wait_for(5)
            if not IS_FULL:
                wait_until(lambda: "has ended: its lease does" in primary.log, WAIT_S)  # noqa: B023
            assert said_by(*nodes)["epoch"] > led["epoch"]
            if IS_FULL:
                primary.boot()
                wait_for_all(nodes)
        sender.end()
        record_property("figures", {"kills": KILLS, "confirmed": len(sender.confirmed)})

        assert bodies(*nodes) == sender.confirmed


def remove_and_add(nodes, sender):
    """A copy counts no more, and again, while messages come; below copies_min it is refused."""
    with connect(*nodes) as connection:

        def change(verb, name):
            return connection.administer(f"replica.{verb}", {"name": name})["replication"]

        def members():
            return sorted(said_by(*nodes)["members"])

        me = said_by(*nodes)["replica"]
        one, other = (name for name in "abc" if name != me)
        with pytest.raises(hms.ReplicaChangeRefused, match="it leads: hms switchover first"):
            change("remove", me)
        with pytest.raises(hms.ReplicaChangeRefused, match=r"has no \[replica.z\]"):
            change("add", "z")
        change("remove", one)
        wait_until(lambda: members() == sorted([me, other]), WAIT_S)
        with pytest.raises(hms.ReplicaChangeRefused, match="1 copy would be left, copies_min is 2"):
            change("remove", other)
        sender.wait_for(20)
        assert members() == sorted([me, other])  # though it has all, and is heard
        change("add", one)
        wait_for_all(nodes)


@full
@pytest.mark.timeout(300)
def test_a_copy_that_is_left_alone_goes_on_when_an_operator_says_so(tmp_path, arbiter):
    """Two of three are lost with their disks, and the third one lacks 30 messages: refused while
    anybody leads or may, then ConfirmedLost names what is missing (44)."""
    with machines(tmp_path, arbiter, "a", "b", "c", replica_lost_s=600) as nodes:
        for one in nodes:
            one.boot()
        wait_for_all(nodes)
        led = "abc".index(said_by(*nodes)["replica"])
        c, others = nodes[led - 1], [one for one in nodes if one is not nodes[led - 1]]
        name, lost = c.folder.name, []
        with connect(*nodes, exception_listener=lost.append) as connection:
            producer = connection.session().producer("orders")
            producer.send(b"at all three")
            wait_until(lambda: said_by(*nodes)["failures_survived"] == 1, WAIT_S)
            code, said = hms_command(c, "replica", "promote", name, "--lossy", "--yes")
            assert (code, "leads in epoch 1" in said) == (1, True), said
            c.kill()
            for number in range(30):
                producer.send(b"%d" % number)
            for one in others:
                one.kill()
            c.boot()
            code, said = hms_command(c, "replica", "promote", name)
            assert (code, "a take-over needs 2 of" in said) == (1, True), said
            code, said = hms_command(c, "replica", "promote", name, "--lossy", "--yes")
            assert (code, f"{name} leads" in said) == (0, True), said
            producer.send(b"goes on")
            wait_until(lambda: any(isinstance(one, hms.ConfirmedLost) for one in lost), WAIT_S)
        (fault,) = (one for one in lost if isinstance(one, hms.ConfirmedLost))
        assert fault.count == 30
        code, said = hms_command(c, "replica", "status", "--json")
        assert json.loads(said)["lossy"] != []
        assert bodies(c) == [b"at all three", b"goes on"]


@full
@pytest.mark.timeout(30 * KILLS + 90)
def test_the_standby_takes_over_again_and_again_and_nothing_is_lost_or_doubled(
    tmp_path, arbiter, record_property
):
    """The primary is killed at any instant; the other one has all that was confirmed."""
    with machines(tmp_path, arbiter, "a", "b") as nodes:
        a, b = nodes
        a.boot()
        b.boot()
        wait_for_both(a)
        sender = Sender((a, b))
        for _ in range(KILLS):
            sender.wait_for(20)
            a.kill()
            sender.wait_for(5)
            a.boot()
            wait_for_both(b)
            a, b = b, a
        sender.end()
        record_property("figures", {"kills": KILLS, "confirmed": len(sender.confirmed)})

        assert said_by(a)["epoch"] == 1 + KILLS
        assert bodies(a) == sender.confirmed


def test_the_commands_of_the_page_make_two_machines(tmp_path, postgres):
    """From two empty folders to a pair that survives a kill."""
    page = (ROOT / "docs" / "how-to" / "two-machines.md").read_text()
    text = re.search(r"<!-- file: hms.conf -->\n```toml\n(.*?)```", page, re.DOTALL)[1]
    ports = {old: str(free_port()) for old in ("7700", "7701", "7710", "7711")}
    text = text.replace("postgresql://hms@127.0.0.1:5432/postgres", postgres.url)
    text = f'[domain]\nname = "page{os.getpid()}"\n{text}'
    addresses = [f"tcp://127.0.0.1:{ports[old]}" for old in ("7700", "7701")]
    for old, new in ports.items():
        text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    for name, address in zip("ab", addresses, strict=True):
        (tmp_path / name).mkdir()
        own = text.replace('replica = "a"', f'replica = "{name}"').replace(addresses[0], address, 1)
        (tmp_path / name / "hms.conf").write_text(own)
    blocks = re.findall(r"<!-- machine: (.) -->\n```console\n(.*?)```", page, re.DOTALL)
    assert sum(len(typed.splitlines()) for _, typed in blocks) <= 10
    try:
        for name, typed in blocks:
            for line in typed.splitlines():
                done = type_line(tmp_path / name, line.removeprefix("$ "))
                if line == "$ hms replica status":
                    wait_until(lambda: type_line(tmp_path / "a", "hms replica status")[0] == 0)
                else:
                    assert done[0] == 0, done
        told = []
        seen = {"event_listener": told.append, "exception_listener": told.append}
        with hms.connect(addresses[1], **seen) as connection, connection.session() as session:
            assert connection.link.address == addresses[0]  # the standby said who leads
            producer = session.producer("orders")
            producer.send(b"two coffees")
            with connection.session(ack=hms.AckMode.CLIENT) as other:
                overtaken = other.consumer("orders").receive(WAIT_S)
                forced = "hms switchover --drain-s 0 --force"
                code, said = type_line(tmp_path / "b", forced)
                while code and NOT_NOW.search(said):  # b stood still just then
                    code, said = type_line(tmp_path / "b", forced)
                assert (code, said) == (0, "b leads NODE1 in epoch 2\n")
            producer.send(b"and two more")
            wait_until(lambda: told[-1].kind == "reconnected")  # told in a thread of its own
            kinds = [one.kind for one in told]  # the exception listener was told nothing
            assert (kinds[0], "closed" in kinds) == ("moved", False)
        wait_until(lambda: type_line(tmp_path / "b", "hms replica status")[0] == 0)
        wait_until(  # it begins anew as one
            lambda: type_line(tmp_path / "a", "hms replica status")[1].count("standby") == 1
        )
        assert type_line(tmp_path / "b", "hms down")[0] == 0
        with hms.connect(addresses, connect_timeout_s=WAIT_S) as connection:
            consumer = connection.session().consumer("orders")
            again = consumer.receive(WAIT_S)
            assert (again.body, again.redelivered) == (b"two coffees", True)
            assert again.fencing_token > overtaken.fencing_token > 0
            assert consumer.receive(WAIT_S).body == b"and two more"
        assert "standby" not in type_line(tmp_path / "a", "hms replica status")[1]
    finally:
        for name in "ab":
            type_line(tmp_path / name, "hms down --now")


def type_line(folder, line):
    """What a command of the page says there."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path}
    done = subprocess.run(
        line.split(),
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@full
def test_a_primary_that_goes_on_after_a_pause_confirms_nothing(tmp_path, arbiter):
    """It is stopped past the lease, with a client still connected, and continued (38)."""
    with machines(tmp_path, arbiter, "a", "b") as (a, b):
        a.boot()
        b.boot()
        wait_for_both(a)
        with hms.connect(a.address, request_timeout_s=6) as old, old.session() as session:
            producer = session.producer("orders")
            producer.send(b"before")
            a.pause()
            late = producer.send_async(b"late")
            assert said_by(b)["epoch"] == 2
            a.resume()

            wait_for_both(b)  # nobody boots it: it follows
            assert "HMS-5020" in a.log or "HMS-5071" in a.log
            assert isinstance(late.exception(WAIT_S), hms.SendInDoubt)
        assert bodies(b) == [b"before"]
        wait_for_both(b)
        b.kill()

        assert bodies(a) == []


@full
def test_what_one_copy_alone_had_is_cut_and_stored_once(tmp_path, arbiter):
    """A send and a commit are synced at a only; b takes over without, and a returns (2, 24)."""
    with machines(tmp_path, arbiter, "a", "b", replica_timeout_s=60) as (a, b):
        a.boot()
        b.boot()
        wait_for_both(a)
        with connect(a, b) as connection, connection.session() as session:
            producer = session.producer("orders")
            producer.send(b"both")
            work = connection.session(transacted=True)
            work.producer("orders").send(b"never")
            before = log_bytes(a)
            b.kill()  # a copy that is only stopped finds on its link what a wrote
            late = producer.send_async(b"late")
            outcome = []
            commits = threading.Thread(target=lambda: outcome.append(fault_of(work.commit)))
            commits.start()
            wait_until(lambda: b"late" in log_bytes(a) and log_bytes(a) != before, WAIT_S)
            a.kill()
            b.boot()
            late.result(WAIT_S)
            commits.join(WAIT_S)
            assert [type(one) for one in outcome] == [hms.TransactionRolledBack]
        a.boot()
        wait_for_both(b)
        (aside,) = Path(a.store).glob("*.aside")
        assert b"late" in aside.read_bytes()
        assert aside.name in hms_command(a, "replica", "status", "--json")[1]
        b.kill()

        assert bodies(a) == [b"both", b"late"]


def fault_of(act):
    """What it raises."""
    try:
        act()
    except hms.HmsError as fault:
        return fault
    return None


def log_bytes(one):
    """What its segments hold."""
    return b"".join(file.read_bytes() for file in sorted(Path(one.store).glob("*.log")))


@full
def test_an_empty_disk_gets_the_log_with_its_files(tmp_path, arbiter):
    """Machine b comes later, with an empty store; then a is lost with its disk. The link is
    encrypted."""
    body, source = os.urandom(3 << 20), tmp_path / "body"
    source.write_bytes(body)
    with machines(tmp_path, arbiter, "a", "b", has_keys=True, **SMALL) as (a, b):
        a.boot()
        with connect(a) as connection, connection.session() as session:
            producer = session.producer("orders")
            for number in range(6):
                producer.send(b"%d" % number * 300_000)
            producer.send(hms.Message.file(source))
            b.boot()
            wait_for_both(a)
            producer.send(hms.Message.file(source))
        a.kill()
        with connect(b) as connection, connection.session() as session:
            consumer = session.consumer("orders")
            for number in range(6):
                assert consumer.receive(WAIT_S).body == b"%d" % number * 300_000
            for _ in range(2):
                consumer.receive(WAIT_S).save(tmp_path / "saved")
                assert (tmp_path / "saved").read_bytes() == body
                (tmp_path / "saved").unlink()


def test_a_switchover_is_refused_where_it_would_lose_work(tmp_path, arbiter):
    """50: while a transaction has work, without --force; and to a copy that does not count."""
    with machines(tmp_path, arbiter, "a", "b", replica_timeout_s=10) as (a, b):
        a.boot()
        with connect(a, b) as connection, connection.session(transacted=True) as session:
            with pytest.raises(hms.SwitchoverRefused, match="b: it has not come since a leads"):
                connection.administer("replica.switchover")
            with pytest.raises(
                hms.SwitchoverRefused,
                match=r"has no .replica.c. of this node; the other replicas are b",
            ):
                connection.administer("replica.switchover", {"to": "c"})
            b.boot()
            wait_for_both(a)
            send_garbage(a)
            wait_until(lambda: said_by(a)["frames_refused"] >= 2, WAIT_S)  # and nothing changes
            wait_for_both(a)
            session.producer("orders").send(b"work")
            with pytest.raises(hms.SwitchoverRefused, match="1 transaction with work"):
                connection.administer("replica.switchover", {"drain_s": 0.1})
            session.commit()
            session.producer("orders").send(b"rolled back")

            assert type_switchover(a, "--drain-s", "0.1", "--force")[0] == 0

            with pytest.raises(hms.TransactionRolledBack):
                session.commit()
        assert bodies(b, a) == [b"work"]


def test_a_standby_learns_at_once_that_its_address_is_taken(tmp_path, arbiter):
    """Not when it is to lead, and its process would end; afterwards nothing else gets the port."""
    with machines(tmp_path, arbiter, "a", "b", replica_timeout_s=10) as (a, b):
        a.boot()
        with socket.socket() as other:
            other.bind(replica_address(b, "b"))
            other.listen()
            with pytest.raises(hms.BootFailed, match="HMS-5070"):
                b.boot()
        b.boot()
        wait_for_both(a)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(replica_address(b, "b"))
        sender = Sender((a, b))
        sender.wait_for(20)
        a.kill()
        sender.wait_for(5)
        sender.end()

        assert bodies(b) == sender.confirmed


def test_no_format_is_raised_while_a_copy_is_away_or_cannot_read_it(tmp_path, arbiter):
    """It would take over with a log that it cannot read."""
    with machines(tmp_path, arbiter, "a", "b", replica_timeout_s=10) as (a, b):
        a.boot()
        with connect(a) as connection:
            with pytest.raises(hms.StoreNotFinalized, match="b cannot be asked"):
                connection.administer("store.finalize")
            b.boot()
            wait_for_both(a)

            assert connection.administer("store.finalize")["format"] == FORMATS[-1]


def clock_ahead_s(connection):
    """By how much that of the machine that follows is, as the one that leads knows it by now."""
    (row,) = connection.administer("status")["replication"]["replicas"]
    return row["clock_ahead_s"] or 0.0


@pytest.mark.parametrize("away_s", [-HOUR, HOUR], ids=["behind", "ahead"])
def test_time_ids_and_tokens_go_on_at_a_machine_whose_clock_is_wrong(tmp_path, arbiter, away_s):
    """H17 and H18: by an hour. Nothing is older than what was sent before it, nothing expires that
    has ten minutes to live, no id and no fencing token is given twice."""
    clock = WallClock(tmp_path)
    clock.set(away_s)
    with machines(tmp_path, arbiter, "a", "b", replica_timeout_s=10) as (a, b):
        b._prefix = clock.prefix
        a.boot()
        b.boot()
        wait_for_both(a)
        with connect(a, b) as connection, connection.session(ack=hms.AckMode.CLIENT) as session:
            producer = session.producer("orders", ttl_s=600)
            sent = [producer.send(b"%d" % n).message_id for n in range(3)]
            consumer = session.consumer("orders", prefetch=1)
            token = consumer.receive(WAIT_S).fencing_token
            wait_until(lambda: abs(clock_ahead_s(connection) - away_s) < HOUR / 10, WAIT_S)
            a.kill()
            sent += [producer.send(b"%d" % n).message_id for n in range(3, 6)]
            again = consumer.receive(WAIT_S)
            while again.message_id != sent[0]:
                again = consumer.receive(WAIT_S)
            found = waiting(connection)

        found = [again, *found]  # that one is in the hands of a consumer
        assert [one.message_id for one in found] == sent == sorted(set(sent))
        times = [one.timestamp for one in found]
        assert times == sorted(times)
        assert times[-1] - times[0] < HOUR / 2
        assert again.fencing_token > token


def replica_address(one, name):
    """Host and port of a replica, as a machine's hms.conf has them."""
    config = tomllib.loads(Path(one.config_file).read_text())
    host, _, port = config["replica"][name]["address"].removeprefix("tcp://").rpartition(":")
    return host, int(port)


def send_garbage(one):
    """To its replica's port: no ZeroMQ at all, and frames that no copy sends."""
    address = tomllib.loads(Path(one.config_file).read_text())["replica"]["a"]["address"]
    with socket.create_connection(replica_address(one, "a"), WAIT_S) as raw:
        raw.sendall(os.urandom(200))
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.connect(address)
        stranger.send_multipart([os.urandom(100), b""])
        stranger.send_multipart([b"x"] * 20)


@full
def test_a_person_is_erased_from_each_copy_on_its_own_machine(tmp_path, arbiter):
    """The command at the standby's machine asks the node that leads; both logs boot afterwards."""
    with machines(tmp_path, arbiter, "a", "b", **SMALL) as (a, b):
        for one in (a, b):
            text = one.config_file.read_text()
            for name, address in (("a", a.address), ("b", b.address)):
                head = f"[replica.{name}]\n"
                assert head in text
                text = text.replace(head, f'{head}listen = ["{address}"]\n')
            one.config_file.write_text(text)
        a.boot()
        b.boot()
        wait_for_both(a)
        with connect(a) as connection, connection.session() as session:
            producer = session.producer("orders")
            for person in ("ann", "bob", "ann"):
                producer.send(hms.Message(b"to " + person.encode(), properties={"person": person}))
            mine = session.consumer("orders", selector="person = 'ann'")
            assert mine.receive(WAIT_S).body == b"to ann"
        asked = ("erase", "--property", "person=ann", "--reason", "r", "--yes", "--json")
        other = "copy {} of the log: give the command on its machine as well"
        for one, name, waiting in ((a, "b", [1, 1, 0]), (b, "a", None)):
            code, said = hms_command(one, *asked)
            assert code == 0, said
            rows = {row.pop("place"): [*row.values()] for row in json.loads(said)}
            assert rows.pop("segments of log and history") == [2, 2, 0]
            assert rows.pop(other.format(name)) == [1, 0, 1]
            assert rows == ({"queue:orders": waiting} if waiting else {})
            files = [file for file in one.store.rglob("*") if file.is_file()]
            assert [file.name for file in files if b"ann" in file.read_bytes()] == []
            assert any(b"bob" in file.read_bytes() for file in files)
            again = json.loads(hms_command(one, *asked)[1])
            assert [row["place"] for row in again] == [other.format(name)]
        a.kill()
        assert bodies(b) == [b"to bob"]
