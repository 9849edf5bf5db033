"""Scan slices: consumers with selectors look at what waits in slices, between which others go on.

To ask a selector about 100,000 messages may take 20 seconds. A command takes so many steps of it as
a millisecond of the node allows, the rest is done by ticks. Who has not looked at everything yet is
*behind*: it is given nothing that may overtake what it has not looked at.
"""

from collections import deque
from typing import Generic, Protocol, TypeVar

__all__ = ["LOOK_STEPS", "ScanSlices"]

LOOK_STEPS = 10_000
"""2 to 20 ms; see hms/engine/selector/selector_cost.py."""
RELEASED_AT_ONCE = 20_000
"""Keys: 2 to 5 ms."""
TURN_STEPS = LOOK_STEPS // 10
"""After so many it is the turn of the next one that is behind."""


class Scan(Protocol):
    """What a consumer with a selector has not looked at yet."""

    @property
    def is_behind(self) -> bool:
        """Whether there is something."""

    def go_on(self, steps: int) -> None:
        """Look at more of it, for so many steps at most."""


class Left(Protocol):
    """What nobody needs any more."""

    def release(self, count: int) -> bool:
        """Let go of so many entries; whether there are more."""


_Scan = TypeVar("_Scan", bound=Scan)


class ScanSlices(Generic[_Scan]):
    """Who is behind at this node. steps_left: how many steps may be taken yet; see State.at()."""

    def __init__(self) -> None:
        self.steps_left = LOOK_STEPS
        self.asked = 0
        """How many consumers were offered something in the command at hand."""
        self.behind: deque[_Scan] = deque()
        """Whose turn it is, in order."""
        self.left: list[Left] = []
        """What nobody needs any more, and is let go in slices."""

    @property
    def is_any(self) -> bool:
        """Whether somebody is behind, or something is to be let go."""
        return bool(self.behind or self.left)

    def refill(self) -> None:
        """A new slice begins."""
        self.steps_left = LOOK_STEPS

    def add(self, candidates: _Scan) -> None:
        """One falls behind."""
        self.behind.append(candidates)

    def release_some(self) -> None:
        """Let go of some of what nobody needs any more."""
        if self.left and not self.left[-1].release(RELEASED_AT_ONCE):
            self.left.pop()

    def go_on(self) -> list[_Scan]:
        """Look at more until the steps are used up; who has looked, each once."""
        looked: dict[_Scan, None] = {}
        while self.behind and self.steps_left > 0:
            one = self.behind.popleft()
            one.go_on(TURN_STEPS)
            looked[one] = None
            if one.is_behind:
                self.behind.append(one)
        return list(looked)
