"""Worlds of three copies in which one rare thing is made to happen.

What seeds meet once in hundreds of worlds would be found by no control of a checker in its time.
"""

from tests.sim.replicas import mishaps
from tests.sim.replicas.what_is_fixed import LEASE_S
from tests.sim.replicas.world import World

STEPS_MAX, AWAY_STEPS = 4000, 700


def a_sector_is_zeroed(seed):
    """At one of those that follow; whoever leads is away then, so both others are to promise."""
    world = _whole(seed)
    _lives(world, lambda: any(one.log.at > 3 * mishaps.SECTOR for one in world._led()))
    world.heal()
    led = _leader(world)
    name = next(one for one in world.names if one != led)
    mishaps.zero(world, name)
    _is_away(world, led)
    _steps(world, lambda: False, AWAY_STEPS)
    return _ends(world)


def _whole(seed):
    """Nothing happens in it by itself."""
    world = World(seed, 3, is_full=True)
    world.heal()
    world._acts = ()
    for disk in world.disks.values():
        disk.before = lambda _call, _inode: None
    world._before = lambda _call, _inode: None
    return world


def _lives(world, is_so):
    world.is_healing = False
    _steps(world, is_so, STEPS_MAX)


def _steps(world, is_so, steps_max):
    for _ in range(steps_max):
        if world.faults or is_so():
            return
        world.step()


def _ends(world):
    if not world.faults:
        world.heal()
    return world


def _leader(world):
    return next((one.name for one in world._led()), None)


def _is_away(world, name):
    world.kill(name, is_power=False)
    world.held[name] = world.now_s + 10 * LEASE_S
