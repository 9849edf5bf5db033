"""Forwards: the queues of the system's own whose messages go to one queue of one other node."""

from typing import NamedTuple

from hms.engine.queue.destinations import RELAY_PREFIX

__all__ = ["Forward", "forward_of"]

_BARE, _WHOLE = "bare", "whole"


class Forward(NamedTuple):
    """node: the index of the one that gets them; origin: the number of the place here that they
    come from; is_bare: a dead letter is none any more there; queue: its name there."""

    node: int
    origin: int
    is_bare: bool
    queue: str

    @property
    def name(self) -> str:
        """Of the queue here."""
        how = _BARE if self.is_bare else _WHOLE
        return f"{RELAY_PREFIX}{self.node}:{self.origin}:{how}:{self.queue}"


def forward_of(name: str) -> Forward | None:
    """What the name of a queue says; None when it is no forward."""
    if not name.startswith(RELAY_PREFIX):
        return None
    node, _, rest = name.removeprefix(RELAY_PREFIX).partition(":")
    origin, _, rest = rest.partition(":")
    how, _, queue = rest.partition(":")
    numbers = (node.isascii() and node.isdigit(), origin.isascii() and origin.isdigit())
    if not all(numbers) or how not in (_BARE, _WHOLE) or not queue:
        return None
    return Forward(int(node), int(origin), how == _BARE, queue)
