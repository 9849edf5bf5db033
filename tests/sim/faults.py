"""How a life of the node ends: drawn anew at every boot."""

import errno
import os
import random
from dataclasses import dataclass

from tests.sim.disk import Crash

DISK, FRAME, STEP, BROKEN, STOP = "disk call", "frame", "step", "broken disk", "stop"

STEPS_AFTER_BROKEN = 150


@dataclass(slots=True)
class Ending:
    """After so many disk calls, frames or steps the node crashes; or the disk breaks at a write or
    sync; or the operator stops the node. is_power: with a power cut."""

    kind: str
    left: int
    is_power: bool

    @classmethod
    def draw(cls, rng: random.Random) -> "Ending":
        """A random one; short lives are the most frequent, some end while they boot."""
        kind = rng.choice((DISK, DISK, DISK, FRAME, FRAME, STEP, STEP, BROKEN, STOP))
        mean = {DISK: 60, FRAME: 40, STEP: 250, BROKEN: 30, STOP: 300}[kind]
        left = 1 + int(rng.expovariate(1 / mean))
        if kind is DISK and rng.random() < 0.15:
            left = rng.randint(1, 14)  # a boot takes about so many
        return cls(kind, left, rng.random() < 0.5)

    def count(self, kind: str) -> bool:
        """One more of that kind; whether this was the last."""
        if kind != self.kind:
            return False
        self.left -= 1
        return self.left == 0

    def disk_call(self, call: str) -> None:
        """A call of the disk: crash, or refuse."""
        if self.count(DISK):
            raise Crash(is_power=self.is_power)
        if call in ("pwritev", "fdatasync", "fsync", "fsync_dir") and self.count(BROKEN):
            self.kind, self.left = STEP, STEPS_AFTER_BROKEN  # for a node that does not stop
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def frame(self) -> None:
        """A frame is about to leave."""
        if self.count(FRAME):
            raise Crash(is_power=self.is_power)
