"""What the tests of lanes share: pools that end, handlers that record and handlers that stop."""

import queue
import sys
import threading
from collections import defaultdict

import pytest

from hms.workers.lanes import LanePool

WAIT_S = 60


class Recorder:
    """Handles batches: keeps what came per lane, and fails when a lane runs twice at once."""

    def __init__(self):
        self.batches = queue.SimpleQueue()
        self.by_lane = defaultdict(list)
        self.faults = []
        self._running = set()

    def handle(self, key, items):
        assert key not in self._running, f"lane {key} is with two workers"
        self._running.add(key)
        self.by_lane[key] += items
        self._running.discard(key)
        self.batches.put((key, list(items)))


class Gate:
    """A handler that stops at its first batch until it is opened."""

    def __init__(self):
        self.is_reached = threading.Event()
        self.is_open = threading.Event()
        self.seen = []

    def handle(self, key, items):
        self.seen.append((key, list(items)))
        self.is_reached.set()
        assert self.is_open.wait(WAIT_S)


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def pools():
    """Make pools that are closed at the end of the test."""
    made = []

    def make(workers, handle, **options):
        made.append(LanePool(workers, handle, **{"on_fault": pytest.fail, **options}))
        return made[-1]

    yield make
    for pool in made:
        assert pool.close(drain=False, timeout_s=WAIT_S)


@pytest.fixture
def hasty_threads():
    """Switch threads as often as the interpreter can, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.is_open.set()
