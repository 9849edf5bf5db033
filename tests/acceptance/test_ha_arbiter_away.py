"""Two copies whose arbiter is away, and what an operator does then."""

import json
import threading

import pytest

import hms
from tests.acceptance.ha_rig import WAIT_S, Sender, bodies, connect, hms_command
from tests.acceptance.pair_rig import BRIEF_S, LEASE_S, pair
from tests.support.etcd import Etcd
from tests.support.postgres import postgres_server
from tests.support.waiting import wait_until


def shows_its_own(one):
    """The command tells what it knows of this machine's copy while the arbiter does not answer."""
    code, said = hms_command(one, "replica", "status", "--json")
    told = json.loads(said)
    assert (code, told["arbiter"][:8], told["damage"]) == (1, "HMS-5060", []), said
    assert told["copy"].startswith("unknown: the arbiter does not say")


def test_a_switchover_without_an_arbiter_is_refused_and_nobody_loses_the_node(tmp_path):
    """The one that leads would give the lease to nobody, and the node would be away as long as
    the arbiter is. Both say once that it does not answer, however long it is away."""
    server = Etcd(tmp_path)
    server.start()
    try:
        decided_by = {"kind": "etcd", "endpoints": [server.url], "lease_s": BRIEF_S}
        # Nobody asks to go on without a copy that stands still: that would be told, too.
        with pair(tmp_path, decided_by, node={"replica_timeout_s": 30}) as two:
            two.boot()
            sender = Sender(two.machines)
            sender.wait_for(20)
            server.stop()
            wait_until(lambda: two.replication()["arbiter"] == "does not answer", WAIT_S)
            with (
                connect(*two.machines) as operator,
                pytest.raises(hms.SwitchoverRefused, match="the arbiter"),
            ):
                operator.administer("replica.switchover")
            sender.wait_for(20)
            for one in two.machines:
                shows_its_own(one)
            two.a.kill()
            wait_until(lambda: "an arbiter that does not answer" in two.b.log, WAIT_S)
            threading.Event().wait(BRIEF_S)
            assert (two.a.log + two.b.log).count("HMS-5060") == 2
            server.start()
            sender.wait_for(20)
            sender.end()

            assert two.replication()["epoch"] == 2
            assert bodies(*two.machines) == sender.confirmed
    finally:
        server.stop()


def test_why_a_postgresql_does_not_answer_is_one_line(tmp_path):
    """Its driver tells it in several."""
    with postgres_server() as server:
        decided_by = {"kind": "postgresql", "endpoints": [server.url], "lease_s": LEASE_S}
        with pair(tmp_path, decided_by) as two:
            server.stop()
            code, said = hms_command(two.a, "replica", "status", "--json")

            assert (code, said.count("\n")) == (1, 1), said
            arbiter = json.loads(said)["arbiter"]
            assert (arbiter[:8], arbiter.count("\n")) == ("HMS-5060", 0), said
