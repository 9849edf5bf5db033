"""The negative controls of the simulator of replicas: each planted fault is found."""

import pytest

from tests.sim.replicas.planted import PLANTS
from tests.sim.replicas.world import World

RUNS_MAX = 40
LIKELY = {
    "gap_taken_for_whole": 39,
    "gone_back_counted": 4,
    "tail_cut_for_good": 2,
    "changed_without_version": 2,
}
"""Seeds that found a rarer one when this was written: they are tried first, to save time."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_of_the_copies_is_found(plant, monkeypatch):
    """Within so many worlds of 4,000 steps; one takes about a second."""
    plant(monkeypatch)

    seeds = (LIKELY.get(plant.__name__, 1), *range(1, RUNS_MAX))
    assert any(World(seed).run(4000) for seed in seeds)
