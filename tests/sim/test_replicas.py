"""Two copies under everything that happens to them: python -m tests.sim.replicas --minutes N.

Pure machines, real code of both ends of the link; see tests.sim.replicas.
"""

import os

import pytest

from tests.sim.replicas.world import World

SEEDS = range(1, 400 if os.environ.get("HMS_HA") == "full" else 3)


@pytest.mark.timeout(1800)
def test_nothing_confirmed_is_lost_and_no_copy_breaks_an_invariant():
    """Kills at any call of the disk, power cuts, pauses, partitions, arbiters that are away."""
    changes = switchovers = set_aside = 0
    for seed in SEEDS:
        world = World(seed)
        assert world.run(4000) == [], f"seed {seed}"
        set_aside += world.set_aside
        changes, switchovers = changes + world.role_changes, switchovers + world.switchovers

    assert changes >= 5 * len(SEEDS)
    assert switchovers >= len(SEEDS)
    assert set_aside


def test_a_seed_gives_the_same_bytes_at_every_copy_again():
    """What is found can be looked at."""
    first, second = World(3), World(3)

    assert first.run(800) == second.run(800)
    assert first.digest() == second.digest()
