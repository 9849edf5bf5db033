"""Audience draft: who gets what is published on a topic, found in slices.

Theory of operation. A draft goes through the subscriptions that a topic has when it begins, learns
their selectors, and then works in what has changed meanwhile; between two slices others have the
engine's lock. A finished audience is the beginning of the next one, into which only that is worked
that changed since: a whole look at 20,000 selectors of which no two are alike took 38 to 52 ms.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from hms.engine.queue.destinations import Subscription
from hms.engine.topic.choices import Choices
from hms.engine.topic.crowd import Crowd
from hms.engine.topic.recipients import Audience
from hms.engine.topic.retained import Wants

__all__ = ["AudienceDraft", "Change", "renewed"]

SORTED_AT_ONCE = 256
SORTED_PER_STEP = 8
"""To look at so many subscriptions takes as long as to learn a selector."""
Allowed = Callable[[Subscription], bool]
"""Whether a subscription's owner may have what is published on the topic."""


class Change(NamedTuple):
    """A subscription came, or went."""

    subscription: Subscription
    is_added: bool


class _Parts:
    """What an audience is made of, while it may change."""

    __slots__ = ("choices", "crowd", "is_allowed", "withheld")

    def __init__(
        self,
        crowd: Crowd,
        choices: Choices,
        withheld: list[Subscription],
        is_allowed: Allowed | None,
    ) -> None:
        self.crowd, self.choices, self.withheld = crowd, choices, withheld
        self.is_allowed = is_allowed

    def sort_out(self, some: Sequence[Subscription], now_ms: int) -> None:
        """Those of some that want and may have it come; their selectors are not learned."""
        wanting = [s for s in some if not s.is_special or _wants_now(s, now_ms)]
        is_allowed = self.is_allowed
        if is_allowed is not None:
            withheld = [s for s in wanting if not is_allowed(s)]
            if withheld:
                hidden = set(withheld)
                wanting = [s for s in wanting if s not in hidden]
                self.withheld += withheld
        self.crowd.take(wanting)

    def work_in(self, change: Change, now_ms: int) -> None:
        """A subscription came, or went."""
        one, crowd = change.subscription, self.crowd
        if change.is_added:
            before = len(crowd.selecting)
            self.sort_out([one], now_ms)
            if len(crowd.selecting) > before:
                self.choices.add(one)
        else:
            self.leave(one)

    def leave(self, one: Subscription) -> None:
        """One goes, if it is here."""
        if self.crowd.leave(one):
            if one.selector is not None:
                self.choices.drop(one.selector)
        elif one in self.withheld:
            self.withheld.remove(one)

    def end_over(self, now_ms: int) -> None:
        """Those go whose time is over."""
        for one in [s for s in self.crowd.ending if s.is_over(now_ms)]:
            self.leave(one)

    def audience(self, redefined_count: int) -> Audience:
        """That of these."""
        return Audience(self.crowd, self.choices, self.withheld, redefined_count)


class AudienceDraft:
    """every: the subscriptions whose pattern matches, in order; choices_for: what the choices of so
    many are made from; same: an audience that has just these, if there is one."""

    __slots__ = ("_now_ms", "_parts", "_same", "_work", "changes")

    def __init__(
        self,
        every: Sequence[Subscription],
        choices_for: Callable[[int], Choices],
        is_allowed: Allowed | None,
        same: Callable[[Crowd, list[Subscription]], Audience | None] = lambda *_: None,
    ) -> None:
        self.changes: list[Change] = []
        """What has changed since it began, and is not worked in yet."""
        self._parts = _Parts(Crowd(), Choices(), [], is_allowed)
        self._same: Audience | None = None
        self._now_ms = 0
        self._work = self._done(every, choices_for, same)

    def go_on(self, steps: int, now_ms: int) -> bool:
        """A slice; whether there is more."""
        self._now_ms = now_ms
        for done in self._work:
            steps -= done
            if steps <= 0:
                return True
        return False

    @property
    def choices(self) -> Choices:
        """What it has learned so far."""
        return self._parts.choices

    def audience(self, now_ms: int, redefined_count: int) -> Audience:
        """Once all is done: it."""
        if self._same is not None:
            return renewed(self._same, self.changes, self._parts.is_allowed, now_ms)
        self._parts.end_over(now_ms)
        return self._parts.audience(redefined_count)

    def _done(
        self,
        every: Sequence[Subscription],
        choices_for: Callable[[int], Choices],
        same: Callable[[Crowd, list[Subscription]], Audience | None],
    ) -> Iterator[int]:
        """All of it; tells now and then how many steps were done."""
        parts = self._parts
        for at in range(0, len(every), SORTED_AT_ONCE):
            parts.sort_out(every[at : at + SORTED_AT_ONCE], self._now_ms)
            yield SORTED_AT_ONCE // SORTED_PER_STEP
        self._same = same(parts.crowd, parts.withheld)
        if self._same is not None:
            return
        selecting = [*parts.crowd.selecting]
        parts.choices = choices_for(len(selecting))
        yield len(selecting) // SORTED_PER_STEP // 4  # they are a copy
        yield from parts.choices.turn(selecting)
        while self.changes:
            some, self.changes = self.changes, []
            for change in some:
                parts.work_in(change, self._now_ms)
                yield 1


def renewed(
    audience: Audience, changes: Sequence[Change], is_allowed: Allowed | None, now_ms: int
) -> Audience:
    """The audience that it is after these changes; itself where that is the same."""
    if not changes and now_ms < audience.until_ms:
        return audience
    crowd, choices = audience.crowd.copy(), audience.selecting.copy()
    parts = _Parts(crowd, choices, [*audience.withheld], is_allowed)
    for change in changes:
        parts.work_in(change, now_ms)
    parts.end_over(now_ms)
    return parts.audience(audience.redefined_count)


def _wants_now(subscription: Subscription, now_ms: int) -> bool:
    return subscription.wants is not Wants.REQUEST and not subscription.is_over(now_ms)
