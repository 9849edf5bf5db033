"""The log's directory removed, moved, full or read-only: refused, or stopped, with the reason."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hms
from hms.testing import node
from tests.support.waiting import wait_until

CONFIG = {"hms": {"queue": {"orders": {}}}}
SIZES = {"max_message_bytes": "64 KiB", "max_transaction_bytes": "64 KiB", "segment_bytes": "1 MiB"}
SMALL = {"node": {"node1": SIZES}} | CONFIG
BODY = bytes(16_000)


@contextlib.contextmanager
def small_disk(folder, size):
    """A tmpfs in a mount namespace of its own: its view from outside, and how to run inside."""
    folder.mkdir()
    script = f'mount -t tmpfs -o size={size} tmpfs "$0" && echo mounted && exec sleep 600'
    command = ["unshare", "-rm", "sh", "-c", script, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "mounted\n"
            inside = ["nsenter", "-t", str(holder.pid), "-U", "-m", "--preserve-credentials"]
            yield Path(f"/proc/{holder.pid}/root{folder}"), inside
        finally:
            holder.kill()


def _send_until_refused(out, body=BODY, most=2000):
    sent = []
    for _ in range(most):
        try:
            sent.append(out.send(body).message_id)
        except hms.StoreFull as full:
            return sent, full
    raise AssertionError("the disk does not become full")


def _are_more_than(wanted, sent, out):
    """Send until it is refused; whether so many were taken in all. A busy machine may clean for
    longer than a sender waits."""
    sent += _send_until_refused(out, bytes(500_000))[0]
    return len(sent) > wanted


def _can_send(out):
    try:
        out.send(BODY)
    except hms.StoreFull:
        return False
    return True


def _ids(address):
    with (
        hms.connect(address) as conn,
        conn.session() as session,
        session.browser(hms.Queue("orders"), oldest_first=True) as browser,
    ):
        return [message.message_id for message in browser]


def test_a_full_disk_refuses_sends_lets_acknowledgements_through_and_loses_nothing(tmp_path):
    """P10: who cannot acknowledge on a full disk can never empty it."""
    with small_disk(tmp_path / "disk", "8m") as (seen, inside):
        filler = seen / "filler"
        filler.write_bytes(bytes(2 << 20))
        store = tmp_path / "disk" / "store"
        with node(store=store, config=SMALL, command_prefix=inside) as running:
            with hms.connect(running.address, reconnect=False) as conn:
                out = conn.session().producer(hms.Queue("orders"))
                sent, full = _send_until_refused(out)
                assert "space" in str(full)
                taken = _take(conn, 20)
                assert taken == sent[:20]
                filler.unlink()
                wait_until(lambda: _can_send(out), 60)
            before = _ids(running.address)
            assert before[: len(sent) - 20] == sent[20:]
            running.kill()
            running.boot(warm=True)
            assert _ids(running.address) == before


def test_a_node_that_was_killed_or_stopped_boots_on_a_full_disk(tmp_path):
    """Its pid file found no room: "the node did not boot: None: No space left on device"."""
    with small_disk(tmp_path / "disk", "12m") as (seen, inside):
        conf = tmp_path / "disk" / "hms.conf"
        address = f"ipc://{tmp_path}/hms.sock"
        sizes = "".join(f'{key} = "{size}"\n' for key, size in SIZES.items())
        text = f'[node.N1]\nlisten = ["{address}"]\n{sizes}[hms.queue.orders]\n'
        (seen / "hms.conf").write_text(text)

        def run(*words):
            command = [*inside, sys.executable, "-m", "hms.boot", *words, "--config", str(conf)]
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=250)
            assert done.returncode == 0, done.stderr

        def fill():
            file = seen / f"filler-{os.urandom(4).hex()}"
            with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
                while filler.write(bytes(4096)):
                    pass

        def kill():
            pid = int((seen / "var/N1/run/N1.pid").read_text())
            handle = os.pidfd_open(pid)
            os.kill(pid, signal.SIGKILL)
            select.select([handle], [], [], 60)
            os.close(handle)

        run("boot")
        try:
            with hms.connect(address) as conn:
                sent = conn.session().producer(hms.Queue("orders")).send(BODY).message_id
            kill()
            fill()
            run("boot")
            assert _ids(address) == [sent]
            run("down")
            fill()
            run("boot")
            assert _ids(address) == [sent]
        finally:
            run("down", "--now")


@pytest.mark.parametrize("history", [{}, {"history_bytes": 0}], ids=["history", "no history"])
def test_large_messages_are_drained_from_a_full_disk_and_sending_goes_on(tmp_path, history):
    """P10: cleaning for their sake once needed space that was not there, and stopped the node."""
    sizes = {"max_message_bytes": "1 MiB", "max_transaction_bytes": "1 MiB"}
    own = {"node": {"node1": sizes | {"segment_bytes": "4 MiB"} | history}}
    with small_disk(tmp_path / "disk", "48m") as (_, inside):
        store = tmp_path / "disk" / "store"
        with node(store=store, config=own | CONFIG, command_prefix=inside) as running:
            with hms.connect(running.address, reconnect=False) as conn:
                out = conn.session().producer(hms.Queue("orders"))
                first, full = _send_until_refused(out, bytes(500_000))
                assert full.number == 5005
                assert len(first) > 30
                assert _take(conn, len(first)) == first
                wait_until(lambda: _can_send(out), 60)
                _take(conn, 1)
                again = []
                wait_until(lambda: _are_more_than(len(first) // 2, again, out), 60)
                running.kill()
            running.boot(warm=True)
            with hms.connect(running.address, reconnect=False) as conn:
                out = conn.session().producer(hms.Queue("orders"))
                assert _take(conn, len(again)) == again
                wait_until(lambda: _can_send(out), 60)


def _take(conn, count):
    """Receive and acknowledge, each acknowledgement confirmed."""
    with conn.session(ack=hms.AckMode.CLIENT) as session:
        inn = session.consumer(hms.Queue("orders"), prefetch=1)
        taken = []
        for _ in range(count):
            message = inn.receive(timeout_s=60)
            message.ack()
            taken.append(message.message_id)
        return taken


CLIENTS = 50
CROWD_S = 120
"""The first one waits for the last one, which waits for its turn."""


class Crowd:
    """Clients in threads: each sends until it is refused, and sends on when there is room."""

    def __init__(self, address, count):
        self._address, self._lock = address, threading.Lock()
        self.sent, self.refusals, self.has_room = [], [], threading.Event()
        self._pool = ThreadPoolExecutor(count)
        self._working = [self._pool.submit(self._work) for _ in range(count)]

    def _work(self):
        with hms.connect(self._address, reconnect=False) as conn, conn.session() as session:
            out = session.producer(hms.Queue("orders"))
            refusal = self._send(out, 2000)
            assert refusal is not None, "the disk does not become full"
            with self._lock:
                self.refusals.append(refusal)
            assert self.has_room.wait(CROWD_S)
            wait_until(lambda: self._send(out, 1) is None, CROWD_S)
            assert self._send(out, 2) is None

    def _send(self, out, most):
        """The refusal, or None when all of them were confirmed."""
        for _ in range(most):
            try:
                message_id = out.send(BODY).message_id
            except hms.StoreFull as full:
                return full
            with self._lock:
                self.sent.append(message_id)
        return None

    def finish(self):
        for one in self._working:
            one.result(timeout=250)
        self._pool.shutdown()


def test_fifty_clients_meet_a_full_disk_and_go_on_when_there_is_space(tmp_path):
    """None of them may lose a message, hang, or need the node to be started again."""
    with small_disk(tmp_path / "disk", "24m") as (seen, inside):
        filler = seen / "filler"
        filler.write_bytes(bytes(10 << 20))
        store = tmp_path / "disk" / "store"
        with node(store=store, config=SMALL, command_prefix=inside) as running:
            pid, crowd = running.pid, Crowd(running.address, CLIENTS)
            wait_until(lambda: len(crowd.refusals) == CLIENTS, CROWD_S)
            assert {full.number for full in crowd.refusals} == {5005}
            assert all("free space on that disk" in full.cure for full in crowd.refusals)
            before = set(crowd.sent)
            with hms.connect(running.address) as conn:
                taken = _take(conn, 20) + _take_in_a_transaction(conn, 5)
            assert len(before & set(taken)) == 25
            filler.unlink()
            crowd.has_room.set()
            crowd.finish()
            assert running.pid == pid
            left = set(crowd.sent) - set(taken)
            assert len(crowd.sent) >= len(before) + 3 * CLIENTS
            assert sorted(_ids(running.address)) == sorted(left)
            running.kill()
            running.boot(warm=True)
            assert sorted(_ids(running.address)) == sorted(left)


def _take_in_a_transaction(conn, count):
    """Receive and commit."""
    with conn.session(transacted=True) as session:
        inn = session.consumer(hms.Queue("orders"), prefetch=1)
        taken = [inn.receive(timeout_s=60).message_id for _ in range(count)]
        session.commit()
        return taken


def test_a_read_only_disk_refuses_to_boot_with_the_reason_and_keeps_everything(tmp_path):
    """A node that cannot write must not pretend to store."""
    with small_disk(tmp_path / "disk", "16m") as (_, inside):
        store = tmp_path / "disk" / "store"
        with node(store=store, config=SMALL, command_prefix=inside) as running:
            with hms.connect(running.address) as conn:
                sent = conn.session().producer(hms.Queue("orders")).send(BODY).message_id
            running.stop()
            mount = [*inside, "mount", "-o", "remount,ro", str(tmp_path / "disk")]
            subprocess.run(mount, check=True, timeout=250)
            with pytest.raises(hms.BootFailed, match=r"[Rr]ead-only"):
                running.boot(warm=True)
            subprocess.run([w.replace("remount,ro", "remount,rw") for w in mount], check=True)
            running.boot(warm=True)
            assert _ids(running.address) == [sent]


def test_a_moved_directory_stops_the_node_and_nothing_confirmed_is_missing(tmp_path):
    """Writing on into files that no path leads to would lose messages in silence."""
    store = tmp_path / "store"
    with node(store=store, config=SMALL) as running:
        with hms.connect(running.address, reconnect=False) as conn:
            out = conn.session().producer(hms.Queue("orders"))
            sent = [out.send(BODY).message_id for _ in range(10)]
            store.rename(tmp_path / "elsewhere")
            with pytest.raises(hms.HmsError):
                out.send(BODY)
        assert running.wait(60) == 1
        assert "HMS-5004" in running.log
        (tmp_path / "elsewhere").rename(store)
        running.boot(warm=True)
        assert _ids(running.address)[:10] == sent


def test_a_removed_directory_stops_the_node_with_the_reason(tmp_path):
    """Nothing more may be confirmed once the log is gone."""
    store = tmp_path / "store"
    with node(store=store, config=SMALL) as running:
        with hms.connect(running.address, reconnect=False) as conn:
            out = conn.session().producer(hms.Queue("orders"))
            out.send(BODY)
            shutil.rmtree(store)
            with pytest.raises(hms.HmsError):
                out.send(BODY)
        assert running.wait(60) == 1
        assert "HMS-5004" in running.log


def test_a_second_node_on_one_store_is_refused(tmp_path):
    """Two writers on one log would be the end of both (F-I3)."""
    store = tmp_path / "store"
    with node(store=store, config=SMALL) as running:
        with (
            pytest.raises(hms.BootFailed, match="HMS-5001"),
            node(store=store, config=SMALL),
        ):
            raise AssertionError("it booted")
        assert running.is_running


def test_a_node_that_is_booted_more_often_than_it_fills_a_segment_reads_no_long_log(tmp_path):
    """What is cleaned leaves the log with the next segment: none was begun between two boots, and
    each boot read, and kept, all that there ever was."""
    folder = tmp_path / "store"

    def segments():
        return [file for file in folder.glob("*.log") if file.stem.isdigit()]

    with node(store=folder, config=SMALL) as running:
        for _ in range(18):
            with hms.connect(running.address) as conn, conn.session() as session:
                session.producer("orders").send_many([BODY] * 40)
                consumer = session.consumer("orders")
                for _ in range(40):
                    assert consumer.receive(60) is not None
            running.stop()
            running.boot()
        wait_until(lambda: len(segments()) <= 14)
