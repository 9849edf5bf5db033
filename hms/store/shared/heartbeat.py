"""The owner's heartbeat: a counter in its generation, raised several times in a lease, and what the
node's clock says then.

Who takes the store over goes on with the node's time from what it saw there, whatever its own
machine's clock says. A beat tells the time at the moment in which it was written, so one that was
not seen to be written says nothing: its owner may have been gone for days.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from hms.store.shared.disk import fenced
from hms.store.shared.generations import BEAT_NAME

__all__ = ["Heartbeat", "time_in"]

BEATS_PER_LEASE = 5
_WORDS = 4
LATEST_MS = 1 << 53


class Heartbeat:
    """Beats until it is stopped, or until the generation is another's; then on_fenced is told once.
    clock_ms: the node's.

    An idle owner that was overtaken learns it here, one that writes by its journal.
    """

    def __init__(self, folder: Path, lease_s: float, clock_ms: Callable[[], int]) -> None:
        self.on_fenced: Callable[[BaseException], None] = lambda _fault: None
        self.on_blocked: Callable[[str], None] = lambda _what: None
        """Never called: a sync waits for no other machine."""
        self._folder, self._pause_s = folder, lease_s / BEATS_PER_LEASE
        self._clock_ms = clock_ms
        self._over = threading.Event()
        self._count = 0
        self._beat(os.O_CREAT)
        self._thread = threading.Thread(target=self._run, name="hms-beat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._pause_s):
            try:
                self._beat(0)
            except OSError:
                self._over.set()
                self.on_fenced(fenced(self._folder))

    def _beat(self, flags: int) -> None:
        self._count += 1
        said = b"%d %d %d" % (os.getpid(), self._count, self._clock_ms())
        fd = os.open(self._folder / BEAT_NAME, os.O_WRONLY | os.O_CLOEXEC | flags, 0o640)
        try:
            os.pwrite(fd, b"%s %08x\n" % (said, crc32(said)), 0)
        finally:
            os.close(fd)

    def stop(self) -> None:
        """Beat no more."""
        self._over.set()


def time_in(beat: bytes) -> int | None:
    """What the node's clock said at a beat; None of a release before, and of one that was read
    while it was written."""
    line = beat.partition(b"\n")[0]
    words = line.split(b" ")
    if len(words) != _WORDS or not words[2].isdigit():
        return None
    is_whole = words[3] == b"%08x" % crc32(line.rpartition(b" ")[0])
    at_ms = int(words[2])
    return at_ms if is_whole and at_ms < LATEST_MS else None
