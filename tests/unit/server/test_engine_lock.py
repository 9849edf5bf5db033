"""No garbage is collected under the engine's lock, and none is forgotten."""

import gc
import threading

import pytest

from tests.support.memory import MemoryNode

MANY = 5_000


@pytest.fixture
def collections():
    """The collections that begin; the collector is on, and eager."""
    begun, thresholds, was_on = [], gc.get_threshold(), gc.isenabled()

    def callback(phase, info):
        if phase == "start":
            begun.append(info["generation"])

    gc.callbacks.append(callback)
    gc.set_threshold(500, 5, 2)
    gc.enable()
    yield begun
    gc.callbacks.remove(callback)
    gc.set_threshold(*thresholds)
    if not was_on:
        gc.disable()


def test_a_look_at_the_engine_and_a_change_collect_nothing(collections):
    """The two ways to its lock; behind them the collector is on again."""
    node = MemoryNode()
    seen = []

    def allocate(*_):
        collections.clear()
        kept = [[n] for n in range(MANY)]
        seen.append((len(kept), list(collections)))

    node.broker.look(allocate)
    node.broker._change(allocate)

    assert seen == [(MANY, [])] * 2
    assert gc.isenabled()


def test_a_fault_under_the_lock_gives_the_collector_back(collections):
    """Else one fault would end all collections."""
    node = MemoryNode()

    def fail(*_):
        raise KeyError

    for way in (node.broker.look, node.broker._change):
        with pytest.raises(KeyError):
            way(fail)
        assert gc.isenabled()


def test_two_nodes_of_a_process_leave_the_collector_on(collections):
    """In whatever order they take and give back their locks; else garbage, and the descriptors that
    it holds, would stay for good."""
    one, other = MemoryNode(), MemoryNode()
    inside, may_leave = threading.Event(), threading.Event()

    def hold(*_):
        inside.set()
        may_leave.wait(60)

    thread = threading.Thread(target=lambda: one.broker.look(hold))
    thread.start()
    assert inside.wait(60)
    other.broker.look(lambda _: may_leave.set() or thread.join(60))

    assert not thread.is_alive()
    assert gc.isenabled()
