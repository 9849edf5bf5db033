"""A small store, and every kind of damage to it."""

from tests.crash.program import batches, live
from tests.crash.recording import RecordingDisk

ROUNDS = 300


def three_boots():
    """The files of a store with filled, left and unfinished segments. Nothing is torn."""
    disk = RecordingDisk()
    live(disk, batches((20, 33), (1500,), (700, 9, 600), (1300,), (900, 5), (800,), (2000,)))
    live(disk, batches((50,), (60, 61, 62)))
    live(disk, batches((40,), (70, 5, 33), (25,), (41, 18)))
    return {
        n: data
        for n, data in disk.files().items()
        if not n.endswith(("LOCK", "spare.log", ".reserve"))
    }


def damages(files, chance):
    """Directories with one or two damages of every kind."""
    for _ in range(ROUNDS):
        changed = dict(files)
        for _ in range(chance.choice((1, 1, 2))):
            name = chance.choice(sorted(changed))
            data, kind = bytearray(changed[name]), chance.randrange(5)
            at = chance.randrange(max(len(data), 1))
            if kind == 0:
                del changed[name]
            elif kind == 1:
                changed[name] = bytes(data[:at])
            elif kind == 2:
                at -= at % 512
                data[at : at + 512] = bytes(len(data[at : at + 512]))
                changed[name] = bytes(data)
            elif kind == 3:
                changed[name] = changed[chance.choice(sorted(changed))]
            elif data:
                data[at] ^= 1 << chance.randrange(8)
                changed[name] = bytes(data)
            if not changed:
                return
        yield changed
