"""Promises: when a copy that was granted an epoch may lead in it (sans-IO).

With A copies needed of N for a confirmation, T = N - A + 1 clean copies that promise the epoch are
needed for a take-over. Whatever was confirmed is at A members, so at one of the T at least; and of
the others, which may still take what an older primary sends, there are A - 1: too few to confirm.

The copy that goes furthest leads: by the epoch of its last segment first, then by where that ends.
Of one epoch there is one writer, so the longer one of two copies has all that the shorter one has.
A candidate that is not the one gives way to it.
"""

from typing import NamedTuple

from hms.server.arbiter.interface import Configuration

__all__ = ["End", "GiveWay", "Lead", "Promises", "promises_needed"]


def promises_needed(now: Configuration) -> int:
    """T: clean copies that a take-over needs, the candidate among them."""
    return len(now.members) - now.copies + 1


class End(NamedTuple):
    """How far a copy goes: epoch and number of its last segment, and the offset behind its last
    record. Compared in this order."""

    epoch: int = 0
    number: int = 0
    offset: int = 0


class Lead(NamedTuple):
    """This copy may open the epoch. by: names of the copies that promised it."""

    by: tuple[str, ...]


class GiveWay(NamedTuple):
    """Another copy goes further: it is to lead."""

    to: str


class Promises:
    """Those of one epoch, as its candidate counts them; of members only, and of each one once."""

    def __init__(self, now: Configuration) -> None:
        self._names = {one.copy_id: one.name for one in now.members}
        self.needed = promises_needed(now)
        self._ends: dict[str, End] = {}
        """Of clean copies, by copy id: the candidate's own is the first."""
        self.damaged: set[str] = set()
        """Names of copies that promised, and may have lost what they had."""

    def promised(self, copy_id: str, end: End, *, is_clean: bool) -> None:
        """A copy takes no frame of a lower epoch any more. One that is no member, or that may have
        lost some of what it had, does not count."""
        name = self._names.get(copy_id)
        if name is None:
            return
        if is_clean:
            self._ends[copy_id] = end
            self.damaged.discard(name)
        else:
            self._ends.pop(copy_id, None)
            self.damaged.add(name)

    @property
    def have(self) -> int:
        """Clean copies that promised."""
        return len(self._ends)

    def verdict(self, me: str) -> Lead | GiveWay | None:
        """For the candidate with this copy id; None: there are not enough yet."""
        if self.have < self.needed:
            return None
        furthest = max(self._ends.values())
        if self._ends.get(me) == furthest:
            return Lead(tuple(self._names[one] for one in self._ends))
        to = next(one for one, end in self._ends.items() if end == furthest)
        return GiveWay(self._names[to])
