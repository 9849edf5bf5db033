"""The negative controls of the simulator of replicas: each planted fault is found."""

import pytest

from tests.sim.replicas.planted import (
    PLANTS,
    PLANTS_OF_ALL,
    PLANTS_OF_FIVE,
    PLANTS_OF_THREE,
    PLANTS_OF_ZEROS,
    PLANTS_WITH_ONE_FAR,
)
from tests.sim.replicas.staged import a_sector_is_zeroed
from tests.sim.replicas.world import World

RUNS_MAX = 100
LIKELY = {
    ("gap_taken_for_whole", 5): 4,
    ("gone_back_counted", 2): 19,
    ("tail_cut_for_good", 2): 14,
    ("changed_without_version", 2): 9,
    ("cut_by_number_alone", 2): 9,
    ("unconfirmed_shown", 2): 5,
    ("copy_counted_twice", 5): 2,
    ("damage_taken_for_torn", 3): 4,
    ("longest_segment_adopted", 3): 5,
    ("one_admitted_at_a_time", 3): 121,
    ("shrunk_below_copies_min", 3): 5,
    ("one_promise_too_few", 3): 2,
    ("promise_answered_before_durable", 3): 2,
    ("shorter_tail_adopted", 3): 5,
    ("shrunk_to_copies_that_lack_older_epochs", 5): 78,
    ("stranger_promises", 3): 3,
}
"""Seeds that found a rarer one when this was written: they are tried first, to save time."""
GROUPS = {2: PLANTS, 3: PLANTS_OF_THREE, 5: PLANTS_OF_FIVE}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("plant", "copies"),
    [
        pytest.param(plant, copies, id=f"{plant.__name__}-{copies}")
        for copies, plants in GROUPS.items()
        for plant in plants
    ],
)
def test_a_planted_fault_of_the_copies_is_found(plant, copies, monkeypatch):
    """Within so many worlds of 4,000 steps; one takes about a second."""
    plant(monkeypatch)

    seeds = (LIKELY.get((plant.__name__, copies), 1), *range(1, RUNS_MAX))
    assert any(World(seed, copies).run(4000) for seed in seeds)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS_WITH_ONE_FAR)
def test_an_asynchronous_copy_that_counts_is_found(plant, monkeypatch):
    """It may not be taken in, be counted unless it is, nor take over."""
    plant(monkeypatch)

    assert any(World(seed, far=1).run(4000) for seed in range(1, RUNS_MAX))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS_OF_ALL)
def test_a_planted_fault_of_what_leaves_the_log_or_is_lost_is_found(plant, monkeypatch):
    """In a world where nothing is found without it; one takes about a second."""
    likely, copies = PLANTS_OF_ALL[plant]
    seeds = (likely, *range(1, RUNS_MAX))

    def is_found(seed):
        with monkeypatch.context() as patch:
            plant(patch)
            if not World(seed, copies, is_full=True).run(4000):
                return False
        return World(seed, copies, is_full=True).run(4000) == []

    assert any(is_found(seed) for seed in seeds)


ZEROED = range(2, 6)


def test_a_sector_that_is_zero_is_damage_where_more_was_written_behind_it():
    """Such a copy does not count, and is mended by whoever leads."""
    worlds = [a_sector_is_zeroed(seed) for seed in ZEROED]

    assert [world.faults for world in worlds] == [[] for _ in ZEROED]
    assert all(world.happened["sectors zeroed"] for world in worlds)


@pytest.mark.parametrize("plant", PLANTS_OF_ZEROS)
def test_a_planted_fault_of_what_is_zero_is_found(plant, monkeypatch):
    """It promises as if it had lost nothing."""
    plant(monkeypatch)

    assert any(a_sector_is_zeroed(seed).faults for seed in ZEROED)
