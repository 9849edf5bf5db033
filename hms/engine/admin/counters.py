"""Counters: what happened at a line."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What happened at a line since the node booted (F-M5)."""

    sent: int = 0
    delivered: int = 0
    acknowledged: int = 0
    expired: int = 0
    dead_lettered: int = 0
    purged: int = 0
    redelivered: int = 0
    moved_in: int = 0
    moved_out: int = 0
    removed: int = 0
    count_high: int = 0
    """The most that were here at once since then."""
    bytes_high: int = 0

    def add(self, other: "Counters") -> None:
        """What happened at another line, too; its highest marks say nothing of this one."""
        self.sent += other.sent
        self.delivered += other.delivered
        self.acknowledged += other.acknowledged
        self.expired += other.expired
        self.dead_lettered += other.dead_lettered
        self.purged += other.purged
        self.redelivered += other.redelivered
        self.moved_in += other.moved_in
        self.moved_out += other.moved_out
        self.removed += other.removed
