"""Three copies of a log with an etcd of three members, a load, and books: for faults by the dozen.

The load keeps the books of three queues. Orders are moved to a ledger in transactions, and what
comes there is acknowledged by call; what is announced goes to a listener.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from database_rig import CONNECT, ORDERS, Load

import hms
from hms.server.links.keys import make_key_file
from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from tests.acceptance.ha_rig import WAIT_S, connect, ended
from tests.support.books import Books
from tests.support.waiting import wait_until

NAMES = ("a", "b", "c")
LEASE_S = 3
ANNOUNCED = hms.Queue("announced")
QUEUES = {"queue": {"orders": {}, "ledger": {}, "announced": {}}}
PAUSE_S = 0.02
TTL_S = 600
_groups = count(1)


class Steady(Load):
    """Sends to two queues in turn, up to fifty times a second each; see above."""

    def __init__(self, addresses):
        super().__init__(addresses)
        self.announced = Books()
        self.settled, self.longest_gap_s = 0, 0.0
        for work in (self.send, self.transfer, self.receive, self.listen):
            self.start(work)

    def send(self):
        with hms.connect(self.address, **CONNECT) as conn, conn.session() as session:
            producers = [
                (session.producer(queue, ttl_s=TTL_S), books)
                for queue, books in ((ORDERS, self.orders), (ANNOUNCED, self.announced))
            ]
            last = time.monotonic()
            while not self.stopped.wait(PAUSE_S):
                body = f"order-{self.sent}"
                for producer, books in producers:
                    books.invoke([body])
                    producer.send(body.encode())
                    books.ok([body])
                self.sent += 1
                now = time.monotonic()
                self.longest_gap_s, last = max(self.longest_gap_s, now - last), now

    def listen(self):
        """And take each as it comes."""

        def take(message):
            body = message.body.decode()
            self.announced.received(body, message.redelivered, message.delivery_count)
            self.settled += 1

        with hms.connect(self.address, **CONNECT) as conn, conn.session() as session:
            session.consumer(ANNOUNCED).listen(take)
            self.drained.wait()

    def _faults_now(self):
        assert not self._faults, self._faults

    def await_sends(self, more):
        """Until so many more are confirmed in each queue."""
        self._await(lambda: self.sent, more)

    def await_flow(self, more):
        """And so many taken by the listener."""
        self._await(lambda: self.sent, more)
        self._await(lambda: self.settled, more)

    def _await(self, count_of, more):
        wanted = count_of() + more
        wait_until(lambda: self._faults or count_of() >= wanted, 3 * WAIT_S)
        self._faults_now()

    def close(self):
        """Whatever became of it, no client goes on."""
        self.stopped.set()
        self.drained.set()

    def finish(self):
        """No more sends; all that is there is taken. What is counted over all queues."""
        self.stopped.set()
        wait_until(lambda: self._faults or self.is_empty(), 2 * WAIT_S)
        self._faults_now()
        self.drained.set()
        self.join()
        verdicts = [one.verdict() for one in (self.orders, self.ledger, self.announced)]
        for verdict in verdicts:
            assert verdict.is_clean, verdict
        orders, _, announced = verdicts
        assert orders.confirmed == announced.confirmed == self.sent
        return {
            "confirmed": orders.confirmed + announced.confirmed,
            "longest_gap_s": round(self.longest_gap_s, 1),
        }


class Group:
    """Machines a, b and c. endpoints: the arbiter's, as each of them has it; hosts: where other
    machines find them, with keys when that is no loopback; prefixes: what runs their programs;
    far: names of asynchronous replicas."""

    def __init__(self, folder, endpoints, prefixes, hosts=None, lease_s=LEASE_S, far=()):
        domain = {"name": f"faults{next(_groups)}-{os.getpid()}"}
        replicas, self._far = {}, far
        for name in (*NAMES, *far):
            host = "127.0.0.1" if hosts is None else hosts[name]
            replicas[name] = {"address": f"tcp://{host}:{free_port()}"}
            if hosts is not None:
                key = folder / f"{name}.key"
                replicas[name] |= {"key_file": str(key), "public_key": make_key_file(key)}
        for name in far:
            replicas[name]["mode"] = "ASYNC"
        self.nodes = {}
        for name in replicas:
            own = folder / name
            own.mkdir()
            node = {"replica": name, "replica_timeout_s": 1}
            if hosts is not None:
                node["listen"] = [f"ipc://{own}/n.ipc"]
            told = {
                "domain": domain,
                "hms": QUEUES,
                "node": {"node1": node},
                "arbiter": {"kind": "etcd", "endpoints": endpoints[name], "lease_s": lease_s},
                "replica": replicas,
            }
            self.nodes[name] = TestNode(own, own / "store", told, (), (), prefixes[name])
        command = [sys.executable, "-m", "hms.boot", "replica", "init"]
        command += ["--config", str(self.nodes["a"].config_file)]
        if hosts is not None:
            command = [*prefixes["a"], *command]
        subprocess.run(command, check=True, timeout=WAIT_S)

    @property
    def addresses(self):
        """Where clients find them."""
        return [one.address for one in self.nodes.values()]

    def said(self):
        """What the primary says of its copies."""
        with connect(*self.nodes.values()) as connection:
            return connection.administer("status")["replication"]

    @property
    def leader(self):
        """The name of the machine that leads."""
        return self.said()["replica"]

    def wait_for_all(self):
        """Until each is there and has all; what has ended, as when it was cut off, is booted."""
        wait_until(self._have_all, 3 * WAIT_S)

    def _have_all(self):
        for one in self.nodes.values():
            if not one.is_running:
                one.boot()
        said = self.said()
        in_sync = {row["replica"] for row in said["replicas"] if row["state"] == "IN_SYNC"}
        has_far = in_sync.issuperset(self._far)
        return has_far and (len(said["members"]), said["failures_survived"]) == (len(NAMES), 1)

    def lose_power(self, names):
        """At one instant, as far as one thread can: nobody is left there who could tell that a
        process has ended."""
        pids = [self.nodes[name].pid for name in names]
        guards = [child for pid in pids for child in _children(pid)]
        for pid in (*guards, *pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in names:
            self.nodes[name].wait()


def _children(pid):
    """Processes that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends just then
            found += map(int, (task / "children").read_text().split())
    return found


@contextmanager
def group_in(folder, endpoints, prefixes, hosts=None, lease_s=LEASE_S, far=()):
    """Three copies that all count, and those that never do."""
    made = Group(folder, endpoints, prefixes, hosts, lease_s, far)
    with ended(list(made.nodes.values())):
        made.wait_for_all()
        yield made
