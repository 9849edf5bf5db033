"""The pace at which a copy gets what it lacks, beside what is written now (sans-IO).

What a piece costs is read, sent, taken, written and synced in the time from when it goes until the
copy has it. While somebody writes, the link rests for a multiple of that behind each burst: where
copies share processors or a disk with who writes, and where they are busy, it rests for longer. It
never rests while the copy got less than a multiple of what was written since it joined: so a
catch-up ends under any load. While nobody writes there is no rest.
"""

from typing import Final

__all__ = [
    "BURST_FRAMES",
    "BUSY_S",
    "KEEPS_UP",
    "PIECE_BYTES",
    "RESTS",
    "REST_MAX_S",
    "CatchUpPace",
]

PIECE_BYTES: Final = 512 << 10
"""So much of what a copy lacks is read in a turn: what is written now waits for no more (P13)."""
BURST_FRAMES: Final = 4
"""So many pieces go before the link looks what they cost."""
RESTS: Final = 4
"""So many times as long as a burst took the link rests behind it: it has a fifth of the time
(P13)."""
REST_MAX_S: Final = 1.0
"""At most: a copy whose disk stood still for a minute does not wait for two."""
BUSY_S: Final = 0.1
"""So long after something was written somebody is taken to write."""
KEEPS_UP: Final = 2
"""Bytes that a copy gets for each one that is written meanwhile, at least, in whole pieces."""


class CatchUpPace:
    """Of one copy, since it joined. Times are seconds on one clock."""

    def __init__(self) -> None:
        self._busy_until_s = self._rests_until_s = float("-inf")
        self._owed_bytes = 0
        self._begun_s, self._pieces, self._last = 0.0, 0, 0
        """When the burst began that is on its way, its pieces, and its last frame."""
        self._way_s = float("inf")
        """There and back, which is no work; until a beat was answered nothing is known of it."""

    def wrote(self, at_s: float, size: int) -> None:
        """Somebody did; size: of what the copy will have to get, 0 where it gets it at once."""
        self._busy_until_s = at_s + BUSY_S
        self._owed_bytes += KEEPS_UP * size

    def answered(self, way_s: float) -> None:
        """A beat was answered after so long."""
        self._way_s = min(self._way_s, way_s)

    def sent(self, frame: int, size: int, at_s: float) -> None:
        """A piece goes, of which this is the frame's number."""
        if not self._pieces:
            self._begun_s = at_s
        self._pieces, self._last = self._pieces + 1, frame
        self._owed_bytes = max(0, self._owed_bytes - size)

    def took(self, frames: int, at_s: float) -> None:
        """The copy has so many frames."""
        if self._pieces and frames >= self._last:
            way_s = self._way_s if self._way_s < float("inf") else 0.0
            cost_s = max(0.0, at_s - self._begun_s - way_s)
            self._rests_until_s = at_s + min(RESTS * cost_s, REST_MAX_S)
            self._pieces = 0

    def may_send(self, at_s: float) -> bool:
        """A burst is not full, or nobody would be held up by more."""
        return self._pieces < BURST_FRAMES or not self._gives_way(at_s)

    def rest_s(self, at_s: float) -> float:
        """So long the next piece waits."""
        return max(0.0, self._rests_until_s - at_s) if self._gives_way(at_s) else 0.0

    def _gives_way(self, at_s: float) -> bool:
        return at_s < self._busy_until_s and self._owed_bytes < PIECE_BYTES
