"""The preferred machine leads again by itself, as planned (F-K3)."""

import json
import re

import pytest

import hms
from hms.testing.ports import free_port
from tests.acceptance.ha_rig import WAIT_S, Sender, bodies, connect, hms_command, switch_over
from tests.acceptance.pair_rig import arbiter, pair
from tests.support.waiting import wait_until


def told_of_copies(one):
    """What the log of a machine says."""
    code, said = hms_command(one, "replica", "history", "--json")
    assert code == 0, said
    return [row["copies"] for row in json.loads(said)]


@pytest.mark.timeout(240)
def test_the_preferred_machine_leads_again_by_itself(tmp_path):
    """After it was killed, under sends; not while a transaction is open, nor when an operator sent
    it away, until it is booted again. It stays where it is when it leads."""
    replica = {
        name: {"address": f"tcp://127.0.0.1:{free_port()}", "engine_roll": roll}
        for name, roll in (("a", "ACTIVE"), ("b", "STANDBY"))
    }
    # The other machine counts, and may lead, also where it stands still for some seconds.
    node = {"replica_timeout_s": 10, "failback": "AUTO", "failback_after_s": 1, "drain_s": 1}
    with (
        arbiter(tmp_path) as decided_by,
        pair(tmp_path, decided_by, node=node, replica=replica) as two,
    ):
        a, b = two.a, two.b
        two.boot()
        assert (two.replication()["preferred"], two.replication()["failback"]) == ("a", "it leads")
        sender, told = Sender(two.machines), []
        sender.wait_for(20)
        two.wait_for_both()
        a.kill()
        sender.wait_for(20)
        assert two.replication()["replica"] == "b"
        with connect(b, a, exception_listener=told.append) as client:
            session = client.session(transacted=True)
            session.producer("held").send(b"work")
            a.boot()
            wait_until(lambda: "1 transaction with work" in b.log, WAIT_S)
            wait_until(lambda: "it is tried again in 2 s" in b.log, WAIT_S)
            sender.wait_for(20)
            assert two.replication()["replica"] == "b"
            session.commit()
            wait_until(lambda: two.replication()["replica"] == "a", WAIT_S)
            assert told == []
        sender.wait_for(20)
        two.wait_for_both()
        switch_over(two.machines)
        wait_until(lambda: "after its next boot" in str(two.replication()["failback"]), WAIT_S)
        assert two.replication()["replica"] == "b"
        a.stop()
        a.boot()
        wait_until(lambda: two.replication()["replica"] == "a", WAIT_S)
        sender.wait_for(20)
        sender.end()
        assert bodies(*two.machines) == sender.confirmed
        two.wait_for_both()

        def known():
            """At both, in one order; what is confirmed may be read a moment later at b."""
            at_a, at_b = (told_of_copies(one) for one in two.machines)
            return at_a if at_a == at_b else None

        lines = wait_until(known, WAIT_S)
        leads = [re.match(r"epoch (\d+), (.) leads; .*; (.*)$", line).groups() for line in lines]
        changes = [one for one in leads if one[2] != "members changed"]
        assert changes == [
            ("1", "a", "campaign"),
            ("2", "b", "campaign"),
            ("3", "a", "handed over by b"),
            ("4", "b", "handed over by a"),
            ("5", "a", "handed over by b"),
        ]
        assert any("a, b count, 2 confirm; members changed" in line for line in lines)
        with hms.connect([a.address, b.address]) as client, client.session() as session:
            assert session.consumer("held").receive(WAIT_S).body == b"work"
