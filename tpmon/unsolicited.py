"""Unsolicited messages of one context: handled as they come, or kept to be asked for."""

import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["UnsolFunc", "Unsolicited", "UnsolicitedMessage"]

KEPT_MAX = 1024
ANY = 5

UnsolFunc = Callable[[Any, int, int], object]
"""Is given data, its length and flags, as Tmax's handler is."""


class UnsolicitedMessage(NamedTuple):
    """what: 1 posted, 2 broadcast, 3 for this client; sender: its cltid, 0 for a posted one."""

    what: int
    data: Any
    size: int
    sender: int = 0


class Unsolicited:
    """See the module. dropped: how many were too many, the oldest first."""

    def __init__(self) -> None:
        self.is_ignored = False
        self.dropped = 0
        self._handler: UnsolFunc | None = None
        self._handler_context = contextvars.copy_context()
        self._kept: deque[UnsolicitedMessage] = deque()

    def handle(self, handler: UnsolFunc | None) -> UnsolFunc | None:
        """Have this called for each, in the context of the caller; the one before."""
        before, self._handler = self._handler, handler
        self._handler_context = contextvars.copy_context()
        return before

    def came(self, message: UnsolicitedMessage) -> None:
        """One more; on a thread of the library."""
        handler = self._handler
        if handler is not None:
            self._handler_context.run(handler, message.data, message.size, 0)
        elif not self.is_ignored:
            if len(self._kept) >= KEPT_MAX:
                self._kept.popleft()
                self.dropped += 1
            self._kept.append(message)

    @property
    def count(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def take(self, what: int = ANY) -> UnsolicitedMessage | None:
        """The oldest of that type, None when there is none."""
        for message in list(self._kept):
            if what in (ANY, message.what):
                self._kept.remove(message)
                return message
        return None
