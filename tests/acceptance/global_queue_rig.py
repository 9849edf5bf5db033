"""What the acceptance tests of the cluster share: a load over several nodes and its books."""

import subprocess
import sys
import threading
import time
from collections import Counter

import hms

CONFIG = {"hms": {"queue": {"orders": {"GLOBAL": "Y", "GQTHR": 20, "GQMAXREQ": 50}}}}
CONNECT = {"reconnect_interval_s": 0.1, "connect_timeout_s": 60, "request_timeout_s": 90}
QUEUE = hms.Queue("orders")
WAIT_S = 90


def await_up(cluster, count=None):
    """Until every node hears so many others."""
    wanted = len(cluster.nodes) - 1 if count is None else count
    until = time.monotonic() + WAIT_S
    for one in cluster.nodes:
        with hms.connect(one.address) as conn:
            while _up(conn) < wanted:
                assert time.monotonic() < until, "the nodes do not find one another"
                threading.Event().wait(0.05)


def _up(conn):
    return sum(member["is_up"] for member in conn.administer("cluster.status")["members"])


class Load:
    """Producers and consumers at nodes, over reconnects; what was confirmed, what was taken."""

    def __init__(self):
        self.confirmed = []
        self.taken = Counter()
        self.doubtful = set()
        """Received, but nobody knows whether the acknowledgement arrived."""
        self.faults = []
        self._producing, self._consuming = threading.Event(), threading.Event()
        self._threads = []

    def produce(self, address, name):
        """Confirmed sends, one after the other."""
        self._start(self._produce, address, name)

    def consume(self, address, style="client"):
        """Receive and acknowledge: one by one, in transactions, or by a listener."""
        styles = {"client": self._consume, "transacted": self._transact, "listener": self._listen}
        self._start(styles[style], address)

    def _start(self, work, *arguments):
        def run():
            try:
                work(*arguments)
            except BaseException as fault:
                self.faults.append(fault)
                raise

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _produce(self, address, name):
        with hms.connect(address, **CONNECT) as conn, conn.session() as session:
            producer = session.producer(QUEUE)
            number = 0
            while not self._producing.is_set():
                bodies = [f"{name}-{number + i}".encode() for i in range(10)]
                producer.send_many([hms.Message(body) for body in bodies])
                self.confirmed += bodies
                number += 10
                self._producing.wait(0.02)

    def _consume(self, address):
        with (
            hms.connect(address, **CONNECT) as conn,
            conn.session(ack=hms.AckMode.CLIENT) as session,
        ):
            consumer = session.consumer(QUEUE, prefetch=20)
            while not self._consuming.is_set():
                message = consumer.receive(timeout_s=0.2)
                if message is not None:
                    self._take(message)

    def _transact(self, address):
        with hms.connect(address, **CONNECT) as conn, conn.session(transacted=True) as session:
            consumer = session.consumer(QUEUE, prefetch=20)
            while not self._consuming.is_set():
                message = consumer.receive(timeout_s=0.2)
                if message is not None:
                    self._commit(session, message)

    def _commit(self, session, message):
        try:
            session.commit()
            self.taken[message.body] += 1
        except hms.HmsError:
            self.doubtful.add(message.body)

    def _listen(self, address):
        def take(message):
            self.taken[message.body] += 1

        with hms.connect(address, **CONNECT) as conn, conn.session() as session:
            session.consumer(QUEUE, prefetch=20).listen(take)
            self._consuming.wait()

    def _take(self, message):
        try:
            message.ack()
            self.taken[message.body] += 1
        except hms.HmsError:
            self.doubtful.add(message.body)

    def finish(self, cluster):
        """No more sends; then until nothing is left anywhere."""
        self._producing.set()
        until = time.monotonic() + WAIT_S
        while sum(left(one) for one in cluster.nodes):
            assert time.monotonic() < until, [left(one) for one in cluster.nodes]
            threading.Event().wait(0.1)
        self._consuming.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a client does not end"
        assert not self.faults, self.faults


def hms_command(*words):
    """A command of the command line, in a process of its own."""
    command = [sys.executable, "-m", "boot", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def left(one):
    """Messages of global queues that a node has."""
    with hms.connect(one.address, **CONNECT) as conn:
        return conn.administer("cluster.status")["left"]
