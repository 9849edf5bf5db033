"""What becomes of messages that an application has when it, or the node, is killed.

The doors and modes of test_settlement but services, all at once: a kill costs as much as fifty
cells.
"""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from settlement_rig import LIMIT, MODES, WAIT_S, until

import hms
from hms.testing import node

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

    def __init__(self, address, names):
        cells = [f"{name}:{':'.join(NAMES[name])}" for name in names]
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
            until(lambda name=name: not _shown(conn, name)["in_flight"])
            left = 0 if mode == "NONE" else 1
            assert (_shown(conn, name)["waiting"], NAMES[name]) == (left, NAMES[name])
            assert _shown(conn, name)["dead_lettered"] == 0


def _shown(conn, name):
    return conn.administer("queue.show", {"name": name})
