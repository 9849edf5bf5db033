"""Two copies of a log, and a PostgreSQL with a synchronous standby that decides who leads, under
load: the machine that leads is killed, each pair is cut, the server is stopped, crashes, or is lost
and its standby promoted.

HMS_HA=full: 100 faults; HMS_FAULTS=N: so many. HMS_HA_SEED=N has the faults of a run again.
"""

import os
import random
import signal
import threading
from contextlib import ExitStack, closing

import pytest
from copies_rig import Cable
from faults_rig import Steady

from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from tests.acceptance.ha_rig import WAIT_S, begin_copies, connect, ended
from tests.support.postgres import ReplicatedServer
from tests.support.waiting import wait_until

IS_FULL = os.environ.get("HMS_HA") == "full"
FAULTS = int(os.environ.get("HMS_FAULTS", "100")) if IS_FULL else 0
LEASE_S = 6
ARBITER = "arbiter"
PAIRS = [("a", "b"), ("a", ARBITER), ("b", ARBITER)]
QUEUES = {"queue": {"orders": {}, "ledger": {}, "announced": {}}}


class Place:
    """Machines a and b, cables between them and to each server, and what happens to them."""

    def __init__(self, folder, server, dice, stack):
        self.server, self._dice, self._stack = server, dice, stack
        places = {name: free_port() for name in "ab"}
        self._cables = {pair: [] for pair in PAIRS}
        self.nodes = []
        for name, other in ("ab", "ba"):
            link = self._cable(("a", "b"), places[other])
            hosts = ",".join(self._cable((name, ARBITER), port) for port in server.ports)
            url = f"postgresql://hms@{hosts}/postgres?target_session_attrs=read-write"
            own = folder / name
            own.mkdir()
            config = {
                "domain": {"name": f"decided{os.getpid()}"},
                "hms": QUEUES,
                "node": {"node1": {"replica": name, "replica_timeout_s": 1}},
                "arbiter": {"kind": "postgresql", "endpoints": [url], "lease_s": LEASE_S},
                "replica": {
                    one: {
                        "address": f"tcp://127.0.0.1:{places[one]}"
                        if one == name
                        else f"tcp://{link}"
                    }
                    for one in "ab"
                },
            }
            self.nodes.append(TestNode(own, own / "store", config, (), (), ()))

    def _cable(self, pair, port):
        made = Cable(f"127.0.0.1:{port}")
        self._stack.callback(made.close)
        self._cables[pair].append(made)
        return made.place

    def said(self):
        """What the primary says of its copies."""
        with connect(*self.nodes) as connection:
            return connection.administer("status")["replication"]

    def wait_for_both(self):
        """Until both copies count; what has ended is booted."""
        wait_until(self._have_both, 3 * WAIT_S)

    def _have_both(self):
        for one in self.nodes:
            if not one.is_running:
                one.boot()
        return self.said()["is_protected"]

    def _wait(self, most_s):
        threading.Event().wait(self._dice.uniform(0, most_s if FAULTS else 1))

    def kill(self):
        """The one that leads."""
        led = self.said()["replica"]
        self.nodes["ab".index(led)].kill()

    def cut(self):
        """Neither of two hears the other one, for up to two leases."""
        cables = self._cables[self._dice.choice(PAIRS)]
        for one in cables:
            one.cut()
        self._wait(2 * LEASE_S)
        for one in cables:
            one.heal()

    def restart(self):
        """The server is away for up to a lease."""
        self.server.stop(self._dice.choice((signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)))
        self._wait(LEASE_S)
        self.server.start()

    def fail_over(self):
        """The server is lost, and its standby decides from then on."""
        self.server.stop(signal.SIGKILL)
        self._wait(LEASE_S)
        self.server.promote()


KINDS = (Place.cut, Place.restart, Place.fail_over, Place.kill)
SHORT = (Place.cut, Place.fail_over, Place.kill)


@pytest.mark.timeout(300 + 60 * FAULTS)
def test_whatever_fails_of_two_copies_and_a_postgresql_nothing_is_lost_or_doubled(
    tmp_path, record_property
):
    """No client is told of it. In the short form a promoted server decides the take-over."""
    seed = int(os.environ.get("HMS_HA_SEED", random.randrange(1 << 32)))
    dice, figures = random.Random(seed), {"seed": seed}
    record_property("figures", figures)
    with ExitStack() as stack:
        server = stack.enter_context(closing(ReplicatedServer()))
        place = Place(tmp_path, server, dice, stack)
        begin_copies(place.nodes[0])
        stack.enter_context(ended(place.nodes))
        place.wait_for_both()
        load = stack.enter_context(closing(Steady([one.address for one in place.nodes])))
        for number in range(FAULTS or len(SHORT)):
            load.await_flow(20)
            fault = dice.choice(KINDS) if FAULTS else SHORT[number]
            fault(place)
            place.wait_for_both()
            figures["faults"] = number + 1
            figures[fault.__name__] = figures.get(fault.__name__, 0) + 1
        load.await_flow(20)
        figures |= load.finish() | {"take-overs": place.said()["epoch"] - 1}
