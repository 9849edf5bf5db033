"""kill -9 at random moments under load, again and again, and nothing that was confirmed is lost.

HMS_KILLS=50 pytest tests/acceptance/test_kill.py     the long form
"""

import random
import threading
import time

import pytest
from kills_rig import sized

import hms
from hms.testing import node
from tests.support.books import Books
from tests.support.waiting import wait_until

KILLS = sized("HMS_KILLS", 8)
CONFIG = {"hms": {"queue": {"orders": {}, "ledger": {}}, "topic": {"news": {}}}}
CONNECT = {"reconnect_interval_s": 0.2, "connect_timeout_s": 60, "request_timeout_s": 120}


class Load:
    """Threads that work against the node until they are told to finish, each with its books."""

    def __init__(self, address):
        self.address = address
        self.books = {name: Books() for name in ("orders", "ledger", "news")}
        self.stopped = threading.Event()
        self.drained = threading.Event()
        self.faults = []
        self.sent = 0
        self.producers = []
        self.consumers = []

    def start(self, threads, work, *arguments):
        thread = threading.Thread(target=self._run, args=(work, *arguments), daemon=True)
        threads.append(thread)
        thread.start()

    def _run(self, work, *arguments):
        try:
            work(*arguments)
        except BaseException as fault:
            self.faults.append(fault)
            raise

    def join(self, threads):
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a client does not end"
        assert not self.faults, self.faults

    # producers

    def send_through_outages(self, destination, books, prefix):
        """A producer that reconnects: each of its sends has to be there exactly once."""
        with hms.connect(self.address, **CONNECT) as conn, conn.session() as session:
            out = session.producer(destination)
            n = 0
            while not self.stopped.is_set():
                bodies = [f"{prefix}-{n + i}" for i in range(50)]
                n += len(bodies)
                books.invoke(bodies)
                out.send_many([hms.Message(body.encode()) for body in bodies])
                books.ok(bodies)
                self.sent += len(bodies)
                self.stopped.wait(0.02)  # what waits at the end has to be drained

    def send_and_give_up(self, destination, books, prefix):
        """A producer that does not reconnect: what was under way at a loss is unknown."""
        n = 0
        while not self.stopped.is_set():
            try:
                with hms.connect(self.address, reconnect=False, connect_timeout_s=60) as conn:
                    out = conn.session().producer(destination)
                    while not self.stopped.is_set():
                        body = f"{prefix}-{n}"
                        n += 1
                        books.invoke([body])
                        out.send(body.encode())
                        books.ok([body])
            except (hms.TpConnectionClosed, hms.RequestTimeout, hms.SendInDoubt):
                continue

    def transfer(self):
        """Takes an order and writes a ledger entry in one transaction."""
        orders, ledger = self.books["orders"], self.books["ledger"]
        with hms.connect(self.address, **CONNECT) as conn:
            session = conn.session(transacted=True)
            inn = session.consumer(hms.Queue("orders"), prefetch=50)
            out = session.producer(hms.Queue("ledger"))
            while not self.drained.is_set():
                bodies = []
                try:
                    while len(bodies) < 20 and (m := inn.receive(timeout_s=0.2)):
                        orders.received(m.body.decode(), m.redelivered, m.delivery_count)
                        bodies.append(m.body.decode())
                    ledger.invoke(bodies)
                    out.send_many([hms.Message(body.encode()) for body in bodies])
                    session.commit()
                except hms.TransactionRolledBack:
                    continue
                orders.acknowledged(bodies)
                ledger.ok(bodies)

    # consumers

    def consume(self, open_consumer, books):
        """Receives in CLIENT mode and acknowledges now and then."""
        with hms.connect(self.address, **CONNECT) as conn:
            session = conn.session(ack=hms.AckMode.CLIENT)
            inn = open_consumer(session)
            while not self.drained.is_set():
                bodies = []
                while len(bodies) < 30 and (m := inn.receive(timeout_s=0.2)):
                    books.received(m.body.decode(), m.redelivered, m.delivery_count)
                    bodies.append(m.body.decode())
                try:
                    session.ack()
                    books.acknowledged(bodies)
                except hms.AcknowledgeLost:
                    continue  # they come again, flagged


@pytest.mark.timeout(400)
def test_nothing_confirmed_is_lost_or_doubled_over_many_kills(tmp_path):
    """The product's one promise: confirmed is safe, whatever happens to the process."""
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    print(f"seed {seed}")
    with node(store=tmp_path / "store", config=CONFIG) as running:
        load = Load(running.address)
        books = load.books
        consumers, producers = load.consumers, load.producers
        orders, ledger, news = hms.Queue("orders"), hms.Queue("ledger"), hms.Topic("news")
        load.start(consumers, load.consume, lambda s: s.consumer(ledger), books["ledger"])
        load.start(
            consumers, load.consume, lambda s: s.subscriber(news, durable="billing"), books["news"]
        )
        _await_subscription(running.address)
        load.start(consumers, load.transfer)
        load.start(producers, load.send_through_outages, orders, books["orders"], "steady")
        load.start(producers, load.send_and_give_up, orders, books["orders"], "fickle")
        load.start(producers, load.send_through_outages, news, books["news"], "news")
        wait_until(lambda: load.faults or all(one.verdict().confirmed for one in books.values()))
        for _ in range(KILLS):
            load.stopped.wait(moments.uniform(0.05, 0.5))
            running.kill()
            running.boot(warm=True)
            assert not load.faults, load.faults
        load.stopped.set()
        load.join(producers)
        _drain(running.address, load)
        load.drained.set()
        load.join(consumers)
    for name, book in books.items():
        verdict = book.verdict()
        print(name, "confirmed", verdict.confirmed, "recovered", verdict.recovered)
        assert verdict.is_clean, (name, seed, verdict)
        assert verdict.confirmed > 0, f"{name}: no load, so nothing was shown"


def _await_subscription(address):
    with hms.connect(address, **CONNECT) as conn:
        wait_until(lambda: conn.administer("subscription.list"), 90)


def _drain(address, load, timeout_s=90):
    """Until nothing waits. Only a whole timeout_s in which nothing moves is a failure."""
    with hms.connect(address, **CONNECT) as conn:
        pause, before, until = threading.Event(), None, 0.0
        while left := _left(conn):
            assert not load.faults, load.faults
            if left != before:
                before, until = left, time.monotonic() + timeout_s
            assert time.monotonic() < until, left
            pause.wait(0.05)


def _left(conn):
    """What waits and what is in flight, by queue or subscription."""
    places = conn.administer("queue.list") + conn.administer("subscription.list")
    left = {str(place["name"]): (place["waiting"], place["in_flight"]) for place in places}
    return {name: numbers for name, numbers in left.items() if any(numbers)}
