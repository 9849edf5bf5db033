"""Real nodes on a real database: the server stops under load, a node is paused past its lease."""

import contextlib
import signal
import threading
import time

import pytest

import hms
from hms.testing import node
from tests.support.books import Books
from tests.support.postgres import postgres_server

CONNECT = {"reconnect_interval_s": 0.2, "connect_timeout_s": 60, "request_timeout_s": 60}
ORDERS, LEDGER = hms.Queue("orders"), hms.Queue("ledger")
QUEUES = {"orders": {}, "ledger": {}}


@pytest.fixture
def server():
    with postgres_server() as running:
        yield running


def on_database(url, **keys):
    """A configuration of one node with that database."""
    return {"node": {"node1": {"database": url, **keys}}, "hms": {"queue": QUEUES}}


def until(is_true, timeout_s=60):
    pause, end = threading.Event(), time.monotonic() + timeout_s
    while not (found := is_true()):
        assert time.monotonic() < end, "it does not happen"
        pause.wait(0.05)
    return found


class Load:
    """Senders, a transfer between two queues in transactions, and a receiver, with their books."""

    def __init__(self, address):
        self.address = address
        self.orders, self.ledger = Books(), Books()
        self.stopped, self.drained = threading.Event(), threading.Event()
        self.sent = 0
        self._faults = []
        self._threads = []

    def start(self, work):
        def run():
            try:
                work()
            except BaseException as fault:
                self._faults.append(fault)
                raise

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

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
        with hms.connect(self.address, **CONNECT) as conn:
            queues = conn.administer("queue.list")
        return not any(queue["waiting"] + queue["in_flight"] for queue in queues)


def test_a_server_that_stops_and_starts_under_load_loses_and_doubles_nothing(server):
    """A restart, a crash and a kill of the database are no outage of the node."""
    with node(config=on_database(server.url)) as running:
        pid, load = running.pid, Load(running.address)
        for work in (load.send, load.transfer, load.receive):
            load.start(work)
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGINT):
            before = load.sent
            until(lambda least=before + 200: load.sent > least)
            server.stop(how)
            load.stopped.wait(0.5)
            server.start()
        load.stopped.set()
        until(load.is_empty)
        load.drained.set()
        load.join()
        assert running.pid == pid
        for books in (load.orders, load.ledger):
            verdict = books.verdict()
            assert verdict.is_clean, verdict
            assert verdict.confirmed == load.sent
        assert running.stop() == 0


def test_a_server_that_stays_away_stops_the_node_with_the_reason_and_loses_nothing(server):
    """P7: the node says why it stops, and what it confirmed is there when both are back."""
    with node(config=on_database(server.url, database_retry_s=1)) as running:
        with hms.connect(running.address, reconnect=False) as conn:
            out = conn.session().producer(ORDERS)
            sent = [out.send(b"x").message_id for _ in range(10)]
            server.stop()
            with pytest.raises(hms.HmsError):
                out.send(b"never confirmed")
        assert running.wait(30) == 1
        assert "HMS-5022" in running.log
        server.start()
        running.boot(warm=True)
        with hms.connect(running.address) as conn, conn.session() as session:
            found = [m.message_id for m in session.browser(ORDERS, oldest_first=True)]
        assert found == sent


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


def test_a_node_paused_past_its_lease_refuses_to_go_on_once_another_has_the_store(server):
    """F-I3: the second node has everything that was confirmed, the first one adds nothing to it."""
    books, config = Books(), on_database(server.url, database_lease_s=1)
    with node(config=config) as paused:
        sending = Confirmed(paused.address, books)
        sender = threading.Thread(target=sending, daemon=True)
        sender.start()
        until(lambda: sending.count > 100)
        with hms.connect(paused.address, reconnect=False) as before:
            inn = before.session(ack=hms.AckMode.CLIENT).consumer(ORDERS, prefetch=10)
            held = inn.receive(timeout_s=20)
            books.received(held.body.decode(), held.redelivered, held.delivery_count)
            with pytest.raises(hms.BootFailed, match="HMS-5001"), node(config=config):
                pass
            paused.pause()
            with _second(config) as other:
                _drain(other.address, books)
                rows = _rows(server)
                paused.resume()
                assert paused.wait(30) == 1
                assert "HMS-5020" in paused.log
                sender.join(30)
                with pytest.raises(hms.HmsError):
                    held.ack()
                assert _rows(server) == rows
                _drain(other.address, books)
                assert other.stop() == 0
    verdict = books.verdict()
    assert verdict.is_clean, verdict
    assert verdict.confirmed == sending.count > 100


@contextlib.contextmanager
def _second(config):
    """A node on the same store, booted as soon as the lease of the first one is over."""

    def attempt():
        with contextlib.suppress(hms.BootFailed):
            return stack.enter_context(node(config=config))
        return None

    with contextlib.ExitStack() as stack:
        yield until(attempt)


def _rows(server):
    """What the tables of messages hold."""
    return [
        server.ask(f"SELECT count(*), max(position) FROM node1_{table}")
        for table in ("message", "subscription_message", "log")
    ]


def _drain(address, books):
    """Receive and acknowledge all that is there, one after the other."""
    with hms.connect(address) as conn, conn.session(ack=hms.AckMode.CLIENT) as session:
        inn = session.consumer(ORDERS)
        while message := inn.receive(timeout_s=1):
            books.received(message.body.decode(), message.redelivered, message.delivery_count)
            message.ack()
            books.acknowledged([message.body.decode()])


def test_a_node_on_sqlite_survives_kills_and_refuses_a_second_one(tmp_path):
    """The same guarantees without a server, for a single node (F-I2)."""
    config = on_database(f"sqlite:{tmp_path / 'store.db'}")
    with node(config=config) as running:
        sent = []
        for _ in range(3):
            with hms.connect(running.address, reconnect=False) as conn:
                out = conn.session().producer(ORDERS)
                sent += [out.send(b"x").message_id for _ in range(20)]
            running.kill()
            running.boot(warm=True)
        with pytest.raises(hms.BootFailed, match="HMS-5001"), node(config=config):
            pass
        with hms.connect(running.address) as conn, conn.session() as session:
            found = [m.message_id for m in session.browser(ORDERS, oldest_first=True)]
        assert found == sent
