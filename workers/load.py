"""How busy a pool of workers is at a moment."""

from dataclasses import dataclass

__all__ = ["PoolLoad"]


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """busy: workers that do not sleep; waiting: what no worker has taken; deepest: what waits in
    the longest queue, of those that stay in order."""

    workers: int
    busy: int
    waiting: int
    deepest: int
