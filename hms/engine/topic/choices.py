"""Choices: the selectors of a topic's subscriptions, found by what a message has.

Theory of operation. An audience has its choices for good. Those of the next one are made from them:
what did not change is taken over as it is, and only what came, or went, is worked in, in slices if
there is much of it. 20,000 selectors of which no two are alike took 70 to 116 ms whenever one of
them had changed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from itertools import islice

from hms.engine.flow.destination_control import Control
from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Subscription
from hms.engine.selector import Selector
from hms.engine.selector.equality import equality_of
from hms.engine.selector.selector_cost import Price
from hms.records import encoded_placements
from hms.wire.packed_messages import NODE_ORDER_CLOCK

__all__ = ["Choice", "Choices", "Group"]

LOOKED_AT_ONCE, LOOKS_PER_STEP = 256, 16
"""Selectors that are known, or not."""
_VALUES_PER_STEP = 4
_Sum = tuple[int, int]
"""Of prices: each, and per_bytes."""


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
        *("_group", "equality", "matches", "members", "messages", "names", "price", "text"),
    )

    def __init__(self, selector: Selector) -> None:
        self.names = selector.names
        self.equality = equality_of(selector.condition)
        """A property, and the values of which it must have one; None where no table finds it."""
        self.text, self.matches, self.price = selector.text, selector.matches, selector.price
        self.members: dict[int, Subscription] = {}
        """Its subscriptions, by their order."""
        self.messages: list[StoredMessage] | None = None
        """What it has chosen of the batch that is looked at."""
        self._group: Group | None = None

    def copy(self) -> "Choice":
        """For other subscriptions; this one stays as it is."""
        made = copy(self)
        made.members, made.messages = dict(self.members), None
        made.forget_group()
        return made

    def forget_group(self) -> None:
        """It is made anew when it is needed."""
        self._group = None

    @property
    def subscriptions(self) -> list[Subscription]:
        """In their order."""
        return [self.members[order] for order in sorted(self.members)]

    @property
    def steps(self) -> int:
        """What it takes to put it where it is found, or to take it away: it may have values."""
        return 1 if self.equality is None else 1 + len(self.equality[1]) // _VALUES_PER_STEP

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


class Choices:
    """by_text: all of them; tables: by property and value, those that can only be true for messages
    that have it; others: those that no table finds."""

    __slots__ = (
        *("_own", "by_text", "members", "name_counts", "others", "others_price", "prices"),
        "tables",
    )

    def __init__(self) -> None:
        self.by_text: dict[str, Choice] = {}
        self.tables: dict[str, dict[object, dict[str, Choice]]] = {}
        self.others: dict[str, Choice] = {}
        self.prices: dict[str, dict[object, _Sum]] = {}
        """What it costs to ask those that stand in one place of a table."""
        self.others_price: _Sum = 0, 0
        self.name_counts: dict[str, int] = {}
        """How many selectors have a name."""
        self.members: dict[Selector, Subscription] = {}
        self._own: set[object] = set()
        """Texts, and places in the tables, of what no audience has yet: it may change."""

    def copy(self) -> "Choices":
        """To be changed, while these stay as they are."""
        made = copy(self)
        made.become(self)
        return made

    def become(self, other: "Choices") -> None:
        """Have all that another one has."""
        self.by_text, self.others = dict(other.by_text), dict(other.others)
        self.tables = {name: dict(table) for name, table in other.tables.items()}
        self.prices = {name: dict(prices) for name, prices in other.prices.items()}
        self.others_price, self.name_counts = other.others_price, dict(other.name_counts)
        self.members, self._own = dict(other.members), set()

    def is_near(self, count: int) -> bool:
        """Whether those of so many subscriptions are made from these, and not anew."""
        return count <= 2 * len(self.members) <= 4 * count

    def turn(self, subscriptions: Sequence[Subscription]) -> Iterator[int]:
        """Become those of these subscriptions, all of which have selectors: so many come, or go.
        Tells now and then how many steps were done; a selector is one."""
        wanted: dict[Selector, Subscription] = {}
        for at in range(0, len(subscriptions), LOOKED_AT_ONCE):
            some = subscriptions[at : at + LOOKED_AT_ONCE]
            wanted.update([(s.selector, s) for s in some if s.selector is not None])
            yield len(some) // LOOKS_PER_STEP
        gone, known = list[Selector](), [*self.members]
        for at in range(0, len(known), LOOKED_AT_ONCE):
            gone += [s for s in known[at : at + LOOKED_AT_ONCE] if s not in wanted]
            yield LOOKED_AT_ONCE // LOOKS_PER_STEP
        if 2 * len(gone) > len(known):
            self.become(Choices())
            gone = []
        for selector in gone:
            yield self.drop(selector)
        members, left = self.members, iter(wanted.items())
        while some_left := [*islice(left, LOOKED_AT_ONCE)]:
            new = [one for selector, one in some_left if selector not in members]
            yield len(some_left) // LOOKS_PER_STEP
            for one in new:
                yield self.add(one)

    def add(self, subscription: Subscription) -> int:
        """One that has a selector comes; how many steps that took."""
        selector = subscription.selector
        assert selector is not None, "it has no selector"
        self.members[selector] = subscription
        text = selector.text
        choice = self.by_text.get(text)
        if choice is None:
            choice = Choice(selector)
            for name in choice.names:
                self.name_counts[name] = self.name_counts.get(name, 0) + 1
            self._put(choice)
            self._weigh(choice, 1)
        elif text not in self._own:
            choice = choice.copy()
            self._put(choice)
        choice.members[subscription.order] = subscription
        return choice.steps

    def drop(self, selector: Selector) -> int:
        """The one that has this selector goes; how many steps that took."""
        subscription, choice = self.members.pop(selector), self.by_text[selector.text]
        if len(choice.members) > 1:
            if choice.text not in self._own:
                choice = choice.copy()
                self._put(choice)
            del choice.members[subscription.order]
            return choice.steps
        for name in choice.names:
            self.name_counts[name] -= 1
            if not self.name_counts[name]:
                del self.name_counts[name]
        self._put(choice)  # so that all places that have it may be changed
        self._weigh(choice, -1)
        del self.by_text[choice.text]
        self._own.discard(choice.text)
        if choice.equality is None:
            del self.others[choice.text]
            return choice.steps
        name, values = choice.equality
        table, prices = self.tables[name], self.prices[name]
        for value in dict.fromkeys(values):
            del table[value][choice.text]
            if not table[value]:
                del table[value], prices[value]
                self._own.discard((name, value))
        if not table:
            del self.tables[name], self.prices[name]
        return choice.steps

    @property
    def names(self) -> AbstractSet[str]:
        """Those that some selector has."""
        return self.name_counts.keys()

    def price(self) -> Price:
        """What it may cost to ask them of a message."""
        crowds = [max(prices.values()) for prices in self.prices.values()]
        every = [self.others_price, *crowds]
        each = sum([each for each, _ in every])
        return Price(each + len(crowds) // 8, sum([per_bytes for _, per_bytes in every]))

    def candidates(self, view: Mapping[str, object]) -> list[Choice]:
        """Those that may be true for a message."""
        found = list(self.others.values())
        for name, table in self.tables.items():
            crowd = table.get(view.get(name))
            if crowd is not None:
                found += crowd.values()
        return found

    # inside

    def _put(self, choice: Choice) -> None:
        """In the place of the one with its text, or behind all others."""
        own, text = self._own, choice.text
        own.add(text)
        self.by_text[text] = choice
        if choice.equality is None:
            self.others[text] = choice
            return
        name, values = choice.equality
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = {}
        for value in dict.fromkeys(values):
            if (name, value) not in own:
                own.add((name, value))
                table[value] = dict(table.get(value, ()))
            table[value][text] = choice

    def _weigh(self, choice: Choice, sign: int) -> None:
        each, per_bytes = sign * choice.price.each, sign * choice.price.per_bytes
        if choice.equality is None:
            before = self.others_price
            self.others_price = before[0] + each, before[1] + per_bytes
            return
        name, values = choice.equality
        prices = self.prices.get(name)
        if prices is None:
            prices = self.prices[name] = {}
        for value in dict.fromkeys(values):
            before = prices.get(value, (0, 0))
            prices[value] = before[0] + each, before[1] + per_bytes
