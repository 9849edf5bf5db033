"""Spreads: publications that very many subscriptions get, some subscriptions at a time.

Theory of operation. The record of such a publication names all its places, its messages are held by
all of them and counted, and it is confirmed as any other. Only the step that puts the messages into
each subscription's line is left: it is done some subscriptions at a time, each time under its own
hold of the engine's lock. A crash in between finds the record, and recovery puts the messages into
all the lines. While one is under way, what is published stands behind it, so each subscription has
everything in order; what has to have all of one subscription's messages at once puts those there
first (give_now() of spreading.py).
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Subscription
from hms.engine.queue.incoming import EXPIRING

__all__ = ["Part", "Spread", "Spreads", "steps_of"]

Part = tuple[Sequence[Subscription], list[StoredMessage]]
"""Subscriptions, in their order, and what each of them gets."""
MESSAGES_PER_STEP = 16
"""Putting this number into a line takes as long as going to the next line."""
EXPIRING_PER_STEP = 2
"""The same of those that have a time to live."""


class Spread:
    """One publication. parts: no subscription is in two of them; due: when its delayed messages may
    go, by their ids; uses: as in incoming.py."""

    __slots__ = ("_at", "_early", "_part", "due", "parts", "uses")

    def __init__(self, parts: Sequence[Part], due: Mapping[int, int], uses: int) -> None:
        self.parts, self.due, self.uses = parts, due, uses
        self._part = self._at = 0
        self._early: set[Subscription] = set()
        """Those that have theirs before their turn."""

    @property
    def is_done(self) -> bool:
        """All have theirs."""
        return self._part == len(self.parts)

    def take(
        self, steps: int
    ) -> Iterator[tuple[Sequence[Subscription], Sequence[Subscription], list[StoredMessage]]]:
        """The next ones, in all as many as so many steps are for, and those of them that are to get
        theirs yet."""
        while steps > 0 and self._part < len(self.parts):
            subscriptions, messages = self.parts[self._part]
            each = self.steps_of(messages)
            end = min(len(subscriptions), self._at + -(-steps // each))
            some = subscriptions[self._at : end]
            steps -= len(some) * each
            if end == len(subscriptions):
                self._part, self._at = self._part + 1, 0
            else:
                self._at = end
            late = [one for one in some if one not in self._early] if self._early else some
            yield some, late, messages

    def steps_of(self, messages: Sequence[StoredMessage]) -> int:
        """What it takes to put them into a line."""
        return steps_of(len(messages), len(self.due), self.uses)

    def take_one(self, subscription: Subscription) -> list[StoredMessage] | None:
        """What this one is to get yet, which it has from now on."""
        if subscription in self._early:
            return None
        for number in range(self._part, len(self.parts)):
            subscriptions, messages = self.parts[number]
            start = self._at if number == self._part else 0
            at = bisect_left(subscriptions, subscription.order, start, key=_order)
            if at < len(subscriptions) and subscriptions[at] is subscription:
                self._early.add(subscription)
                return messages
        return None


class Spreads:
    """Those that are under way, the oldest first."""

    def __init__(self) -> None:
        self.waiting: deque[Spread] = deque()
        self.is_told = False
        """Ticks go on with them."""
        self.given = 0
        """So many steps the command at hand has put into lines at once; see State.at()."""
        self.takes_all = False
        """What is published now belongs to a commit of many publications."""

    def __bool__(self) -> bool:
        return bool(self.waiting)


def steps_of(count: int, due: int, uses: int) -> int:
    """What it takes to put so many messages into a line, of so many of which each waits there for
    its time; uses: as in incoming.py."""
    each = EXPIRING_PER_STEP if uses & EXPIRING else MESSAGES_PER_STEP
    return 1 + count // each + min(count, due)


def _order(subscription: Subscription) -> int:
    return subscription.order
