"""In which phase a run of the archive is, by what it has left on the disk, and kills aimed at one.

A run shows its phase from outside: a draft's folder, files in it, files that no manifest names yet,
a manifest that is ahead of the mark, the mark. So a test that kills it can wait for a phase, and
can say behind the kill which one was hit.
"""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hms.history.archive_mark import read_mark

PHASES = ("starting", "reading", "writing", "comparing", "manifest", "mark")
"""mark: the piece is archived and marked; what is left is to merge small files and to end."""
LOOK_S = 0.0005
RUN_S_MAX = 600


class Left(NamedTuple):
    """What is on the disk."""

    drafts: frozenset[str]
    data: frozenset[str]
    version: str
    mark: int

    @classmethod
    def at(cls, store: Path, where: Path) -> "Left":
        """What is there now; a run may go on meanwhile."""
        mark = read_mark(store)
        return cls(
            _names(where / "draft"),
            frozenset(
                name for day in _names(where / "data") for name in _names(where / "data" / day)
            ),
            max(_versions(where), default=""),
            mark.until_offset if mark else 0,
        )


def _names(folder: Path) -> frozenset[str]:
    with suppress(OSError):
        return frozenset(entry.name for entry in os.scandir(folder))
    return frozenset()


def _versions(where: Path) -> list[str]:
    return [name for name in _names(where / "manifest") if name.endswith(".json")]


def phase_of(store: Path, where: Path, before: Left) -> str:
    """The phase of a run; before: what was there when it began."""
    now = Left.at(store, where)
    if now.mark > before.mark:
        return "mark"
    if now.version > before.version:
        return "manifest"
    if now.data - before.data:
        return "comparing"
    drafts = [where / "draft" / name for name in now.drafts - before.drafts]
    if any(map(_has_parquet, drafts)):
        return "writing"
    return "reading" if drafts else "starting"


def _has_parquet(draft: Path) -> bool:
    """Folders come and go while they are looked through."""
    with suppress(OSError):
        return any(draft.rglob("*.parquet"))
    return False


class Killer:
    """Draws the moments of kills, every phase as often as the others, and learns how long each
    phase takes."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._deck: list[str] = []
        self._seconds = dict.fromkeys(PHASES, 0.0)

    def aim(self) -> str:
        """The phase that the next kill is for."""
        if not self._deck:
            self._deck = self._rng.sample(PHASES, len(PHASES))
        return self._deck.pop()

    def missed(self, phase: str) -> None:
        """The run ended before its kill: it is tried again."""
        self._deck.append(phase)
        self._seconds[phase] *= 0.7

    def follow(
        self, process: subprocess.Popen[bytes], store: Path, where: Path, aimed: str | None
    ) -> str:
        """Kill a process, with all of its session, in that phase; None: let it end. The phase that
        it was in at its end."""
        before, began = Left.at(store, where), time.monotonic()
        phase, since = PHASES[0], began
        kill_at = self._moment(aimed, PHASES[0], began)
        while process.poll() is None:
            now = time.monotonic()
            assert now - began < RUN_S_MAX, "a run of the archive does not end"
            if now >= kill_at:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return phase_of(store, where, before)
            found = phase_of(store, where, before)
            if found != phase:
                self._seconds[phase] = now - since
                phase, since = found, now
                kill_at = min(kill_at, self._moment(aimed, phase, now))
            time.sleep(LOOK_S if aimed else 0.01)
        self._seconds[phase] = time.monotonic() - since
        return phase

    def _moment(self, aimed: str | None, phase: str, now: float) -> float:
        """When to kill in a phase that begins; one that was passed over unseen is made up for."""
        if aimed is None or PHASES.index(phase) < PHASES.index(aimed):
            return float("inf")
        return now + (self._rng.uniform(0, self._seconds[aimed]) if phase == aimed else 0)
