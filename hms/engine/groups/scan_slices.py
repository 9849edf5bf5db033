"""Looking: consumers with selectors look at what waits in slices, between which others go on.

To ask a selector about 100,000 messages may take 20 seconds. A command takes so many steps of it as
a millisecond of the node allows, the rest is done by ticks. Who has not looked at everything yet is
*behind*: it is given nothing that may overtake what it has not looked at.
"""

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hms.engine.groups.candidates import Candidates

__all__ = ["LOOK_STEPS", "Looking"]

LOOK_STEPS = 10_000
"""2 to 20 ms; see hms/engine/selector/selector_cost.py."""
TURN_STEPS = LOOK_STEPS // 10
"""After so many it is the turn of the next one that is behind."""


class Looking:
    """Who is behind at this node. steps_left: how many steps may be taken yet; see State.at()."""

    def __init__(self) -> None:
        self.steps_left = LOOK_STEPS
        self._behind: deque[Candidates] = deque()

    @property
    def is_any(self) -> bool:
        """Whether somebody is behind."""
        return bool(self._behind)

    def refill(self) -> None:
        """A new slice begins."""
        self.steps_left = LOOK_STEPS

    def add(self, candidates: "Candidates") -> None:
        """One falls behind."""
        self._behind.append(candidates)

    def go_on(self) -> "list[Candidates]":
        """Look at more until the steps are used up; who has looked, each once."""
        looked: dict[Candidates, None] = {}
        while self._behind and self.steps_left > 0:
            one = self._behind.popleft()
            one.go_on(TURN_STEPS)
            looked[one] = None
            if one.is_behind:
                self._behind.append(one)
        return list(looked)
