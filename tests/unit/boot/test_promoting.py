"""A forced take-over waits for the lease of a leader that has just died."""

import time
from types import SimpleNamespace

import pytest

from hms.boot.promoting import Promotion
from hms.errors.catalogue import TakeOverRefused
from hms.server.arbiter.interface import Configuration, Member
from hms.server.arbiter.memory import MemoryArbiter, MemoryEngine
from hms.server.replicas.copy_state import begin_copy
from hms.store.journal.disk import REAL_DISK

LEASE_S = 0.3


def _promotion(folder, now_s):
    """Of b, which waits, while a has a lease that nobody renews. Nobody agrees to it."""
    store = folder / "store"
    store.mkdir()
    engine = MemoryEngine(now_s, LEASE_S)
    a = MemoryArbiter(engine, "a")
    state = begin_copy(REAL_DISK, store, "b")
    members = (Member("a", "1" * 32), Member("b", state.copy_id))
    assert a.begin(Configuration(1, state.log, members=members, copies=2, copies_min=2))
    assert a.campaign(1, "a", 1) is not None
    config = SimpleNamespace(arbiter=SimpleNamespace(lease_s=LEASE_S))
    node = SimpleNamespace(name="N1", replica="b", store=store, runtime=folder / "run")
    return Promotion(MemoryArbiter(engine, "b"), config, node, lambda: True, lambda _: False)


def test_the_lease_of_one_that_has_just_died_is_no_leader(tmp_path):
    """All others lost their power a moment ago: the arbiter still names one of them."""
    promotion = _promotion(tmp_path, time.monotonic)
    with pytest.raises(TakeOverRefused, match="of a, b; the copy of b ends in"):
        promotion.run(1)


def test_one_whose_lease_goes_on_leads(tmp_path):
    """For longer than an arbiter may take to forget a dead one."""
    promotion = _promotion(tmp_path, lambda: 0.0)
    with pytest.raises(TakeOverRefused, match="a leads in epoch 1"):
        promotion.run(1)
