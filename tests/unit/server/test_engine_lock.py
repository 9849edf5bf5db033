"""No garbage is collected under the engine's lock, and none is forgotten."""

import gc

import pytest

from hms.server.engine_lock import EngineLock
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


def test_a_collection_waits_until_the_lock_is_free(collections):
    """Everybody who waits for the lock would wait for it."""
    lock = EngineLock()
    with lock:
        collections.clear()
        kept = [[n] for n in range(MANY)]
        assert collections == []
    kept += [[n] for n in range(MANY)]
    assert collections


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


def test_a_fault_under_the_lock_gives_both_back(collections):
    """Else one fault would end all collections."""
    lock = EngineLock()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert gc.isenabled()
    with lock:
        assert not gc.isenabled()


def test_a_collector_that_is_off_stays_off(collections):
    """A boot switches it off for a while."""
    gc.disable()
    with EngineLock():
        pass
    assert not gc.isenabled()
