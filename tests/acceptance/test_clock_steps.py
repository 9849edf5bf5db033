"""A node whose wall clock is set back and forth by an hour (E04)."""

import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hms
from hms.testing import node
from tests.support.waiting import wait_until

HOUR = 3600
STEPS_S = (0, HOUR, -HOUR, 2 * HOUR, 0)
CONFIG = {
    "hms": {"queue": {"orders": {"redelivery_delay_s": 0.3, "redelivery_limit": 100}, "brief": {}}}
}
SOURCE = Path(__file__).with_name("set_clock.c")


class WallClock:
    """The node's; set() moves it by seconds from the machine's. drift: so much of the time since
    since_s, or else from now on, it is ahead, and so is the node's monotonic clock."""

    def __init__(self, folder, drift=0.0, since_s=None):
        self.since_s = time.monotonic() if since_s is None else since_s
        library, self._file = folder / "set_clock.so", folder / "offset"
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, timeout=250)
        self._file.write_bytes(
            struct.pack("<qqq", 0, round(drift * 1e6), round(self.since_s * 1e9))
        )
        self.prefix = ["env", f"CLOCK_OFFSET_FILE={self._file}", f"LD_PRELOAD={library}"]

    def set(self, seconds):
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", seconds))


@pytest.fixture
def clock(tmp_path):
    return WallClock(tmp_path)


def test_setting_the_clock_expires_nothing_early_and_keeps_nothing_for_ever(clock):
    """A time service that corrects an hour must not empty the queues, nor stop what is delayed."""
    with (
        node(config=CONFIG, command_prefix=clock.prefix) as running,
        hms.connect(running.address) as conn,
        conn.session() as session,
    ):
        lasting = session.producer(hms.Queue("orders"), ttl_s=600)
        brief = session.producer(hms.Queue("brief"), ttl_s=0.2)
        sent = []
        for step, offset_s in enumerate(STEPS_S):
            clock.set(offset_s)
            sent += [lasting.send(f"{step}.{n}").message_id for n in range(3)]
            brief.send("gone soon")
            wait_until(lambda n=step + 1: expired(conn) == n)
            fail_once(conn)
        assert check_order(conn, sent) < HOUR / 2


def expired(conn):
    """How many brief messages have left; nobody receives them."""
    return conn.administer("queue.show", {"name": "brief"})["expired"]


def fail_once(conn):
    """The first message is given back, and comes again when its delay is over."""
    with conn.session(transacted=True) as session:
        inn = session.consumer(hms.Queue("orders"), prefetch=1)
        first = inn.receive(timeout_s=60)
        session.rollback()
        wait_until(lambda: inn.receive(timeout_s=60).message_id == first.message_id)
        session.rollback()


def waiting(conn):
    """Everything that waits in the queue, in its order."""
    with conn.session() as session, session.browser(hms.Queue("orders"), oldest_first=True) as all_:
        return list(all_)


def check_order(conn, sent):
    """All are there; ids and timestamps only grow, and by no hour."""
    wait_until(lambda: len(waiting(conn)) == len(sent))
    found = waiting(conn)
    ids = [message.message_id for message in found]
    times = [message.timestamp for message in found]
    assert ids == sent == sorted(set(sent))
    assert times == sorted(times)
    return times[-1] - times[0]


def test_after_a_restart_with_the_clock_set_back_ids_and_times_go_on(clock):
    """The log remembers how late it was; a new process starts no earlier."""
    with node(config=CONFIG, command_prefix=clock.prefix) as running:
        sent = []
        for offset_s in (0, -HOUR, HOUR):
            clock.set(offset_s)
            running.kill()
            running.boot(warm=True)
            with hms.connect(running.address) as conn:
                out = conn.session().producer(hms.Queue("orders"))
                sent += [out.send("x").message_id for _ in range(3)]
        with hms.connect(running.address) as conn:
            check_order(conn, sent)


def test_time_goes_on_after_a_boot_with_the_clock_behind(clock):
    """Delays, redelivery and expiry once stood still until the clock had come as far as the log."""
    with node(config=CONFIG, command_prefix=clock.prefix) as running:
        with hms.connect(running.address) as conn, conn.session() as session:
            session.producer(hms.Queue("orders")).send("before")
        running.stop()
        clock.set(-HOUR)
        running.boot(warm=True)
        with hms.connect(running.address) as conn, conn.session() as session:
            fail_once(conn)
            session.producer(hms.Queue("brief"), ttl_s=0.2).send("gone soon")
            wait_until(lambda: expired(conn) == 1)
            session.producer(hms.Queue("brief")).send("later", delay_s=0.3)
            assert session.consumer(hms.Queue("brief")).receive(timeout_s=60).body == "later"


def test_a_node_with_a_new_disk_and_a_clock_behind_joins_its_cluster_again(clock):
    """Its store's number is a time, and an earlier one than its last store's."""
    config = {"hms": {"queue": {"orders": {"GLOBAL": "Y"}}}, "node": {"A": {}, "B": {}}}
    with node(config=config, nodes=2, command_prefix=clock.prefix) as cluster:
        first, second = cluster.nodes
        wait_until(lambda: presence(first) == presence(second) == ["up"], 60)
        second.kill()
        shutil.rmtree(second.store)
        clock.set(-HOUR)
        second.boot()
        wait_until(lambda: presence(first) == presence(second) == ["up"], 60)


def presence(one):
    """How a node sees the others."""
    with hms.connect(one.address) as conn:
        return [link["presence"] for link in conn.administer("cluster.status")["links"]]


PROGRAM = """
import threading, time
at = time.monotonic()
threading.Event().wait(0.2)
print(at, time.monotonic())
"""


@pytest.mark.parametrize("drift", [0.01, -0.01])
def test_a_clock_that_drifts_shows_it_and_a_wait_ends_by_it(tmp_path, drift):
    """Else tests of clocks that drift would prove nothing: 10 s in the last 1,000 s."""
    clock = WallClock(tmp_path, drift, since_s=time.monotonic() - 1000)
    before_s = time.monotonic()
    command = [*clock.prefix, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=250)
    after_s = time.monotonic()

    begun_s, ended_s = map(float, done.stdout.split())
    for shown_s in (begun_s, ended_s):
        true_s = (shown_s + drift * clock.since_s) / (1 + drift)
        assert before_s - 0.001 <= true_s <= after_s + 0.001  # it counts in microseconds
    assert ended_s - begun_s >= 0.199
