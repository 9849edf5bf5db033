"""What becomes of messages that an application has when it, or the node, is killed.

The doors and modes of test_settlement, all at once: a kill costs as much as fifty cells.
"""

import itertools
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from settlement_rig import LIMIT, MODES, WAIT_S, Pipes

import hms
from hms.testing import node
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
DOORS = ("receive", "listener", "aio receive", "aio listener")


def is_exact(door, mode):
    """AUTO and DUPS_OK say some milliseconds after receive() returned that it is done with: what a
    kill finds said is chance."""
    return not door.endswith("receive") or mode not in ("AUTO", "DUPS_OK")


CELLS = [cell for cell in itertools.product(DOORS, MODES) if is_exact(*cell)]
NAMES = {f"held{number}": cell for number, cell in enumerate(CELLS)}


class Holder:
    """A client process that has one message in each cell."""

    def __init__(self, address, names, ways=NAMES):
        cells = [f"{name}:{':'.join(ways[name])}" for name in names]
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "holding_client.py"), address, *cells],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._count = len(names)

    def said(self):
        """What its applications were given: delivery count and redelivered flag, by queue."""
        lines = [self._process.stdout.readline().split() for _ in range(self._count)]
        return {name: (int(count), flag == "1") for name, count, flag in lines}

    def kill(self):
        """SIGKILL."""
        self._process.kill()
        self._process.wait(WAIT_S)
        self._process.stdout.close()


@pytest.fixture
def started():
    queues = {name: {"redelivery_limit": LIMIT} for name in NAMES}
    with node(config={"hms": {"queue": queues}}) as booted:
        yield booted


@pytest.mark.parametrize("victim", ["client", "node"])
def test_what_an_application_has_when_it_or_its_node_is_killed_comes_again(
    started, victim, request
):
    """Flagged and counted each time, more often than its limit, and never as a dead letter; what
    NONE delivered comes no more."""
    with hms.connect(started.address) as conn, conn.session() as session:
        for name in NAMES:
            session.send(hms.Queue(name), name)
    names = list(NAMES)
    for turn in range(LIMIT + 1):
        holder = Holder(started.address, names)
        request.addfinalizer(holder.kill)
        assert holder.said() == dict.fromkeys(names, (turn + 1, turn > 0))
        if victim == "node":
            started.kill()
        holder.kill()
        if victim == "node":
            started.boot(warm=True)
        names = [name for name in names if NAMES[name][1] != "NONE"]

    with hms.connect(started.address) as conn:
        for name, (_, mode) in NAMES.items():
            wait_until(lambda name=name: not _shown(conn, name)["in_flight"])
            left = 0 if mode == "NONE" else 1
            assert (_shown(conn, name)["waiting"], NAMES[name]) == (left, NAMES[name])
            assert _shown(conn, name)["dead_lettered"] == 0


CALLED = {f"called{mode}": ("service", mode) for mode in ("AUTO", "DUPS_OK", "NONE")}
SERVED = {
    "hms": {"queue": {name: {"redelivery_limit": LIMIT} for name in CALLED}},
    "server": {"held": {"module": "settlement_services", "MIN": 3, "MAX": 3, "restart_delay_s": 0}},
}


@pytest.fixture
def served():
    with node(config=SERVED, python_path=[HERE]) as booted:
        yield booted


@pytest.fixture
def pipes(tmp_path):
    with ExitStack() as stack:
        made = {name: Pipes(tmp_path / name, None) for name in CALLED}
        for one in made.values():
            stack.enter_context(closing(one))
        yield made


def _send_places(session, pipes):
    for name, one in pipes.items():
        session.send(hms.Queue(name), one.place.encode())


def test_what_services_have_when_their_listening_client_is_killed_comes_again(
    served, pipes, request
):
    """Each run of a service counts once, more often than the limit, and is no failed attempt."""
    with hms.connect(served.address) as conn, conn.session() as session:
        _send_places(session, pipes)
        names = list(CALLED)
        for turn in range(LIMIT + 1):
            holder = Holder(served.address, names, CALLED)
            request.addfinalizer(holder.kill)
            given = {name: pipes[name].given() for name in names}
            assert given == dict.fromkeys(names, (turn + 1, turn > 0))
            holder.kill()
            wait_until(lambda: not any(_shown(conn, name)["in_flight"] for name in CALLED))
            for name in names:
                pipes[name].go(b"o")
            names = [name for name in names if CALLED[name][1] != "NONE"]
        for name, (_, mode) in CALLED.items():
            found = _shown(conn, name)
            left = 0 if mode == "NONE" else 1
            assert (found["waiting"], found["dead_lettered"], mode) == (left, 0, mode)
            message = session.consumer(hms.Queue(name)).receive(WAIT_S if left else 0)
            assert (message is not None) == bool(left)
            assert message is None or message.delivery_count == LIMIT + 2


def test_what_services_have_when_their_processes_are_killed_is_a_failed_attempt_each(served, pipes):
    """Flagged, counted once, and a dead letter at the limit; NONE was done with at its delivery."""
    with hms.connect(served.address) as conn, conn.session() as session:
        kept = [
            conn.session(asynchronous=True, **MODES[mode]).consumer(
                hms.Queue(name), listener="HELD"
            )
            for name, (_, mode) in CALLED.items()
        ]
        _send_places(session, pipes)
        names = list(CALLED)
        for turn in range(LIMIT):
            given = {name: pipes[name].given() for name in names}
            assert given == dict.fromkeys(names, (turn + 1, turn > 0))
            (held,) = conn.administer("server.list")
            for pid in held["pids"]:
                with suppress(ProcessLookupError):  # the kill before may have ended it just now
                    os.kill(pid, signal.SIGKILL)
            names = [name for name in names if CALLED[name][1] != "NONE"]
        letters = session.consumer(hms.Queue("HMS.DLQ"))
        dead = [letters.receive(WAIT_S) for _ in names]
        assert {one.property("$DeadOrigin") for one in dead} == {f"queue:{name}" for name in names}
        assert {one.property("$DeadCount") for one in dead} == {LIMIT}
        assert len(kept) == len(CALLED)


def _shown(conn, name):
    return conn.administer("queue.show", {"name": name})
