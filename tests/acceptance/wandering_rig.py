"""What the test of global topics under cuts shares: publishers, subscribers that stay, and one that
moves from node to node without missing anything.
"""

import threading
import time
from contextlib import ExitStack

from global_queue_rig import CONNECT, WAIT_S

import hms
from tests.support.waiting import wait_until

TOPIC = hms.Topic("news")
READ_MAX = 30
FENCE = 1
"""The number of the last publication of each by which the nodes hear of subscribers."""


class Station:
    """A durable subscriber at a node, and what it has got there, in order."""

    def __init__(self, one, name):
        self.one, self.name = one, name
        self.got = []
        self._open = ExitStack()
        conn = self._open.enter_context(hms.connect(one.address, **CONNECT))
        self._session = self._open.enter_context(conn.session(ack=hms.AckMode.CLIENT))
        self._consumer = self._session.subscriber(TOPIC, durable=name)

    def read(self, timeout_s=0.2):
        """Take what comes until nothing comes for a while, or enough; whether there may be more."""
        for _ in range(READ_MAX):
            message = self._consumer.receive(timeout_s=timeout_s)
            if message is None:
                return False
            self.got.append(message.body.decode())
            message.ack()
        return True

    def numbers(self):
        """By publisher: the numbers it got, in order."""
        found = {}
        for body in self.got:
            publisher, _, number = body.rpartition("-")
            found.setdefault(publisher, []).append(int(number))
        return found

    def has_all(self, published):
        """Whether the last of so many of each publisher is here."""
        last = {name: numbers[-1] for name, numbers in self.numbers().items()}
        return all(last.get(name) == count - 1 for name, count in published.items() if count)

    def send(self, body):
        """A publication of this one's own."""
        self._session.producer(TOPIC).send(body.encode())

    def close(self):
        """End the subscription."""
        self._consumer.close()
        self._session.unsubscribe(TOPIC, self.name)
        self._open.close()


class News:
    """Publishers at nodes, a subscriber that stays at each, and one that wanders."""

    def __init__(self, cluster):
        self.nodes = cluster.nodes
        self.published = {one.name: 0 for one in self.nodes}
        self.stations = []
        """Where the wanderer was, in order."""
        self.faults = []
        self._publishing, self._reading = threading.Event(), threading.Event()
        self.fixed = [Station(one, "stays") for one in self.nodes]
        self._wanderer = Station(self.nodes[0], "wanders")
        self._threads = [
            *[self._thread(self._publish, one) for one in self.nodes],
            *[self._thread(self._stay, station) for station in self.fixed],
            self._thread(self._wander),
        ]

    def meet(self):
        """All nodes know of the subscribers at the others from then on."""
        everybody, until = [*self.fixed, self._wanderer], time.monotonic() + WAIT_S
        while any(len(one.numbers()) < len(self.nodes) for one in everybody):
            assert time.monotonic() < until, "the nodes do not hear of one another's subscribers"
            for one in self.fixed:
                one.send(f"{one.one.name}-0")
            for one in everybody:
                one.read()
        for one in self.fixed:
            one.send(f"{one.one.name}-{FENCE}")
        for one in everybody:
            while not one.has_all({node.name: FENCE + 1 for node in self.nodes}):
                assert time.monotonic() < until, "what was sent before the fence does not come"
                one.read()
            one.got.clear()

    def start(self):
        """Publications, and those who get them."""
        for thread in self._threads:
            thread.start()

    def _thread(self, work, *arguments):
        def run():
            try:
                work(*arguments)
            except BaseException as fault:
                self.faults.append(fault)
                raise

        return threading.Thread(target=run, daemon=True)

    def _publish(self, one):
        with hms.connect(one.address, **CONNECT) as conn, conn.session() as session:
            producer = session.producer(TOPIC)
            while not self._publishing.wait(0.02):
                producer.send(f"{one.name}-{self.published[one.name]}".encode())
                self.published[one.name] += 1

    def _stay(self, station):
        while not self._reading.is_set():
            station.read()

    def _wander(self):
        """One that has moved leaves its old place when nothing can be missed; the place that it has
        at the end gets everything there is."""
        old, place = self._wanderer, 0
        while not self._reading.is_set():
            place = (place + 1) % len(self.nodes)
            new = Station(self.nodes[place], "wanders")
            has_moved = False
            while not has_moved and not self._reading.is_set():
                new.read()
                old.read()
                has_moved = overlap(old, new, self.published)
            stays, leaves = (new, old) if has_moved else (old, new)
            self._leave(leaves)
            old = stays
        until = time.monotonic() + WAIT_S
        while not old.has_all(self.published):
            assert time.monotonic() < until, "what was published does not come"
            old.read()
        self._leave(old)

    def _leave(self, station):
        station.close()
        self.stations.append(station)

    def await_moves(self, count):
        """Until the wanderer has moved so often again."""
        wanted = len(self.stations) + count
        wait_until(lambda: self.faults or len(self.stations) >= wanted, WAIT_S)
        assert not self.faults, self.faults

    def _is_all_here(self):
        return all(len(one.got) >= sum(self.published.values()) for one in self.fixed)

    def finish(self):
        """No more publications; then until those that stay have all of them, and a while longer."""
        self._publishing.set()
        for thread in self._threads[: len(self.nodes)]:
            thread.join(WAIT_S)
        wait_until(lambda: self.faults or self._is_all_here(), WAIT_S)
        assert not self.faults, self.faults
        threading.Event().wait(1)
        self._reading.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a client does not end"
        assert not self.faults, self.faults


def overlap(old, new, published):
    """Whether nothing is missing when the old subscription ends: it has got all up to the first
    that the new one got, of each publisher."""
    first, before = new.numbers(), old.numbers()
    return all(
        name in first and before.get(name, [-1])[-1] >= first[name][0] - 1 for name in published
    )
