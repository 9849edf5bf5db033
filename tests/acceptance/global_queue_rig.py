"""What the acceptance tests of the cluster share: a load over several nodes and its books."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import NamedTuple

import hms
from tests.support.waiting import wait_until

SIZE = os.environ.get("HMS_PARTITION", "")
assert SIZE in ("", "full"), f"HMS_PARTITION={SIZE}: there is an ordinary size and full"
IS_FULL = SIZE == "full"
"""Whether the tests of the cluster under faults run as long as docs/concepts/clustering.md says."""

CONFIG = {"hms": {"queue": {"orders": {"GLOBAL": "Y", "GQTHR": 20, "GQMAXREQ": 50}}}}
QUEUE = hms.Queue("orders")
WAIT_S = 200
CONNECT = {"reconnect_interval_s": 0.1, "connect_timeout_s": 60, "request_timeout_s": WAIT_S}


def await_up(cluster, count=None):
    """Until every node hears so many others."""
    wanted = len(cluster.nodes) - 1 if count is None else count
    for one in cluster.nodes:
        with hms.connect(one.address, **CONNECT) as conn:
            wait_until(lambda conn=conn: _up(conn) >= wanted, WAIT_S)


def _up(conn):
    return sum(member["is_up"] for member in conn.administer("cluster.status")["members"])


class Verdict(NamedTuple):
    """What became of a load; the last four have to be 0."""

    sent: int
    received: int
    doubtful: int
    lost: int
    unexpected: int
    doubled: int
    split: int
    """Bodies that two consumers had at one time."""

    @property
    def faults(self):
        """The last four."""
        return self[-4:]


class Load:
    """Producers and consumers at nodes, over reconnects; what was confirmed, what was taken.

    rate_per_s: sends one by one so often, 0 for tens as fast as they go; ttl_s: how long they live;
    every poison-th message is never acknowledged, 0 for none.
    """

    def __init__(self, rate_per_s=0, ttl_s=0, poison=0):
        self.rate_per_s, self.ttl_s, self.poison = rate_per_s, ttl_s, poison
        self.confirmed = []
        self.taken = Counter()
        self.doubtful = set()
        """Received, but nobody knows whether the acknowledgement arrived."""
        self.faults = []
        self._seen, self._split, self._lock = set(), set(), threading.Lock()
        self._producing, self._consuming = threading.Event(), threading.Event()
        self._producers, self._consumers = [], []

    def produce(self, address, name):
        """Confirmed sends, one after the other."""
        self._start(self._producers, self._produce, address, name)

    def consume(self, address, style="client", queue=QUEUE):
        """Receive and acknowledge: one by one, one at a time, in transactions, or by a listener."""
        styles = {
            "client": self._consume,
            "polling": self._poll,
            "transacted": self._transact,
            "listener": self._listen,
        }
        self._start(self._consumers, styles[style], address, queue)

    def _start(self, threads, work, *arguments):
        def run():
            try:
                work(*arguments)
            except BaseException as fault:
                self.faults.append(fault)
                raise

        thread = threading.Thread(target=run, daemon=True)
        threads.append(thread)
        thread.start()

    def _produce(self, address, name):
        size = 1 if self.rate_per_s else 10
        pause_s = 1 / self.rate_per_s if self.rate_per_s else 0.02
        with hms.connect(address, **CONNECT) as conn, conn.session() as session:
            producer = session.producer(QUEUE, ttl_s=self.ttl_s)
            number = 0
            while not self._producing.is_set():
                due_s = time.monotonic() + pause_s
                bodies = [f"{name}-{number + i}".encode() for i in range(size)]
                producer.send_many([hms.Message(body) for body in bodies])
                self.confirmed += bodies
                number += size
                self._producing.wait(due_s - time.monotonic() if self.rate_per_s else pause_s)

    def _consume(self, address, queue, prefetch=20):
        with (
            hms.connect(address, **CONNECT) as conn,
            conn.session(ack=hms.AckMode.CLIENT) as session,
        ):
            consumer = session.consumer(queue, prefetch=prefetch)
            while not self._consuming.is_set():
                message = consumer.receive(timeout_s=0.2)
                if message is not None:
                    self._settle(message, message.ack, session.recover)

    def _poll(self, address, queue):
        self._consume(address, queue, prefetch=1)

    def _transact(self, address, queue):
        with hms.connect(address, **CONNECT) as conn, conn.session(transacted=True) as session:
            consumer = session.consumer(queue, prefetch=20)
            while not self._consuming.is_set():
                message = consumer.receive(timeout_s=0.2)
                if message is not None:
                    self._settle(message, session.commit, session.rollback)

    def _listen(self, address, queue):
        def take(message):
            self._see(message.body)
            if self._is_poison(message.body):
                self._seen.discard(message.body)
                raise ValueError(message.body)
            self._took(message.body)

        with hms.connect(address, **CONNECT) as conn, conn.session() as session:
            session.consumer(queue, prefetch=20).listen(take)
            self._consuming.wait()

    def _settle(self, message, acknowledge, give_back):
        body = message.body
        self._see(body)
        try:
            if self._is_poison(body):
                self._seen.discard(body)
                give_back()
            else:
                acknowledge()
                self._took(body)
        except hms.HmsError:
            self._seen.discard(body)
            self.doubtful.add(body)

    def _is_poison(self, body):
        return bool(self.poison) and int(body.rpartition(b"-")[2]) % self.poison == 0

    def _see(self, body):
        with self._lock:
            if body in self._seen:
                self._split.add(body)
            self._seen.add(body)

    def _took(self, body):
        with self._lock:
            self._seen.discard(body)
            self.taken[body] += 1

    def await_flow(self, more):
        """Until so many more were taken."""
        wanted = self.taken.total() + more
        wait_until(lambda: self.faults or self.taken.total() >= wanted, WAIT_S)
        assert not self.faults, self.faults

    def await_sends(self, more):
        """Until so many more were confirmed."""
        wanted = len(self.confirmed) + more
        wait_until(lambda: self.faults or len(self.confirmed) >= wanted, WAIT_S)
        assert not self.faults, self.faults

    def finish(self, cluster):
        """No more sends; then until nothing is left anywhere, however slowly it gets less. Nodes
        are asked one after the other: what a node had may be at one that was asked before."""
        self._producing.set()
        self._join(self._producers)
        until, least, before, now = time.monotonic() + WAIT_S, sys.maxsize, None, None
        while now is None or now != before or any(has for has, _ in now):
            before, now = now, [_left_and_moved_in(one) for one in cluster.nodes]
            rest = sum(has for has, _ in now)
            if rest < least:
                until, least = time.monotonic() + WAIT_S, rest
            assert time.monotonic() < until, now
            threading.Event().wait(0.1)
        self._consuming.set()
        self._join(self._consumers)
        assert not self.faults, self.faults

    def _join(self, threads):
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), ("a client does not end", self.faults)

    def verdict(self, dead=()):
        """After finish(); dead: bodies found in dead letter queues. While no client loses its node,
        nothing is in doubt, and nobody sees what another one has not given back."""
        found = self.taken + Counter(dead)
        sent = set(self.confirmed)
        return Verdict(
            len(self.confirmed),
            found.total(),
            len(self.doubtful),
            len(sent - found.keys() - self.doubtful),
            len((found.keys() | self.doubtful) - sent),
            sum(count > 1 and body not in self.doubtful for body, count in found.items()),
            len(self._split - self.doubtful),
        )


def hms_command(*words):
    """A command of the command line, in a process of its own."""
    command = [sys.executable, "-m", "hms.boot", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def left(one):
    """Messages of global queues that a node has."""
    return _left_and_moved_in(one)[0]


def _left_and_moved_in(one):
    """The same, and how many messages came to it from others."""
    with hms.connect(one.address, **CONNECT) as conn:
        status = conn.administer("cluster.status")
        return status["left"], sum(member["moved_in"] for member in status["members"])
