"""Two copies whose arbiter is away, and what an operator does then.

HMS_HA=full: it is away for ten minutes under load (must show 8); HMS_AWAY_S=N: for so many seconds.
"""

import json
import os
import threading
import time
from contextlib import contextmanager

import pytest

import hms
from tests.acceptance.ha_rig import WAIT_S, Sender, bodies, connect, hms_command
from tests.acceptance.pair_rig import BRIEF_S, LEASE_S, pair
from tests.support.etcd_members import EtcdMembers
from tests.support.postgres import postgres_server
from tests.support.waiting import wait_until

IS_FULL = os.environ.get("HMS_HA") == "full"
AWAY_S = float(os.environ.get("HMS_AWAY_S", "600")) if IS_FULL else BRIEF_S + 1
KINDS = ["etcd", "postgresql"] if IS_FULL else ["postgresql"]
"""In the short form etcd is away in the test behind it, which takes as long."""


@contextmanager
def deciding(folder, kind):
    """A server of PostgreSQL, or an etcd of three members; and what hms.conf says of it."""
    if kind == "postgresql":
        with postgres_server() as server:
            yield server, {"kind": kind, "endpoints": [server.url], "lease_s": BRIEF_S}
        return
    etcd = EtcdMembers(folder)
    try:
        etcd.start()
        urls = [one.url for one in etcd.members]
        yield etcd, {"kind": kind, "endpoints": urls, "lease_s": BRIEF_S}
    finally:
        etcd.stop()


@pytest.mark.timeout(300 + AWAY_S)
@pytest.mark.parametrize("kind", KINDS)
def test_an_arbiter_that_is_away_stops_take_overs_and_no_traffic(tmp_path, kind, record_property):
    """Longer than any lease: nobody is told of it as long as both copies are there, and nobody
    takes over where one of them is killed. With the arbiter the take-over comes (42)."""
    with deciding(tmp_path, kind) as (server, decided_by), pair(tmp_path, decided_by) as two:
        two.boot()
        sender = Sender(two.machines)
        sender.wait_for(20)
        led, follower = two.leader, two.follower
        server.stop()
        until = time.monotonic() + AWAY_S
        while time.monotonic() < until:
            sender.wait_for(20)
            threading.Event().wait(0.1)
        assert two.replication()["epoch"] == 1
        led.kill()
        wait_until(lambda: "an arbiter that does not answer" in follower.log, WAIT_S)
        with pytest.raises(hms.HmsError):
            hms.connect(follower.address, connect_timeout_s=BRIEF_S)
        server.start()
        sender.wait_for(5)
        sender.end()
        figures = {"arbiter": kind, "away_s": AWAY_S, "confirmed": len(sender.confirmed)}
        record_property("figures", figures)

        assert two.replication()["epoch"] == 2
        assert bodies(follower) == sender.confirmed


def shows_its_own(one):
    """The command tells what it knows of this machine's copy while the arbiter does not answer."""
    code, said = hms_command(one, "replica", "status", "--json")
    told = json.loads(said)
    assert (code, told["arbiter"][:8], told["damage"]) == (1, "HMS-5060", []), said
    assert told["copy"].startswith("unknown: the arbiter does not say")


def test_a_switchover_without_an_arbiter_is_refused_and_nobody_loses_the_node(tmp_path):
    """The one that leads would give the lease to nobody, and the node would be away as long as
    the arbiter is. Both say once that it does not answer, however long it is away."""
    # Nobody asks to go on without a copy that stands still: that would be told, too.
    node = {"replica_timeout_s": 30}
    with (
        deciding(tmp_path, "etcd") as (server, decided_by),
        pair(tmp_path, decided_by, node=node) as two,
    ):
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
