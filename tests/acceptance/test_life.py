"""A node's life: WARM and COLD, draining, a silent node, ids that are never given twice."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

import hms
import hms.testing
from tests.support.waiting import drained, wait_until

CONFIG = {
    "hms": {
        "queue": {"orders": {}, "scratch": {"BOOT": "COLD"}},
        "topic": {"news": {}},
    },
}


SERVICE = """
from tpmon import service


@service("COFFEE")
def coffee(request):
    return request.data
"""


@pytest.fixture
def brisk(tmp_path):
    """A node that misses who is silent after 3 s: the other tests have none who is, and a busy
    machine may stand still for longer."""
    config = CONFIG | {"node": {"n1": {"heartbeat_s": 1.5}}}
    with hms.testing.node(store=tmp_path / "store", config=config) as started:
        yield started


def _send(node, queue, bodies, **options):
    with hms.connect(node.address) as conn, conn.session() as session:
        receipts = session.producer(hms.Queue(queue), **options).send_many(bodies)
        return [receipt.message_id for receipt in receipts]


def _take_all(node, queue):
    with hms.connect(node.address) as conn, conn.session() as session:
        consumer = session.consumer(hms.Queue(queue))
        return list(drained(conn, consumer))


def test_persistent_messages_survive_a_kill_and_others_do_not(node):
    """F-D1, F-H1."""
    _send(node, "orders", [b"safe"])
    _send(node, "orders", [b"fleeting"], persistent=False)
    node.kill()
    node.boot(warm=True)
    assert [message.body for message in _take_all(node, "orders")] == [b"safe"]


def test_a_destination_that_boots_cold_is_emptied_and_others_are_not(node):
    """F-H3: the destination's own option."""
    _send(node, "orders", [b"kept"])
    _send(node, "scratch", [b"dropped"])
    node.stop()
    node.boot()
    assert _take_all(node, "scratch") == []
    assert [message.body for message in _take_all(node, "orders")] == [b"kept"]


def test_the_command_line_decides_over_all_and_ids_are_never_given_again(node):
    """F-H2, F-D5: a COLD boot deletes messages, not the memory of which ids were used."""
    first = _send(node, "orders", [b"x"] * 10)
    fleeting = _send(node, "orders", [b"y"] * 10, persistent=False)
    node.kill()
    node.boot(warm=False)
    assert _take_all(node, "orders") == []
    second = _send(node, "orders", [b"z"] * 10)
    assert not set(second) & set(first + fleeting)
    assert min(second) > max(first + fleeting)
    assert all(len(message_id) == 12 and int(message_id, 16) for message_id in second)


def test_what_was_delivered_before_a_kill_comes_again_with_flag_and_count(node):
    """The delivery is in the log before it is made, so the count survives (docs/decisions/0006)."""
    _send(node, "orders", [b"a", b"b"])
    conn = hms.connect(node.address, reconnect=False)
    session = conn.session(ack=hms.AckMode.CLIENT)
    assert session.consumer(hms.Queue("orders"), prefetch=1).receive(timeout_s=60).body == b"a"
    node.kill()
    node.boot(warm=True)
    conn.close()
    again = _take_all(node, "orders")
    assert [m.body for m in again] == [b"a", b"b"]
    assert (again[0].redelivered, again[0].delivery_count) == (True, 2)


def test_sigterm_drains_and_says_good_bye(node):
    """A send under way is confirmed, then the client hears that the node stops."""
    told = []
    conn = hms.connect(node.address, reconnect=False, exception_listener=told.append)
    out = conn.session().producer(hms.Queue("orders"))
    futures = [out.send_async(b"%d" % i) for i in range(200)]
    assert node.stop() == 0
    outcomes = [future.exception(timeout=250) for future in futures]
    confirmed = sum(1 for outcome in outcomes if outcome is None)
    assert all(isinstance(o, hms.HmsError) for o in outcomes if o is not None)
    node.boot()
    assert len(_take_all(node, "orders")) >= confirmed
    wait_until(lambda: told)
    conn.close()


def test_a_silent_node_is_noticed_within_the_heartbeat_and_one_can_connect_again(brisk):
    """F-M7: a stopped process keeps its sockets open; only the silence tells."""
    told = threading.Event()
    conn = hms.connect(brisk.address, reconnect=False, exception_listener=lambda _: told.set())
    out = conn.session().producer(hms.Queue("orders"))
    out.send(b"before")
    brisk.pause()
    try:
        # Lost it is, where the silence was noticed before the send.
        with pytest.raises((hms.SendInDoubt, hms.ConnectionLost), match="nothing came"):
            out.send(b"into the silence")
        assert told.wait(60)
    finally:
        brisk.resume()
    conn.close()
    assert _send(brisk, "orders", [b"after"])


def test_a_lost_client_gives_back_what_it_had(node):
    """F-A3: its sessions are removed, what it did not acknowledge comes again to another."""
    _send(node, "orders", [b"a"])
    lost = hms.connect(node.address, reconnect=False)
    assert lost.session(ack=hms.AckMode.CLIENT).consumer(hms.Queue("orders")).receive(timeout_s=60)
    with hms.connect(node.address) as conn:
        assert len(conn.administer("session.list")) == 1
        lost.close()
        wait_until(lambda: not conn.administer("session.list"))
        again = conn.session().consumer(hms.Queue("orders")).receive(timeout_s=60)
    assert again.redelivered


def test_a_client_that_reconnects_goes_on_as_if_nothing_had_happened(node):
    """F-K4, F-D9: sends are confirmed once each, the consumer goes on, also over a kill."""
    conn = hms.connect(node.address, reconnect_interval_s=0.2, request_timeout_s=60)
    with conn, conn.session() as session:
        out = session.producer(hms.Queue("orders"))
        consumer = session.consumer(hms.Queue("orders"))
        out.send(b"one")
        assert consumer.receive(timeout_s=60).body == b"one"
        node.kill()
        node.boot(warm=True)
        out.send(b"two")
        bodies = [message.body for message in drained(conn, consumer)]
    assert bodies[-1] == b"two"
    assert bodies.count(b"two") == 1


def test_a_lost_transaction_is_told_at_the_next_commit_and_the_one_after_works(node):
    """F-K7."""
    conn = hms.connect(node.address, reconnect_interval_s=0.2, request_timeout_s=60)
    with conn:
        session = conn.session(transacted=True)
        out = session.producer(hms.Queue("orders"))
        out.send(b"lost")
        node.kill()
        wait_until(lambda: not conn.is_connected)  # else its commit may be in doubt
        node.boot(warm=True)
        with pytest.raises(hms.TransactionRolledBack):
            session.commit()
        out.send(b"kept")
        session.commit()
        session.close()
    assert [message.body for message in _take_all(node, "orders")] == [b"kept"]


def test_a_second_sigterm_stops_at_once_and_loses_nothing_confirmed(node):
    """An operator who cannot wait for the drain."""
    conn = hms.connect(node.address, reconnect=False)
    out = conn.session().producer(hms.Queue("orders"))
    futures = [out.send_async(b"%d" % i) for i in range(500)]
    pid = node.pid  # it has none any more when it has ended before the second one
    os.kill(pid, signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    assert node.wait() == 0
    confirmed = [f.result().message_id for f in futures if f.exception(timeout=250) is None]
    conn.close()
    node.boot()
    kept = {message.message_id for message in _take_all(node, "orders")}
    assert set(confirmed) <= kept


def test_sighup_begins_a_new_log_file_and_the_node_goes_on(node):
    """Rotation sends it after it has moved the file; the signal's default ended the node without
    a drain."""
    old = node.log_file.with_name("old.log")
    node.log_file.rename(old)
    os.kill(node.pid, signal.SIGHUP)
    wait_until(lambda: "the log begins anew" in node.log)
    good = node.config_file.read_text()
    node.config_file.write_text(good + "\nspoilt")
    os.kill(node.pid, signal.SIGHUP)
    wait_until(lambda: "log_level stays as it is" in node.log)
    node.config_file.write_text(good)
    _send(node, "orders", [b"kept"])
    assert [message.body for message in _take_all(node, "orders")] == [b"kept"]
    assert node.stop() == 0
    assert "draining" in node.log
    assert "draining" not in old.read_text()


def test_the_status_says_since_when_where_and_how_much_room_there_is(node):
    """The first questions at night."""
    with hms.connect(node.address) as conn:
        told = conn.administer("status")
    assert told["listen"] == [node.address]
    assert told["uptime_s"] >= 0
    assert told["disk_free_bytes"] > 0


def test_a_cold_boot_says_how_many_messages_it_deleted(node):
    """Nobody could tell afterwards what was lost."""
    _send(node, "orders", [b"a", b"b", b"c"])
    node.stop()
    node.boot(warm=False)
    with hms.connect(node.address) as conn:
        assert conn.administer("status")["deleted_at_boot"] == 3
    assert "the COLD boot deleted 3 messages" in node.log


def test_a_client_that_falls_silent_is_missed_and_its_messages_go_to_another(brisk):
    """F-M7, the other way round: the client's process is stopped, its sockets stay open."""
    _send(brisk, "orders", [b"a"])
    client = [sys.executable, "-c", _SILENT_CLIENT, brisk.address]
    with subprocess.Popen(client, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "received\n"
            process.send_signal(signal.SIGSTOP)
            with hms.connect(brisk.address) as conn:
                again = conn.session().consumer(hms.Queue("orders")).receive(timeout_s=60)
            assert again.body == b"a"
            assert again.redelivered
        finally:
            process.kill()


_SILENT_CLIENT = """
import sys, hms
conn = hms.connect(sys.argv[1])
session = conn.session(ack=hms.AckMode.CLIENT)
consumer = session.consumer(hms.Queue("orders"))
assert consumer.receive(timeout_s=60)
print("received", flush=True)
consumer.receive(timeout_s=60)
"""


def test_paths_of_a_test_node_are_relative_to_where_the_test_runs(tmp_path, monkeypatch):
    """The store was made in a private folder and went with the block, and no service was found."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "bar.py").write_text(SERVICE)
    given = {"store": "kept", "config": CONFIG, "serve": ["bar"], "python_path": ["services"]}
    with hms.testing.node(**given) as node, hms.connect(node.address) as conn:
        assert conn.call("COFFEE", b"black", timeout_s=60).data == b"black"
        _send(node, "orders", [b"kept"])
    with hms.testing.node(**given) as node:
        assert [message.body for message in _take_all(node, "orders")] == [b"kept"]


def test_paths_of_a_configuration_that_a_test_node_is_given_are_relative_to_it(tmp_path):
    """As they are where the file is booted: a service lies beside it, and so do other files."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "bar.py").write_text(SERVICE)
    (folder / "hms.conf").write_text(
        '[node.n1]\nlog_file = "log/n1.log"\n[server.bar]\nmodule = "bar"\n[hms.queue.server]\n'
    )
    with hms.testing.node(config=folder / "hms.conf") as node, hms.connect(node.address) as conn:
        assert conn.call("COFFEE", b"black", timeout_s=60).data == b"black"
        assert f'"{folder}/log/n1.log"' in node.config_file.read_text()
