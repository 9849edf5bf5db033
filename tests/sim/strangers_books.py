"""What clients of two logs were told, compared with what is there in the end."""

from collections import Counter
from collections.abc import Sequence

DONE, DOUBT, NOTHING = "done", "in doubt", "rolled back"


class Books:
    """By message: what its sender was told, who took it for good or perhaps, and where it was left.
    A message that was taken in doubt was taken, or it is somewhere still."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.taken: Counter[str] = Counter()
        self.perhaps: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.told_lost: set[tuple[str, int]] = set()

    def sent(self, keys: Sequence[str], outcome: str) -> None:
        """A sender was told that of these."""
        self.outcomes[f"sent {outcome}"] += 1
        self.told |= dict.fromkeys(keys, outcome)

    def received(self, keys: Sequence[str], outcome: str) -> None:
        """A receiver was told that of its acknowledgement of these."""
        self.outcomes[f"received {outcome}"] += 1
        if outcome == DONE:
            self.taken.update(keys)
        elif outcome == DOUBT:
            self.perhaps.update(keys)

    def faults(self) -> list[str]:
        """What does not agree."""
        return [said for key in self._keys() if (said := self._fault(key))]

    def _keys(self) -> list[str]:
        return sorted({*self.told, *self.taken, *self.perhaps, *self.left})

    def _fault(self, key: str) -> str:
        told, perhaps = self.told.get(key), self.perhaps[key]
        there = self.taken[key] + self.left[key]
        facts = f"{key} was {told}, taken {self.taken[key]} times, perhaps {perhaps}, "
        facts += f"left {self.left[key]} times"
        if there > 1:
            return f"doubled: {facts}"
        if told == DONE and not there and not perhaps:
            return f"lost: {facts}"
        if told == NOTHING and (there or perhaps):
            return f"untrue: {facts}"
        return f"unknown: {facts}" if told is None else ""
