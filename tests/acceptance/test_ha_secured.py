"""A secured group: clients follow the log over take-overs and moves, encrypted all the way, to
machines that each have a key of their own."""

import getpass
import json
import os
from contextlib import suppress

import pytest

import hms
from hms.boot.security_file import save_security
from hms.server.links.keys import make_key_file
from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from tests.acceptance.ha_rig import WAIT_S, ended, hms_command
from tests.acceptance.pair_rig import arbiter
from tests.support.secured import PASSWORD, document
from tests.support.waiting import wait_until


class Machine:
    """One of the group: its node, where it listens, the key that it shows there."""

    def __init__(self, folder, name):
        self.folder, self.name = folder / name, name
        self.folder.mkdir()
        self.key = make_key_file(self.folder / "server.key")
        self.of_group = make_key_file(self.folder / "group.key")
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.link = f"tcp://127.0.0.1:{free_port()}"

    def replica(self):
        keys = {"key_file": str(self.folder / "group.key"), "public_key": self.of_group}
        return {"address": self.link, "listen": [self.address], **keys}

    def make(self, decided_by, replicas):
        own = self.folder
        security = own / "security.toml"
        save_security(security, document(billing=["produce queue:orders", "consume queue:orders"]))
        node = {"replica": self.name, "security": str(security), "replica_timeout_s": 10}
        node["listen"] = [f"ipc://{own}/s", "front"]
        front = {"server_key_file": str(own / "server.key"), "client_keys": "ANY"}
        config = {
            "domain": {"name": f"secured{os.getpid()}"},
            "hms": {"queue": {"orders": {}}},
            "node": {"NODE1": node},
            "listener": {"front": {"address": self.address, **front}},
            "arbiter": decided_by,
            "replica": replicas,
        }
        self.node = TestNode(own, own / "store", config, (), (), ())


@pytest.fixture
def two(tmp_path):
    machines = [Machine(tmp_path, name) for name in "ab"]
    with arbiter(tmp_path) as decided_by:
        for one in machines:
            one.make(decided_by, {each.name: each.replica() for each in machines})
        code, said = hms_command(machines[0].node, "replica", "init")
        assert code == 0, said
        with ended([one.node for one in machines]):
            for one in machines:
                one.node.boot()
            wait_for_both(machines)
            yield machines


def wait_for_both(machines):
    """Until both copies count, as an operator of this machine sees it."""

    def is_protected():
        addresses = [one.node.address for one in machines]
        with hms.connect(addresses, reconnect_interval_s=0.1, connect_timeout_s=WAIT_S) as operator:
            return operator.administer("status")["replication"]["is_protected"]

    wait_until(is_protected, WAIT_S)


def client(machines, known, **given):
    """Of all addresses; known: whose keys it was given."""
    return hms.connect(
        [one.address for one in machines],
        server_keys=[one.key for one in known],
        user="billing",
        password=PASSWORD,
        reconnect_interval_s=0.1,
        request_timeout_s=WAIT_S,
        connect_timeout_s=WAIT_S,
        **given,
    )


def switchovers(node):
    """Each one that the audit has."""
    code, said = hms_command(node, "audit", "list", "--json")
    assert code == 0, said
    return [one for one in json.loads(said) if one["command"] == "replica.switchover"]


def audited(node):
    """What came of each."""
    return [one["result"] for one in switchovers(node)]


@pytest.mark.timeout(240)
def test_clients_follow_a_secured_log_to_a_machine_with_another_key(two):
    """A crash and a planned move back, under one client that knows both keys; one that knows the
    key of the first machine alone sends nothing to the second one, and goes on at the first."""
    a, b = two
    told = []
    with (
        client(two, two, event_listener=told.append) as both,
        client(two, [a]) as half,
        both.session() as session,
        half.session() as other,
    ):
        producer, late = session.producer("orders"), other.producer("orders")
        producer.send(b"1")
        late.send(b"2")
        a.node.kill()
        producer.send(b"3")
        assert both.link.address == b.address
        held = late.send_async(b"4")
        a.node.boot()
        wait_for_both(two)
        producer.send(b"5")
        assert not held.done()
        with hms.connect(b.node.address) as operator:
            work = both.session(transacted=True)
            assert work.producer("orders").send(b"rolled back").message_id
            with pytest.raises(hms.SwitchoverRefused, match=r"client \d+ \(billing\)"):
                operator.administer("replica.switchover", {"drain_s": 0.1})
            work.rollback()
            with suppress(hms.ConnectionLost):  # the machine may end before its answer is read
                operator.administer("replica.switchover")
        held.result(WAIT_S)
        producer.send(b"6")
        assert (both.link.address, half.link.address) == (a.address, a.address)
        consumer, found = session.consumer("orders"), []
        while len(found) < 6:
            message = consumer.receive(WAIT_S)
            assert not message.redelivered
            found.append(bytes(message.body))
        assert sorted(found) == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert consumer.receive(0) is None
        assert [one.kind for one in told if one.kind == "moved"] == ["moved"]
    assert audited(a.node) == ["unknown", 5073, "unknown", "ok"]  # ordered, refused; twice
    with pytest.raises(hms.HmsError):
        hms.connect(a.address, user="billing", password=PASSWORD, connect_timeout_s=3)


@pytest.mark.timeout(240)
def test_a_switchover_that_is_said_at_a_standby_is_audited_with_the_operators_name(two):
    """The one that led audited nothing: an order of somebody who has no connection there. Also one
    that is refused, at once or behind its drain."""
    a, b = two
    code, said = hms_command(b.node, "switchover")
    assert code == 0, said
    wait_for_both(two)
    with client(two, two) as one, one.session(transacted=True) as work:
        work.producer("orders").send(b"work")
        assert hms_command(a.node, "switchover", "--drain-s", "0.1")[0] == 1
        assert hms_command(a.node, "switchover", "--to", "z")[0] == 1
        work.rollback()
    me = getpass.getuser()

    found = switchovers(b.node)
    assert [one["user"] for one in found] == [f"os:{me}"] * 4
    assert sorted(one["from"] for one in found) == ["replica a"] * 3 + ["replica b"]
    results = [one["result"] for one in found if one["from"] == "replica a"]
    assert sorted(one == "ok" for one in results) == [False, False, True]
    assert hms_command(b.node, "audit", "verify")[0] == 0
