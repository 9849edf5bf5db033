"""A subscriber that stopped, and one that is frozen, on a topic at full speed: on a real node.

15,000 bytes times 10,000 messages are 143 MiB: whoever kept them for one of the two would show.
The frozen one stays connected, however long the others take.
"""

import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import hms

ROOT = Path(__file__).resolve().parent.parent.parent
CONFIG = """
[node.node1]
# The frozen one is not taken for lost, however slow the machine is.
heartbeat_s = 600
max_pending_bytes = "4 MiB"
max_message_bytes = "256 KiB"
[hms.topic.news]
"""
MIB = 1 << 20
BODY, BATCH, BATCHES = b"x" * 15_000, 100, 100
NODE_GROWTH_MAX = 48 * MIB
"""Twice max_pending_bytes (4 MiB), four times a prefetch (1.4 MiB) in the engine and once more in
the sockets, batches on their way, and what an allocator keeps for itself."""
CLIENT_GROWTH_MAX = 16 * MIB
"""100 messages are 1.4 MiB; the rest is the library's first use."""
WAIT_S = 60

STOPPED = """
import sys, hms
with hms.connect(sys.argv[1]) as conn, conn.session() as session:
    consumer = session.subscriber(hms.Topic("news"), prefetch=100)
    print("subscribed", flush=True)
    sys.stdin.read()
"""


def _rss(pid):
    """Bytes of memory that a process really has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return kib * 1024


@contextmanager
def _subscriber_that_never_reads(address):
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    try:
        assert process.stdout.readline() == "subscribed\n"
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate(timeout=WAIT_S)


def _read(address, ready, room, counts):
    """A subscriber that keeps up; each BATCH lets the publisher send another one."""
    with hms.connect(address) as conn, conn.session() as session:
        consumer = session.subscriber(hms.Topic("news"), prefetch=100)
        ready.release()
        got = 0
        while got < BATCH * BATCHES:
            message = consumer.receive(WAIT_S)
            assert message is not None
            got += 1
            if not got % BATCH:
                room.release()
        counts.append(got)


def _start_reader(address, ready, room, counts):
    thread = threading.Thread(target=_read, args=(address, ready, room, counts))
    thread.start()
    assert ready.acquire(timeout=WAIT_S)
    return thread


def _publish(address, rooms):
    with hms.connect(address) as conn, conn.session() as session:
        producer = session.producer(hms.Topic("news"), persistent=False)
        for _ in range(BATCHES):
            for room in rooms:
                assert room.acquire(timeout=WAIT_S)
            producer.send_many([BODY] * BATCH)


def test_stopped_subscribers_cost_themselves_and_nobody_else(node):
    """F-E8: memory stays bounded on both sides, and the others get every message."""
    address, counts, ready = node.address, [], threading.Semaphore(0)
    rooms = [threading.Semaphore(2) for _ in range(2)]
    with (
        _subscriber_that_never_reads(address) as idle,
        _subscriber_that_never_reads(address) as frozen,
    ):
        threads = [_start_reader(address, ready, room, counts) for room in rooms]
        before = _rss(node.pid), _rss(idle.pid)
        frozen.send_signal(signal.SIGSTOP)
        _publish(address, rooms)
        for thread in threads:
            thread.join(WAIT_S)
        with hms.connect(address) as conn:
            dropped = [one["removed"] for one in conn.administer("subscription.list")]
        grown = _rss(node.pid) - before[0], _rss(idle.pid) - before[1]
    print(f"node +{grown[0] / MIB:.1f} MiB, stopped client +{grown[1] / MIB:.1f} MiB")
    assert counts == [BATCH * BATCHES] * 2
    assert [removed > BATCH * BATCHES / 2 for removed in dropped] == [True, True]
    assert grown[0] < NODE_GROWTH_MAX
    assert grown[1] < CLIENT_GROWTH_MAX
