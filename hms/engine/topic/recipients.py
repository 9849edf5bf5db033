"""Choosing: which of a topic's subscriptions get which messages of a batch.

Theory of operation. An audience is made once for a topic and kept until a subscription changes.
Selectors that are written alike are one *choice*, asked once for all that have it. A choice that
can only be true for messages in which a property has a certain value stands in a table under that
value; so of a thousand `Key = 'x'` a message asks the one it fits, and the cost is that of the
matches. The table only finds candidates: the selector itself decides. A head is decoded once.
"""

from collections.abc import Iterable, Sequence

from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Subscription
from hms.engine.selector import Selector
from hms.engine.selector.equality import equality_of
from hms.engine.selector.selector_fields import selector_view

Chosen = tuple[Subscription, list[StoredMessage]]


class _Choice:
    """A selector and all subscriptions that have it."""

    __slots__ = ("matches", "messages", "subscriptions")

    def __init__(self, selector: Selector) -> None:
        self.matches = selector.matches
        self.subscriptions: list[Subscription] = []
        self.messages: list[StoredMessage] = []
        """What it has chosen of the batch that is looked at."""


class Audience:
    """Who gets what is published on one topic, in the order of their subscriptions.

    until_ms: when the first of them ends; queued: those that deliver into a queue; waiting: those
    that do not.
    """

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self.subscriptions = subscriptions
        ends = [s.ends_at_ms for s in subscriptions if s.ends_at_ms]
        self.until_ms = min(ends, default=1 << 62)
        self.queued = [s for s in subscriptions if s.queue is not None]
        self.logged_count = len([s for s in subscriptions if s.is_durable or s.queue is not None])
        self.is_logged = self.logged_count == len(subscriptions)
        self.must_be_told = bool(self.queued) or any(s.pattern.is_wildcard for s in subscriptions)
        """Somebody does not know on which topic a message was published unless it says so."""
        self.copied_count = len(_copied(self.queued))
        self.withheld: list[Subscription] = []
        """Whose pattern matches, and whose owner may not have it."""
        self._plain: list[Subscription] = []
        self._choices: dict[str, _Choice] = {}
        self._names: set[str] = set()
        self._tables: dict[str, dict[object, list[_Choice]]] = {}
        self._others: list[_Choice] = []
        for subscription in subscriptions:
            self._add(subscription)

    def _add(self, subscription: Subscription) -> None:
        selector = subscription.selector
        if selector is None:
            self._plain.append(subscription)
            return
        choice = self._choices.get(selector.text)
        if choice is None:
            choice = self._choices[selector.text] = self._new_choice(selector)
        choice.subscriptions.append(subscription)

    def _new_choice(self, selector: Selector) -> _Choice:
        choice = _Choice(selector)
        self._names.update(selector.names)
        equality = equality_of(selector.condition)
        if equality is None:
            self._others.append(choice)
        else:
            name, values = equality
            table = self._tables.setdefault(name, {})
            for value in dict.fromkeys(values):
                table.setdefault(value, []).append(choice)
        return choice

    def asked_by(self, count: int) -> int:
        """What it costs to ask for so many messages, and to give them to all: in consumers asked;
        a selector that no table finds is a fifth of one."""
        return len(self.subscriptions) + count * len(self._others) // 5

    def choose(self, messages: list[StoredMessage]) -> list[Chosen]:
        """Who gets what; nobody is named who gets nothing."""
        found: list[Chosen] = [(s, messages) for s in self._plain]
        if not self._choices:
            return found
        for choice in self._ask(messages):
            chosen, choice.messages = choice.messages, []
            found += [(s, chosen) for s in choice.subscriptions]
        found.sort(key=_order)
        return found

    def _ask(self, messages: Iterable[StoredMessage]) -> list[_Choice]:
        """The choices that have chosen something."""
        names, others, tables = self._names, self._others, self._tables
        found: list[_Choice] = []
        for message in messages:
            view = selector_view(message, names)
            candidates = list(others)
            for name, table in tables.items():
                candidates += table.get(view.get(name), ())
            for choice in candidates:
                if choice.matches(view) is True:
                    if not choice.messages:
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
