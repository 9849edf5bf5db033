"""Settled rest: of a commit that acknowledged very much, what only memory has yet to forget.

The commit's one record says that all of it left, and from then on it counts nowhere. To forget each
message costs a microsecond, and a transaction may have 500,000: ticks do that in slices. Meanwhile
the log keeps its segments for them, which is more than is needed. It must not tell of them again:
settle_now() comes before a segment's messages are moved.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Queue, Subscription

__all__ = ["FORGOTTEN_AT_ONCE", "SettledRest"]

FORGOTTEN_AT_ONCE = 4096
"""Messages: 5 ms."""


class SettledRest:
    """By place, in the order of their commits."""

    __slots__ = ("_left", "_spent")

    def __init__(self) -> None:
        self._left: list[tuple[Queue | Subscription, list[StoredMessage]]] = []
        self._spent: list[list[Any]] = []

    def __bool__(self) -> bool:
        return bool(self._left or self._spent)

    def add(self, place: Queue | Subscription, messages: list[StoredMessage]) -> None:
        """These have left the place; the list is taken over."""
        self._left.append((place, messages))

    def free(self, spent: Iterable[list[Any]]) -> None:
        """Lists that nobody needs: of 500,000 pairs the end takes 50 ms."""
        self._spent += spent

    def settle_some(self) -> Queue | Subscription | None:
        """A slice; the place where something that waited for it may go out now."""
        if self._spent:
            del self._spent[0][-FORGOTTEN_AT_ONCE:]
            if not self._spent[0]:
                del self._spent[0]
        if not self._left:
            return None
        place, messages = self._left[0]
        some = messages[-FORGOTTEN_AT_ONCE:]
        del messages[-FORGOTTEN_AT_ONCE:]
        if not messages:
            del self._left[0]
        place.line.forget_settled(some)
        return place

    def settle_now(self, messages: Sequence[StoredMessage]) -> None:
        """Those of the messages that wait here, before the log tells of them again."""
        if not self._left:
            return
        ids = {message.id for message in messages}
        for place, rest in self._left:
            found = [m for m in rest if m.id in ids]
            if found:
                place.line.forget_settled(found)
                rest[:] = [m for m in rest if m.id not in ids]
        self._left = [(place, rest) for place, rest in self._left if rest]
