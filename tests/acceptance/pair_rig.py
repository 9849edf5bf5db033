"""Two copies of a log, a real etcd, and what tests of such a pair ask of it."""

import os
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from hms.history import scan
from hms.history.events import COLUMNS
from hms.history.scope import Scope
from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from tests.acceptance.ha_rig import QUEUES, WAIT_S, begin_copies, connect, ended
from tests.support.etcd import Etcd
from tests.support.waiting import wait_until

LEASE_S = 9
"""No copy is taken for dead where a busy machine stands still for some seconds, and a call to the
arbiter may take a third of that."""
BRIEF_S = 6
"""For tests that wait for its end."""
_pairs = count(1)


class Pair:
    """Two machines, a and b; a has the first copy. Both are booted when a test gets them."""

    def __init__(self, folder, arbiter, config):
        self.a, self.b = self.machines = [
            _machine(folder, name, arbiter, config) for name in config["replica"]
        ]

    def boot(self):
        """Both, in the roles that they come to have."""
        for one in self.machines:
            if not one.is_running:
                one.boot()
        self.wait_for_both()

    def replication(self):
        """What the primary says of its copies."""
        with connect(*self.machines) as connection:
            return connection.administer("status")["replication"]

    def wait_for_both(self):
        """Until both copies count."""
        wait_until(lambda: self.replication()["is_protected"], WAIT_S)

    @property
    def leader(self):
        """The machine that leads."""
        return self.a if self.replication()["replica"] == "a" else self.b

    @property
    def follower(self):
        """The other one."""
        return self.b if self.leader is self.a else self.a


def _machine(folder, name, arbiter, config):
    own = folder / name
    own.mkdir()
    node = {"replica": name, **config.get("node", {})}
    told = {**config, "node": {"node1": node}, "arbiter": arbiter}
    return TestNode(own, own / "store", told, (), (), ())


@contextmanager
def arbiter(folder, lease_s=LEASE_S):
    """An etcd of the test's own, as hms.conf names it."""
    server = Etcd(folder)
    server.start()
    try:
        yield {"kind": "etcd", "endpoints": [server.url], "lease_s": lease_s}
    finally:
        server.stop()


@contextmanager
def pair(folder, decided_by, scrub_s=60, **config):
    """A pair whose first copy has begun; node: keys of [node.NAME]; scrub_s: 0 to say nothing."""
    scrubs = {"scrub_s": scrub_s} if scrub_s else {}
    replicas = {name: {"address": f"tcp://127.0.0.1:{free_port()}", **scrubs} for name in "ab"}
    domain = {"name": f"pair{next(_pairs)}-{os.getpid()}"}
    made = Pair(folder, decided_by, {"hms": QUEUES, "domain": domain, "replica": replicas} | config)
    begin_copies(made.a)
    with ended(made.machines):
        yield made


def readable(one, *, queue="orders"):
    """Bodies that a reader of the history finds in a machine's store, without asking a process."""
    scope = Scope()
    events = (
        event
        for part in scan.plan(Path(one.store), scope)
        for batch in scan.read_part(part, scope, list(COLUMNS))
        for event in batch
    )
    return [bytes(e.body) for e in events if e.event == "sent" and e.destination == queue]
