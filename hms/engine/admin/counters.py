"""Counters: what happened at a line, and the totals over all lines of a node.

Lines tell their totals of each change, so that nobody has to walk over them: a look at the figures
of a node costs the same whether it has ten queues or a hundred thousand.
"""

from dataclasses import dataclass, field

__all__ = ["COUNTED", "Counters", "Totals"]

COUNTED = (
    *("sent", "delivered", "acknowledged", "redelivered", "expired", "dead_lettered", "purged"),
    *("removed", "moved_in", "moved_out", "returned"),
)
"""What a line and its totals count alike."""


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
    returned: int = 0
    """Dead letters that came back."""
    removed: int = 0
    count_high: int = 0
    """The most that were here at once since then."""
    bytes_high: int = 0

    def add(self, other: "Counters") -> None:
        """What is counted at another line, too."""
        for what in COUNTED:
            setattr(self, what, getattr(self, what) + getattr(other, what))


@dataclass(slots=True)
class Totals:
    """Over all lines of one durability: what there is, and what happened. What a line counted
    before it ended stays, so that counters never fall."""

    places: int = 0
    messages: int = 0
    in_flight: int = 0
    delayed: int = 0
    bytes: int = 0
    consumers: int = 0
    sent: int = 0
    delivered: int = 0
    acknowledged: int = 0
    redelivered: int = 0
    expired: int = 0
    dead_lettered: int = 0
    purged: int = 0
    removed: int = 0
    moved_in: int = 0
    moved_out: int = 0
    returned: int = 0
    letters: dict[str, int] = field(default_factory=dict)
    """How many were dead-lettered for which reason."""
