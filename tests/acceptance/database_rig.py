"""What the acceptance tests of the database store share: clients that keep books."""

import contextlib
import threading

import hms
from tests.support.books import Books

CONNECT = {"reconnect_interval_s": 0.2, "connect_timeout_s": 180, "request_timeout_s": 180}
"""Longer than any outage of a test on a busy machine: nothing is in doubt."""
ORDERS, LEDGER = hms.Queue("orders"), hms.Queue("ledger")


class Load:
    """Senders, a transfer between two queues in transactions, and a receiver, with their books."""

    def __init__(self, address):
        self.address = address
        self.orders, self.ledger = Books(), Books()
        self.stopped, self.drained = threading.Event(), threading.Event()
        self.sent = 0
        self._faults = []
        self._threads, self._senders = [], []

    def start(self, work):
        def run():
            try:
                work()
            except BaseException as fault:
                self._faults.append(fault)
                raise

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        if work == self.send:
            self._senders.append(thread)
        thread.start()

    def join(self):
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client does not end"
        assert not self._faults, self._faults

    def send(self):
        """Through outages: each message has to be there exactly once."""
        with hms.connect(self.address, **CONNECT) as conn, conn.session() as session:
            out = session.producer(ORDERS)
            while not self.stopped.is_set():
                bodies = [f"order-{self.sent + i}" for i in range(20)]
                self.sent += len(bodies)
                self.orders.invoke(bodies)
                out.send_many([hms.Message(body.encode()) for body in bodies])
                self.orders.ok(bodies)

    def transfer(self):
        """From orders to ledger, both or neither."""
        with hms.connect(self.address, **CONNECT) as conn:
            session = conn.session(transacted=True)
            inn, out = session.consumer(ORDERS, prefetch=40), session.producer(LEDGER)
            while not self.drained.is_set():
                bodies = []
                while len(bodies) < 10 and (m := inn.receive(timeout_s=0.2)):
                    bodies.append(m.body.decode())
                    self.orders.received(bodies[-1], m.redelivered, m.delivery_count)
                    self.ledger.invoke(bodies[-1:])
                    out.send(m.body)
                try:
                    session.commit()
                except hms.TransactionRolledBack:
                    continue
                self.orders.acknowledged(bodies)
                self.ledger.ok(bodies)

    def receive(self):
        """And acknowledge by call."""
        with hms.connect(self.address, **CONNECT) as conn:
            session = conn.session(ack=hms.AckMode.CLIENT)
            inn = session.consumer(LEDGER)
            while not self.drained.is_set():
                bodies = []
                while len(bodies) < 30 and (m := inn.receive(timeout_s=0.2)):
                    self.ledger.received(m.body.decode(), m.redelivered, m.delivery_count)
                    bodies.append(m.body.decode())
                try:
                    session.ack()
                except hms.AcknowledgeLost:
                    continue
                self.ledger.acknowledged(bodies)

    def is_empty(self):
        """Whether all is sent and nothing is left: what a sender has under way is in no queue."""
        if any(thread.is_alive() for thread in self._senders):
            return False
        with hms.connect(self.address, **CONNECT) as conn:
            queues = conn.administer("queue.list")
        return not any(queue["waiting"] + queue["in_flight"] for queue in queues)


class Confirmed:
    """A sender that knows what was confirmed, until its node is gone."""

    def __init__(self, address, books):
        self._address, self._books = address, books
        self.count = 0

    def __call__(self):
        with (
            contextlib.suppress(hms.HmsError),
            hms.connect(self._address, reconnect=False, request_timeout_s=60) as conn,
        ):
            out = conn.session().producer(ORDERS)
            while True:
                body = f"order-{self.count}"
                self._books.invoke([body])
                out.send(body.encode())
                self._books.ok([body])
                self.count += 1
