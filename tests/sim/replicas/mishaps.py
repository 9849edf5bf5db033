"""What happens to a world where everything happens, and is not a kill, a cut or a new disk.

Each is counted by its name in world.happened when it had an effect.
"""

from hms.errors.catalogue import StoreLocked
from hms.server.replicas.log_copy import LogCopy
from hms.store.journal.confirmed_place import CONFIRMED_NAME, NOTHING
from hms.store.journal.format import SEGMENT_HEADER_BYTES
from hms.store.journal.segment_walk import Walk, opened, read_info, segment_file
from tests.sim.replicas.what_is_fixed import FOLDER, LEASE_S

SECTOR, BIT = 512, 2
GARBAGE = b'{"version": 0'


def quietly(world, name, look):
    """The test looks at a disk, no process that may be killed."""
    disk = world.disks[name]
    disk.before = lambda _call, _inode: None
    try:
        return look(disk)
    finally:
        disk.before = world._before


def flip(world, name):
    """A bit flips in the last record of a copy that follows; its process began anew."""
    found = _may_be_harmed(world, name)
    if found is None:
        return
    file, _, end = found
    inode = world.disks[name].names[file]
    at = end - 8
    if inode.cache[at] not in (0, BIT):
        world.damages += 1
        _harm(world, name, file, at, bytes((inode.cache[at] ^ BIT,)))


def zero(world, name):
    """A sector of a copy that follows is zero by and by, and a power cut took the place up to which
    it knew its log confirmed. Behind that sector lies what was written when it had been synced:
    else it looks like a write that a crash tore, and nobody can tell."""
    found = _may_be_harmed(world, name)
    if found is None:
        return
    file, proved, _ = found
    inode = world.disks[name].names[file]
    sectors = [
        at
        for at in range(SECTOR, proved - SECTOR + 1, SECTOR)
        if any(inode.cache[at : at + SECTOR])
    ]
    if sectors:
        world.happened["sectors zeroed"] += 1
        for there in (world.disks[name].names, world.disks[name].safe_names):
            there.pop(CONFIRMED_NAME, None)
        world.places.pop(name, None)
        _harm(world, name, file, world.rng.choice(sectors), bytes(SECTOR))


def _may_be_harmed(world, name):
    """The last segment of a copy that others can do without, where its last batch begins, and where
    it ends; the process is dead then."""
    now, state = world.configuration(), world._state(name)
    process = world.processes.get(name)
    is_led = process is not None and process.primary is not None
    is_needed = world.promises_needed_now() < 2 or not world.is_spare(name)
    if is_led or is_needed or state is None or (name, state.copy_id) in world.lost:
        return None
    if all(one.copy_id != state.copy_id for one in now.members):
        return None
    world.kill(name, is_power=False)
    world.disks[name].start()
    return quietly(world, name, _find_end)


def _find_end(disk):
    copy = LogCopy(disk, FOLDER)
    (_, number, end), is_clean = copy.tail()
    copy.close()
    if not is_clean or end == SEGMENT_HEADER_BYTES:
        return None
    file = segment_file(FOLDER, number)
    info = read_info(disk, file, number, is_last=True)
    with opened(disk, file) as fd:
        walk = Walk(disk, fd, info)
        for _ in walk.records():
            pass
    inode = disk.names[file.name]
    is_safe = inode.cache == inode.safe[: len(inode.cache)]
    return (file.name, walk.batch_at, end) if is_safe else None


def _harm(world, name, file, at, data):
    inode, state = world.disks[name].names[file], world._state(name)
    world.damaged[name] = state.copy_id, file, at, data
    world.lost[name, state.copy_id] = state.promised
    inode.cache[at : at + len(data)] = inode.safe[at : at + len(data)] = data
    world.synced[name].clear()  # what nobody adopted may be what was hit


def boot_twice(world, name):
    """A second supervisor starts a process of a copy whose process runs."""
    if name not in world.processes or world.disks[name].is_dead:
        return
    names = dict(world.disks[name].names)
    data = {one: bytes(inode.cache) for one, inode in names.items()}
    try:
        quietly(world, name, lambda _disk: world.begins(name))
    except StoreLocked:
        world.happened["second processes"] += 1
    else:
        world.fault(f"TWICE: two processes have the store of {name}")
    there = {one: bytes(inode.cache) for one, inode in world.disks[name].names.items()}
    if there != data:
        world.fault(f"TWICE: a process that was refused changed the store of {name}")


def lose_arbiter(world, _name):
    """What the arbiter has of the group is gone, or cannot be read."""
    if world.kept_value is None and not world.promoted:
        engine = world.engine
        world.kept_value = engine.value
        world.wrong_value = engine.value = world.rng.choice((None, GARBAGE))
        engine.leader, engine.leader_until_s = None, 0.0
        world.happened["arbiter lost"] += 1


def restore_arbiter(world, _name=""):
    """An operator puts back what was there last; until then nobody has begun anything."""
    if world.kept_value is not None:
        check_arbiter(world)
        world.engine.value, world.kept_value = world.kept_value, None


def check_arbiter(world):
    """Nobody writes to an arbiter that has lost its data."""
    if world.kept_value is not None and world.engine.value is not world.wrong_value:
        world.fault("ARBITER: somebody began a group anew when its data was lost")
        world.wrong_value = world.engine.value


def flap(world, name):
    """The line between two is cut and works again, many times in a second."""
    others = [one for one in world.names if one != name]
    world.flapping = frozenset((name, world.rng.choice(others))), world.now_s + LEASE_S
    world.happened["lines that flap"] += 1


def flaps(world):
    """One more turn of that."""
    pair, until_s = world.flapping
    if world.now_s < until_s and not world.is_healing and world.rng.random() < 0.3:
        world.net.partition([] if world.net.cut else [pair])


def look_at_applied(world):
    """H9: a hot standby applies nothing that its primary has not said is confirmed."""
    for name, process in world.processes.items():
        if process.primary is None and process.candidate is None:
            applied, may = process.applies.place, process.follower._confirmed.place
            if applied > max(may, NOTHING) and not world.may_fall:
                world.fault(f"H9: {name} has applied up to {applied}, {may} is confirmed")
