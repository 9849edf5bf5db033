"""Real nodes on a real database: the server stops under load, a node is paused past its lease.

HMS_HA=full: the server stops 60 times.
"""

import contextlib
import os
import signal
import threading

import pytest

import hms
from hms.testing import node
from tests.acceptance.database_rig import ORDERS, Confirmed, Load
from tests.support.books import Books
from tests.support.postgres import postgres_server
from tests.support.waiting import drained, wait_until

QUEUES = {"orders": {}, "ledger": {}}
STOPS = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGINT) * (
    15 if os.environ.get("HMS_HA") == "full" else 1
)
LEASE_S = 6
"""A loaded machine may not run a node for seconds, which is no loss of its lease."""


@pytest.fixture
def server():
    with postgres_server() as running:
        yield running


def on_database(url, **keys):
    """A configuration of one node with that database."""
    return {"node": {"node1": {"database": url, **keys}}, "hms": {"queue": QUEUES}}


@pytest.mark.timeout(300 + 60 * len(STOPS))
def test_a_server_that_stops_and_starts_under_load_loses_and_doubles_nothing(
    server, record_property
):
    """A restart, a crash and a kill of the database are no outage of the node."""
    with node(config=on_database(server.url)) as running:
        pid, load = running.pid, Load(running.address)
        for work in (load.send, load.transfer, load.receive):
            load.start(work)
        for how in STOPS:
            before = load.sent
            wait_until(lambda least=before + 200: load.sent > least, 60)
            server.stop(how)
            load.stopped.wait(0.5)
            server.start()
        load.stopped.set()
        wait_until(load.is_empty, 120)
        load.drained.set()
        load.join()
        assert running.pid == pid
        record_property("figures", {"stops": len(STOPS), "confirmed": load.sent})
        for books in (load.orders, load.ledger):
            verdict = books.verdict()
            print("confirmed", verdict.confirmed)
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
        assert running.wait(60) == 1
        assert "HMS-5022" in running.log
        server.start()
        running.boot(warm=True)
        with hms.connect(running.address) as conn, conn.session() as session:
            found = [m.message_id for m in session.browser(ORDERS, oldest_first=True)]
        assert found == sent


def test_a_node_paused_past_its_lease_refuses_to_go_on_once_another_has_the_store(server):
    """F-I3: the second node has everything that was confirmed, the first one adds nothing to it."""
    books, config = Books(), on_database(server.url, database_lease_s=LEASE_S)
    with node(config=config) as paused:
        sending = Confirmed(paused.address, books)
        sender = threading.Thread(target=sending, daemon=True)
        sender.start()
        wait_until(lambda: sending.count > 100, 60)
        with hms.connect(paused.address, reconnect=False) as before:
            inn = before.session(ack=hms.AckMode.CLIENT).consumer(ORDERS, prefetch=10)
            held = inn.receive(timeout_s=60)
            books.received(held.body.decode(), held.redelivered, held.delivery_count)
            with pytest.raises(hms.BootFailed, match="HMS-5001"), node(config=config):
                pass
            paused.pause()
            with _second(config) as other:
                _drain(other.address, books)
                rows = _rows(server)
                paused.resume()
                assert paused.wait(60) == 1
                assert "HMS-5020" in paused.log
                sender.join(60)
                with pytest.raises(hms.HmsError):
                    held.ack()
                assert _rows(server) == rows
                _drain(other.address, books)
    verdict = books.verdict()
    print("confirmed", verdict.confirmed, "recovered", verdict.recovered)
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
        yield wait_until(attempt, 60)


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
        for message in drained(conn, inn):
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
