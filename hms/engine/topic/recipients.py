"""Recipients: which of a topic's subscriptions get which messages of a batch.

Theory of operation. An audience is made once for a topic and kept until a subscription changes.
Selectors that are written alike are one *choice*, asked once for all that have it. A choice that
can only be true for messages in which a property has a certain value stands in a table under that
value; so of a thousand `Key = 'x'` a message asks the one it fits, and the cost is that of the
matches. The table only finds candidates: the selector itself decides. A head is decoded once.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Subscription
from hms.engine.selector.selector_cost import Price
from hms.engine.selector.selector_fields import selector_view
from hms.engine.topic.choices import Choice, Choices, Group
from hms.engine.topic.crowd import Crowd
from hms.wire.packed_messages import NODE_ORDER_CLOCK

Chosen = tuple[Subscription, list[StoredMessage]]


class Known(NamedTuple):
    """What selectors say of a batch. chosen: by the text of a selector, which of its messages;
    asked: the texts of those that were asked, most of which choose nothing."""

    chosen: Mapping[str, Sequence[int]]
    asked: Container[str]


NOTHING_KNOWN = Known(MappingProxyType({}), ())


class Audience:
    """Who gets what is published on one topic, in the order of their subscriptions.

    until_ms: when the first of them ends; queued: those that deliver into a queue; waiting: those
    that do not.
    """

    def __init__(
        self,
        crowd: Crowd,
        choices: Choices,
        withheld: list[Subscription],
        redefined_count: int = 0,
    ) -> None:
        """choices: those of the crowd; withheld: whose pattern matches, and whose owner may not
        have it; redefined_count: how often subscriptions were redefined before it was made. Nothing
        of it changes any more."""
        self.crowd = crowd
        self.subscriptions = every = crowd.every
        self.until_ms = crowd.until_ms
        self.queued = crowd.queued
        self.logged_count = len(crowd.numbers) + len([s for s in self.queued if not s.number])
        self.is_logged = self.logged_count == len(every)
        self.must_be_told = bool(crowd.queued or crowd.wildcard_count)
        """Somebody does not know on which topic a message was published unless it says so."""
        self.copied_count = len(_copied(self.queued))
        self.withheld = withheld
        self.redefined_count = redefined_count
        self.controls = crowd.controls.keys()
        self._plain = crowd.plain
        is_usual = not (crowd.special or crowd.selecting)
        of_all = {*self.controls}, crowd.numbers
        self._all = Group(every, *of_all) if is_usual else Group(self._plain)
        self._has_proxies = bool(crowd.proxies)
        self.selecting = choices
        self.choices: dict[str, Choice] = self.selecting.by_text
        self.names = self.selecting.names
        """Those that some selector has."""
        self._has_late = NODE_ORDER_CLOCK in self.names
        self._price: Price | None = None

    @property
    def is_late(self) -> bool:
        """Something is done with what they get that no transaction can do before its commit."""
        return bool(self.queued) or self._has_proxies or self._has_late

    @property
    def is_guarded(self) -> bool:
        """Some of them have limits."""
        return any(control.is_guarded for control in self.controls)

    def is_like(self, other: "Audience") -> bool:
        """Whether both give the same to the same ones."""
        return self is other or (
            self.redefined_count == other.redefined_count
            and self.subscriptions == other.subscriptions
            and self.withheld == other.withheld
        )

    def asked_by(self, count: int) -> int:
        """What it costs to ask for so many messages, and to give them to all: in consumers asked;
        a selector that no table finds is a fifth of one."""
        return len(self.subscriptions) + count * len(self.selecting.others) // 5

    def price_of(self, count: int, size: int) -> int:
        """What it may cost to ask for so many messages with so many bytes of heads, in steps."""
        if self._price is None:
            self._price = self.selecting.price()
        return self._price.of(count, size)

    def choose(self, messages: list[StoredMessage], known: Known = NOTHING_KNOWN) -> list[Chosen]:
        """Who gets what; nobody is named who gets nothing."""
        found: list[Chosen] = [(s, messages) for s in self._plain]
        if not self.choices:
            return found
        for choice in self._asked(messages, known):
            chosen = choice.take()
            found += [(s, chosen) for s in choice.subscriptions]
        found.sort(key=_order)
        return found

    def groups(
        self, messages: list[StoredMessage], known: Known = NOTHING_KNOWN
    ) -> list[tuple[Group, list[StoredMessage]]]:
        """The same, of those together that always get the same."""
        found = [(self._all, messages)] if self._plain else []
        for choice in self._asked(messages, known) if self.choices else ():
            chosen = choice.take()
            found.append((choice.group, chosen if len(chosen) < len(messages) else messages))
        return found

    def _asked(self, messages: Sequence[StoredMessage], known: Known) -> list[Choice]:
        """The choices that have chosen something."""
        if known is NOTHING_KNOWN:
            return self._ask(messages, None)
        found = []
        for text, indices in known.chosen.items():
            choice = self.choices.get(text)
            if indices and choice is not None:
                choice.messages = [messages[index] for index in indices]
                found.append(choice)
        if known.asked is self.choices and not self._has_late:
            return found
        asked, every = known.asked, self.choices.items()
        new = [choice for text, choice in every if text not in asked or choice.is_late]
        return found + self._ask(messages, new) if new else found

    def _ask(
        self, messages: Iterable[StoredMessage], some: Sequence[Choice] | None
    ) -> list[Choice]:
        """Those of some, or of all, that have chosen something."""
        names = self.names
        found: list[Choice] = []
        for message in messages:
            view = selector_view(message, names)
            for choice in self.selecting.candidates(view) if some is None else some:
                if choice.matches(view) is True:
                    if choice.messages is None:
                        choice.messages = []
                        found.append(choice)
                    choice.messages.append(message)
        return found


def _order(chosen: Chosen) -> int:
    return chosen[0].order


def _copied(queued: Sequence[Subscription]) -> list[Subscription]:
    """Those that get copies of their own in a queue."""
    seen: set[int] = set()
    copied = []
    for one in queued:
        assert one.queue is not None, f"{one.name} does not deliver into a queue"
        if one.definition.correlation_id or one.queue.number in seen:
            copied.append(one)
        else:
            seen.add(one.queue.number)
    return copied
