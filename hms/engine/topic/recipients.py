"""Recipients: which of a topic's subscriptions get which messages of a batch.

Theory of operation. An audience is made once for a topic and kept until a subscription changes.
Selectors that are written alike are one *choice*, asked once for all that have it. A choice that
can only be true for messages in which a property has a certain value stands in a table under that
value; so of a thousand `Key = 'x'` a message asks the one it fits, and the cost is that of the
matches. The table only finds candidates: the selector itself decides. A head is decoded once.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from hms.engine.flow.destination_control import Control
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Subscription
from hms.engine.selector import Selector
from hms.engine.selector.equality import equality_of
from hms.engine.selector.selector_cost import Price
from hms.engine.selector.selector_fields import selector_view
from hms.records import encoded_placements
from hms.wire.packed_messages import NODE_ORDER_CLOCK

Chosen = tuple[Subscription, list[StoredMessage]]


class Known(NamedTuple):
    """What selectors say of a batch. chosen: by the text of a selector, which of its messages;
    asked: the texts of those that were asked, most of which choose nothing."""

    chosen: Mapping[str, Sequence[int]]
    asked: Container[str]


NOTHING_KNOWN = Known(MappingProxyType({}), ())


class Group:
    """Subscriptions that always get the same, in their order. What the log has to be told of those
    that just take it is made when it is first needed, and then kept: there may be 65,000."""

    __slots__ = ("_encoded", "_numbers", "_plain", "_special", "controls", "subscriptions")

    def __init__(
        self,
        subscriptions: Sequence[Subscription],
        controls: set[Control] | None = None,
        numbers: Sequence[int] = (),
    ) -> None:
        """Controls and numbers: of all of them, where they are known, and all of them are plain."""
        self.subscriptions = subscriptions
        self.controls: Collection[Control] = controls or ()
        self._plain = None if controls is None else subscriptions
        self._special: Sequence[Subscription] = ()
        self._numbers = None if controls is None else frozenset(numbers)
        self._encoded = b""

    @property
    def plain(self) -> Sequence[Subscription]:
        """Those that take it from any sender, where they are."""
        if self._plain is None:
            every = self.subscriptions
            unusual = [s for s in every if not s.is_usual]
            self._special = [s for s in unusual if s.queue or s.is_no_local or s.is_proxy]
            special = set(self._special)
            self._plain = [s for s in every if s not in special] if special else every
            self.controls = {s.control for s in self._plain}
        return self._plain

    @property
    def special(self) -> Sequence[Subscription]:
        """The others."""
        assert self._plain is not None, "plain is asked for first"
        return self._special

    @property
    def is_guarded(self) -> bool:
        """Some of the plain ones have limits."""
        return bool(self.plain) and any(control.is_guarded for control in self.controls)

    @property
    def numbers(self) -> frozenset[int]:
        """Of the plain ones that are durable."""
        if self._numbers is None:
            self._numbers = frozenset([s.number for s in self.plain if s.number])
        return self._numbers

    @property
    def encoded(self) -> bytes:
        """Their placements, of all messages of a batch."""
        if not self._encoded:
            self._encoded = encoded_placements(sorted(self.numbers), b"")
        return self._encoded


class Choice:
    """A selector and all subscriptions that have it. 20,000 may be made at once, as somebody has
    subscribed: what only some of them need is made when it is needed."""

    __slots__ = (
        *("_group", "equality", "matches", "messages", "names", "price", "subscriptions", "text"),
    )

    def __init__(self, selector: Selector) -> None:
        self.names = selector.names
        self.equality = equality_of(selector.condition)
        """A property, and the values of which it must have one; None where no table finds it."""
        self.text, self.matches, self.price = selector.text, selector.matches, selector.price
        self.subscriptions: list[Subscription] = []
        self.messages: list[StoredMessage] | None = None
        """What it has chosen of the batch that is looked at."""
        self._group: Group | None = None

    @property
    def is_late(self) -> bool:
        """What it looks at is known under the hold of the record only."""
        return NODE_ORDER_CLOCK in self.names

    @property
    def group(self) -> Group:
        """Its subscriptions."""
        if self._group is None:
            self._group = Group(self.subscriptions)
        return self._group

    def take(self) -> list[StoredMessage]:
        """What it has chosen, once."""
        chosen, self.messages = self.messages, None
        assert chosen is not None, "it has chosen nothing"
        return chosen


class Audience:
    """Who gets what is published on one topic, in the order of their subscriptions.

    until_ms: when the first of them ends; queued: those that deliver into a queue; waiting: those
    that do not.
    """

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self.subscriptions = subscriptions
        every = subscriptions
        unusual = [s for s in every if not s.is_usual]
        self.until_ms = min([s.ends_at_ms for s in unusual if s.ends_at_ms], default=1 << 62)
        self.queued = [s for s in unusual if s.queue is not None]
        numbers = [s.number for s in every if s.number]
        self.logged_count = len(numbers) + len([s for s in self.queued if not s.number])
        self.is_logged = self.logged_count == len(every)
        self.must_be_told = any(s.queue is not None or s.pattern.is_wildcard for s in unusual)
        """Somebody does not know on which topic a message was published unless it says so."""
        self.copied_count = len(_copied(self.queued))
        self.withheld: list[Subscription] = []
        """Whose pattern matches, and whose owner may not have it."""
        self.redefined_count = 0
        """How often subscriptions were redefined before it was made."""
        own = {s.control for s in every}
        self.controls = own | {s.queue.control for s in self.queued if s.queue is not None}
        selecting = [s for s in unusual if s.selector is not None]
        self._plain = [s for s in every if s.selector is None] if selecting else every
        self._all = Group(self._plain) if unusual else Group(every, own, numbers)
        self._has_proxies = any(s.is_proxy for s in unusual)
        self._has_late = False
        self.choices: dict[str, Choice] = {}
        self.names: set[str] = set()
        """Those that some selector has."""
        self._tables: dict[str, dict[object, list[Choice]]] = {}
        self._others: list[Choice] = []
        self._price: Price | None = None
        for subscription in selecting:
            if subscription.selector is not None:
                self._add(subscription, subscription.selector)

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

    def _add(self, subscription: Subscription, selector: Selector) -> None:
        choice = self.choices.get(selector.text)
        if choice is None:
            choice = self.choices[selector.text] = self._new_choice(selector)
        choice.subscriptions.append(subscription)

    def _new_choice(self, selector: Selector) -> Choice:
        choice = Choice(selector)
        self._has_late = self._has_late or choice.is_late
        self.names |= selector.names
        if choice.equality is None:
            self._others.append(choice)
        else:
            name, values = choice.equality
            table = self._tables.setdefault(name, {})
            for value in dict.fromkeys(values):
                table.setdefault(value, []).append(choice)
        return choice

    def asked_by(self, count: int) -> int:
        """What it costs to ask for so many messages, and to give them to all: in consumers asked;
        a selector that no table finds is a fifth of one."""
        return len(self.subscriptions) + count * len(self._others) // 5

    def price_of(self, count: int, size: int) -> int:
        """What it may cost to ask for so many messages with so many bytes of heads, in steps."""
        if self._price is None:
            crowds = [max(map(_sum_of, table.values())) for table in self._tables.values()]
            every = [_sum_of(self._others), *crowds]
            each, per_bytes = sum([p.each for p in every]), sum([p.per_bytes for p in every])
            self._price = Price(each + len(crowds) // 8, per_bytes)
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
            return self._ask(messages, self._others, self._tables)
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
        return found + self._ask(messages, new, {}) if new else found

    def _ask(
        self,
        messages: Iterable[StoredMessage],
        others: Iterable[Choice],
        tables: Mapping[str, dict[object, list[Choice]]],
    ) -> list[Choice]:
        names = self.names
        found: list[Choice] = []
        for message in messages:
            view = selector_view(message, names)
            candidates = list(others)
            for name, table in tables.items():
                candidates += table.get(view.get(name), ())
            for choice in candidates:
                if choice.matches(view) is True:
                    if choice.messages is None:
                        choice.messages = []
                        found.append(choice)
                    choice.messages.append(message)
        return found


def _sum_of(choices: Iterable[Choice]) -> Price:
    prices = [choice.price for choice in choices]
    return Price(sum([p.each for p in prices]), sum([p.per_bytes for p in prices]))


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
