"""Scrubbing: cold segments of a copy are read again, one after the other, before they are needed.

Bits rot where nobody looks. One segment is read in every `scrub_s`, in small steps with a pause
between them, so that traffic hardly notices (P13). What is found is noted (see damage), and told.
"""

import logging
import threading
from pathlib import Path
from typing import Any, Final

from hms.server.replicas.damage import check_segment, note_damages, read_damages
from hms.store.journal.disk import Disk
from hms.store.journal.segment_walk import LOG_SUFFIX, all_files, segment_numbers

__all__ = ["Scrubbing"]

log = logging.getLogger("hms.replicas")

STEP_PAUSE_S: Final = 0.005
JOIN_S: Final = 10.0


class Scrubbing:
    """Of one copy, in a thread of its own, while it leads and while it follows."""

    def __init__(self, disk: Disk, folder: Path, every_s: float) -> None:
        self._disk, self._folder, self._every_s = disk, folder, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hms-scrub", daemon=True)
        self._last = 0
        self._known: list[str] = []
        self.checked = 0
        """Segments."""

    def look(self) -> None:
        """At what is known to be damaged; what describe() says is in memory."""
        known = read_damages(self._disk, self._folder).values()
        self._known = [f"segment {d.segment}, offset {d.offset}: {d.detail}" for d in known]

    def start(self) -> None:
        """Begin, from the oldest segment on."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def describe(self) -> dict[str, Any]:
        """For the status, which is made under the engine's lock: no disk is read."""
        return {"segments_scrubbed": self.checked, "damage": self._known}

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self.step()
                self.look()
            except OSError as fault:
                log.warning("%s is not read through: %s", self._folder, fault)

    def step(self) -> None:
        """One segment: the next one that nobody writes."""
        numbers = sorted(all_files(self._disk, self._folder))
        newest = max(segment_numbers(self._disk, self._folder, LOG_SUFFIX), default=0)
        cold = [number for number in numbers if number < newest]
        if not cold:
            return
        self._last = next((number for number in cold if number > self._last), cold[0])
        known = read_damages(self._disk, self._folder)
        found = check_segment(self._disk, self._folder, self._last, self._pause)
        self.checked += 1
        if found is not None and found.segment not in known:
            note_damages(self._disk, self._folder, [found])

    def _pause(self) -> None:
        self._over.wait(STEP_PAUSE_S)
