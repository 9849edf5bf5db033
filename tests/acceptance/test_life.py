"""A node's life: WARM and COLD, draining, a silent node, ids that are never given twice."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import hms
from hms.testing import node
from tests.support.waiting import drained

CONFIG = {
    "node": {"n1": {"heartbeat_s": 1.0}},
    "hms": {
        "queue": {"orders": {}, "scratch": {"BOOT": "COLD"}},
        "topic": {"news": {}},
    },
}


@pytest.fixture
def running():
    with node(config=CONFIG) as started:
        yield started


def _send(running, queue, bodies, **options):
    with hms.connect(running.address) as conn, conn.session() as session:
        receipts = session.producer(hms.Queue(queue), **options).send_many(bodies)
        return [receipt.message_id for receipt in receipts]


def _take_all(running, queue):
    with hms.connect(running.address) as conn, conn.session() as session:
        consumer = session.consumer(hms.Queue(queue))
        return list(drained(conn, consumer))


def test_persistent_messages_survive_a_kill_and_others_do_not(running):
    """F-D1, F-H1."""
    _send(running, "orders", [b"safe"])
    _send(running, "orders", [b"fleeting"], persistent=False)
    running.kill()
    running.boot(warm=True)
    assert [message.body for message in _take_all(running, "orders")] == [b"safe"]


def test_a_destination_that_boots_cold_is_emptied_and_others_are_not(running):
    """F-H3: the destination's own option."""
    _send(running, "orders", [b"kept"])
    _send(running, "scratch", [b"dropped"])
    running.stop()
    running.boot()
    assert _take_all(running, "scratch") == []
    assert [message.body for message in _take_all(running, "orders")] == [b"kept"]


def test_the_command_line_decides_over_all_and_ids_are_never_given_again(running):
    """F-H2, F-D5: a COLD boot deletes messages, not the memory of which ids were used."""
    first = _send(running, "orders", [b"x"] * 10)
    fleeting = _send(running, "orders", [b"y"] * 10, persistent=False)
    running.kill()
    running.boot(warm=False)
    assert _take_all(running, "orders") == []
    second = _send(running, "orders", [b"z"] * 10)
    assert not set(second) & set(first + fleeting)
    assert min(second) > max(first + fleeting)
    assert all(len(message_id) == 12 and int(message_id, 16) for message_id in second)


def test_what_was_delivered_before_a_kill_comes_again_with_flag_and_count(running):
    """The delivery is in the log before it is made, so the count survives (docs/decisions/0006)."""
    _send(running, "orders", [b"a", b"b"])
    conn = hms.connect(running.address, reconnect=False)
    session = conn.session(ack=hms.AckMode.CLIENT)
    assert session.consumer(hms.Queue("orders"), prefetch=1).receive(timeout_s=10).body == b"a"
    running.kill()
    running.boot(warm=True)
    conn.close()
    again = _take_all(running, "orders")
    assert [m.body for m in again] == [b"a", b"b"]
    assert (again[0].redelivered, again[0].delivery_count) == (True, 2)


def test_sigterm_drains_and_says_good_bye(running):
    """A send under way is confirmed, then the client hears that the node stops."""
    told = []
    conn = hms.connect(running.address, reconnect=False, exception_listener=told.append)
    out = conn.session().producer(hms.Queue("orders"))
    futures = [out.send_async(b"%d" % i) for i in range(200)]
    assert running.stop() == 0
    outcomes = [future.exception(timeout=20) for future in futures]
    confirmed = sum(1 for outcome in outcomes if outcome is None)
    assert all(isinstance(o, hms.HmsError) for o in outcomes if o is not None)
    running.boot()
    assert len(_take_all(running, "orders")) >= confirmed
    assert told
    conn.close()


def test_a_silent_node_is_noticed_within_the_heartbeat_and_one_can_connect_again(running):
    """F-M7: a stopped process keeps its sockets open; only the silence tells."""
    told = threading.Event()
    conn = hms.connect(running.address, reconnect=False, exception_listener=lambda _: told.set())
    out = conn.session().producer(hms.Queue("orders"))
    out.send(b"before")
    running.pause()
    try:
        with pytest.raises(hms.SendInDoubt, match="nothing came"):
            out.send(b"into the silence")
        assert told.wait(10)
    finally:
        running.resume()
    conn.close()
    assert _send(running, "orders", [b"after"])


def test_a_lost_client_gives_back_what_it_had(running):
    """F-A3: its sessions are removed, what it did not acknowledge comes again to another."""
    _send(running, "orders", [b"a"])
    lost = hms.connect(running.address, reconnect=False)
    assert lost.session(ack=hms.AckMode.CLIENT).consumer(hms.Queue("orders")).receive(timeout_s=10)
    with hms.connect(running.address) as conn:
        assert len(conn.administer("session.list")) == 1
        lost.close()
        until = time.monotonic() + 20
        while conn.administer("session.list"):
            assert time.monotonic() < until, "the session is still there"
        again = conn.session().consumer(hms.Queue("orders")).receive(timeout_s=10)
    assert again.redelivered


def test_a_client_that_reconnects_goes_on_as_if_nothing_had_happened(running):
    """F-K4, F-D9: sends are confirmed once each, the consumer goes on, also over a kill."""
    conn = hms.connect(running.address, reconnect_interval_s=0.2, request_timeout_s=60)
    with conn, conn.session() as session:
        out = session.producer(hms.Queue("orders"))
        consumer = session.consumer(hms.Queue("orders"))
        out.send(b"one")
        assert consumer.receive(timeout_s=10).body == b"one"
        running.kill()
        running.boot(warm=True)
        out.send(b"two")
        bodies = [message.body for message in drained(conn, consumer)]
    assert bodies[-1] == b"two"
    assert bodies.count(b"two") == 1


def test_a_lost_transaction_is_told_at_the_next_commit_and_the_one_after_works(running):
    """F-K7."""
    conn = hms.connect(running.address, reconnect_interval_s=0.2, request_timeout_s=60)
    with conn:
        session = conn.session(transacted=True)
        out = session.producer(hms.Queue("orders"))
        out.send(b"lost")
        running.kill()
        running.boot(warm=True)
        with pytest.raises(hms.TransactionRolledBack):
            session.commit()
        out.send(b"kept")
        session.commit()
        session.close()
    assert [message.body for message in _take_all(running, "orders")] == [b"kept"]


def test_a_second_sigterm_stops_at_once_and_loses_nothing_confirmed(running):
    """An operator who cannot wait for the drain."""
    conn = hms.connect(running.address, reconnect=False)
    out = conn.session().producer(hms.Queue("orders"))
    futures = [out.send_async(b"%d" % i) for i in range(500)]
    os.kill(running.pid, signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    assert running.wait() == 0
    confirmed = [f.result().message_id for f in futures if f.exception(timeout=20) is None]
    conn.close()
    running.boot()
    kept = {message.message_id for message in _take_all(running, "orders")}
    assert set(confirmed) <= kept


def test_sighup_begins_a_new_log_file_and_the_node_goes_on(running):
    """Rotation sends it after it has moved the file; the signal's default ended the node without
    a drain."""
    old = running.log_file.with_name("old.log")
    running.log_file.rename(old)
    pause, until = threading.Event(), time.monotonic() + 20
    os.kill(running.pid, signal.SIGHUP)
    while "the log begins anew" not in running.log:
        assert time.monotonic() < until
        pause.wait(0.02)
    good = running.config_file.read_text()
    running.config_file.write_text(good + "\nspoilt")
    os.kill(running.pid, signal.SIGHUP)
    while "log_level stays as it is" not in running.log:
        assert time.monotonic() < until
        pause.wait(0.02)
    running.config_file.write_text(good)
    _send(running, "orders", [b"kept"])
    assert [message.body for message in _take_all(running, "orders")] == [b"kept"]
    assert running.stop() == 0
    assert "draining" in running.log
    assert "draining" not in old.read_text()


def test_the_status_says_since_when_where_and_how_much_room_there_is(running):
    """The first questions at night."""
    with hms.connect(running.address) as conn:
        told = conn.administer("status")
    assert told["listen"] == [running.address]
    assert told["uptime_s"] >= 0
    assert told["disk_free_bytes"] > 0


def test_a_cold_boot_says_how_many_messages_it_deleted(running):
    """Nobody could tell afterwards what was lost."""
    _send(running, "orders", [b"a", b"b", b"c"])
    running.stop()
    running.boot(warm=False)
    with hms.connect(running.address) as conn:
        assert conn.administer("status")["deleted_at_boot"] == 3
    assert "the COLD boot deleted 3 messages" in running.log


def test_a_client_that_falls_silent_is_missed_and_its_messages_go_to_another(running):
    """F-M7, the other way round: the client's process is stopped, its sockets stay open."""
    _send(running, "orders", [b"a"])
    client = [sys.executable, "-c", _SILENT_CLIENT, running.address]
    with subprocess.Popen(client, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "received\n"
            process.send_signal(signal.SIGSTOP)
            with hms.connect(running.address) as conn:
                again = conn.session().consumer(hms.Queue("orders")).receive(timeout_s=20)
            assert again.body == b"a"
            assert again.redelivered
        finally:
            process.kill()


_SILENT_CLIENT = """
import sys, hms
conn = hms.connect(sys.argv[1], reconnect=False)
session = conn.session(ack=hms.AckMode.CLIENT)
consumer = session.consumer(hms.Queue("orders"))
assert consumer.receive(timeout_s=10)
print("received", flush=True)
consumer.receive(timeout_s=60)
"""
