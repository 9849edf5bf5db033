"""A node whose parts hang, or whose syncs fail, for as long as a file is there. As a program's
prefix: PYTHON hanging_node.py FOLDER PYTHON -P -m hms.boot.node OPTIONS…

recovery  the boot stands still where it first says how far it is
loop      the main thread takes no turn
lane      a worker does not come to an end with what it has taken
log       no sync ends; sync: each sync fails
"""

import errno
import os
import sys
import threading
from pathlib import Path

from hms.store.journal.disk import REAL_DISK, RealDisk

LOOK_S = 0.01
PARTS = ("recovery", "loop", "lane", "log", "sync")


def waiting(folder, part):
    """A function that waits for as long as the file is there."""
    file, pause = Path(folder) / part, threading.Event()

    def wait():
        while file.exists():
            pause.wait(LOOK_S)

    return wait


def behind(wait, do):
    """The same function, once it may."""

    def done(*arguments, **named):
        wait()
        return do(*arguments, **named)

    return done


def hang(folder):
    """Have the parts of this process look for their files."""
    from hms.boot import recovering
    from hms.boot.monitoring.vitals import Vitals
    from hms.boot.node import NodeProcess
    from hms.server.gateway import Gateway

    recovery, loop, lane, log = (waiting(folder, part) for part in PARTS[:4])
    recovering.TELL_EVERY_S, recovering.LOOK_EVERY = 0, 1
    told = Vitals.recovering

    def stands_still(vitals, done, total):
        told(vitals, done, total)
        recovery()

    Vitals.recovering = stands_still
    Gateway._take_turn = behind(loop, Gateway._take_turn)
    make_handler = NodeProcess._handler
    NodeProcess._handler = lambda node, turn: behind(lane, make_handler(node, turn))

    class HangingDisk(RealDisk):
        """The machine's disk."""

        def fdatasync(self, fd):
            log()
            if (Path(folder) / "sync").exists():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().fdatasync(fd)

        fsync = fdatasync

    REAL_DISK.__class__ = HangingDisk


def main(folder, words_of_node):
    """Boot the node."""
    from hms.boot import node

    hang(folder)
    code = node.main(words_of_node)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[sys.argv.index("hms.boot.node") + 1 :])
