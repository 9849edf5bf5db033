"""Crowd: the subscriptions of an audience, sorted out.

Each list is in the order of the subscriptions, so that one comes or goes by halving.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from hms.engine.flow.destination_control import Control
from hms.engine.queue.destinations import Subscription

__all__ = ["Crowd"]

_order = attrgetter("order")


class Crowd:
    """every: all of them; plain: without a selector, and selecting: with one; special: unlike most
    for something else, and of these queued: those that deliver into a queue, proxies: of other
    nodes, ending: those that end at a time."""

    __slots__ = (
        *("controls", "ending", "every", "numbers", "plain", "proxies", "queued", "selecting"),
        *("special", "wildcard_count"),
    )

    def __init__(self, subscriptions: Sequence[Subscription] = ()) -> None:
        self.every: list[Subscription] = []
        self.plain: list[Subscription] = []
        self.selecting: list[Subscription] = []
        self.special: list[Subscription] = []
        self.queued: list[Subscription] = []
        self.proxies: list[Subscription] = []
        self.ending: list[Subscription] = []
        self.numbers: list[int] = []
        """Of those that the log knows."""
        self.wildcard_count = 0
        self.controls = Counter[Control]()
        """How many have each."""
        self.take(subscriptions)

    def copy(self) -> "Crowd":
        """To be changed, while this one stays as it is."""
        made = Crowd()
        for mine, other in zip(self._lists(), made._lists(), strict=True):
            other.extend(mine)
        made.numbers += self.numbers
        made.wildcard_count, made.controls = self.wildcard_count, self.controls.copy()
        return made

    def take(self, some: Sequence[Subscription]) -> None:
        """Those come, behind all others."""
        self.every += some
        selecting = [s for s in some if s.selector is not None]
        self.selecting += selecting
        self.plain += [s for s in some if s.selector is None] if selecting else some
        self.numbers += [s.number for s in some if s.number]
        self.controls.update([s.control for s in some])
        special = [s for s in some if s.is_special]
        if special:
            queued = [s for s in special if s.queue is not None]
            self.special += special
            self.queued += queued
            self.proxies += [s for s in special if s.is_proxy]
            self.ending += [s for s in special if s.ends_at_ms]
            self.wildcard_count += len([s for s in special if s.pattern.is_wildcard])
            self.controls.update([s.queue.control for s in queued if s.queue is not None])

    def leave(self, one: Subscription) -> bool:
        """One goes; whether it was here."""
        if not _taken_from(self.every, one):
            return False
        for some in self._lists()[1:]:
            _taken_from(some, one)
        if one.number:
            self.numbers.remove(one.number)
        self.wildcard_count -= one.is_special and one.pattern.is_wildcard
        for place in (one, one.queue):
            if place is not None:
                self.controls[place.control] -= 1
                if not self.controls[place.control]:
                    del self.controls[place.control]
        return True

    @property
    def until_ms(self) -> int:
        """When the first of them ends."""
        return min([s.ends_at_ms for s in self.ending], default=1 << 62)

    def _lists(self) -> list[list[Subscription]]:
        own = [self.every, self.plain, self.selecting, self.special, self.queued]
        return [*own, self.proxies, self.ending]


def _taken_from(some: list[Subscription], one: Subscription) -> bool:
    at = bisect_left(some, one.order, key=_order)
    if at == len(some) or some[at] is not one:
        return False
    del some[at]
    return True
