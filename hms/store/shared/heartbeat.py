"""The owner's heartbeat: a counter in its generation, raised several times in a lease."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from hms.store.shared.disk import fenced
from hms.store.shared.generations import BEAT_NAME

__all__ = ["Heartbeat"]

BEATS_PER_LEASE = 5


class Heartbeat:
    """Beats until it is stopped, or until the generation is another's; then on_fenced is told once.

    An idle owner that was overtaken learns it here, one that writes by its journal.
    """

    def __init__(self, folder: Path, lease_s: float) -> None:
        self.on_fenced: Callable[[BaseException], None] = lambda _fault: None
        self.on_blocked: Callable[[str], None] = lambda _what: None
        """Never called: a sync waits for no other machine."""
        self._folder, self._pause_s = folder, lease_s / BEATS_PER_LEASE
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
        fd = os.open(self._folder / BEAT_NAME, os.O_WRONLY | os.O_CLOEXEC | flags, 0o640)
        try:
            os.pwrite(fd, b"%d %d\n" % (os.getpid(), self._count), 0)
        finally:
            os.close(fd)

    def stop(self) -> None:
        """Beat no more."""
        self._over.set()
