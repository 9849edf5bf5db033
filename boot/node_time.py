"""The node's time as a standby of a shared store has seen it run: it goes on from there when this
machine takes over, whatever its own clock says (H17)."""

from collections.abc import Callable

from hms.boot.clock import EvenClock, awake_and_asleep_ns

__all__ = ["NodeTime"]

_NS_PER_MS = 1_000_000


class NodeTime:
    """What the node's clock said last, and when that was heard here. What was there at the first
    look may be old, so only what was seen to change is believed: one that saw nothing change begins
    by its own clock, as at a boot."""

    def __init__(self, steady_ns: Callable[[], int] = awake_and_asleep_ns) -> None:
        self._steady_ns = steady_ns
        self._seen: object = None
        self._told: tuple[int, int] | None = None

    def saw(self, sign: object, at_ms: int | None) -> None:
        """A sign of the owner's life, which differs from the one before when it is new, and the
        time that it tells; None where it tells none."""
        is_new = self._seen is not None and sign != self._seen
        self._seen = sign
        if is_new:
            self._told = None if at_ms is None else (at_ms, self._steady_ns())

    def go_on(self, clock: EvenClock) -> None:
        """This machine takes over."""
        if self._told is not None:
            at_ms, heard_ns = self._told
            clock.go_on_from(at_ms + (self._steady_ns() - heard_ns) // _NS_PER_MS)
