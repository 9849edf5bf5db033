"""Answers: what the selectors of a topic's subscriptions say of a batch, asked before its record.

Theory of operation. The record of a publication names who gets what, so all selectors are asked
before it is made: 1,000 of which no table finds any, of 1,024 messages, are 0.3 s. So slices ask
them, each under its own hold of the engine's lock, and the command puts the answers in. The batch
has its ids and its time from the first slice on, as selectors may name these. An answer counts for
a selector's text, so it stays right when subscriptions come or go meanwhile; selectors that were
not asked by then are asked by the command itself. So are those that name the clock of a global
order, which is known at the command only.
"""

from array import array
from collections.abc import Container, Sequence

from hms.engine.messages import StoredMessage
from hms.engine.selector.selector_cost import Price
from hms.engine.selector.selector_fields import selector_view
from hms.engine.topic.choices import Choice
from hms.engine.topic.recipients import Audience, Known

__all__ = ["Answers"]

_READING = Price(2, 2)


class Answers:
    """Of one batch. messages: as they will be stored, but for their places in the order of arrival;
    is_told: whether their heads say the topic; first_sequence, pack: as its client sent it."""

    def __init__(
        self,
        messages: Sequence[StoredMessage],
        first_sequence: int,
        pack: memoryview,
        *,
        is_told: bool,
    ) -> None:
        self.first_id = messages[0].id
        self.timestamp_ms = messages[0].timestamp_ms
        self._sent = first_sequence, pack, len(messages)
        self.is_told = is_told
        self._chosen: dict[str, Sequence[int]] = {}
        self._asked: Container[str] = self._chosen
        self._messages = messages
        self._names: set[str] = set()
        self._views: list[dict[str, object]] = []
        self._tables: dict[str, dict[object, list[int]]] = {}
        """By property and value, which messages have it."""
        self._at: tuple[str, int, list[int]] = "", 0, []
        """The selector that is asked, of which messages it was, and which it chose."""

    def are_of(self, first_sequence: int, pack: memoryview, count: int) -> bool:
        """Whether that batch is this one: the very bytes, not such as say the same."""
        first, own, size = self._sent
        is_same = own.obj is pack.obj and len(own) == len(pack)
        return is_same and first == first_sequence and size == count

    @property
    def known(self) -> Known:
        """What was found out so far."""
        return Known(self._chosen, self._asked)

    def is_closed_without(self, audience: Audience) -> bool:
        """Whether all were asked, and others have come since."""
        return not self._messages and self._asked is not audience.choices

    def ask(self, audience: Audience, steps: int) -> int:
        """A slice; how many of the steps are left, 0 or less when it has to go on."""
        if not self._messages:
            return steps
        if not audience.names <= self._names:
            self._names |= audience.names
            self._views, self._tables = [], {}
        steps = self._read(steps)
        for text, choice in audience.choices.items():
            if steps <= 0:
                return steps
            if text not in self._chosen and not choice.is_late:
                steps = self._ask(choice, steps)
        if steps > 0:
            self._close(audience)
        return steps

    # inside

    def _close(self, audience: Audience) -> None:
        """All are asked. A transaction may have a thousand batches: what chooses something stays,
        and one table of all that were asked for all of them."""
        self._chosen = {text: found for text, found in self._chosen.items() if found}
        self._asked = audience.choices
        self._messages, self._views, self._tables = (), [], {}

    def _read(self, steps: int) -> int:
        messages, views = self._messages, self._views
        while steps > 0 and len(views) < len(messages):
            message = messages[len(views)]
            views.append(selector_view(message, self._names))
            steps -= _READING.of(1, message.head_bytes)
        return steps

    def _ask(self, choice: Choice, steps: int) -> int:
        price, matches = choice.price, choice.matches
        messages, views = self._messages, self._views
        candidates = self._candidates(choice)
        text, at, found = self._at
        if text != choice.text:
            at, found = 0, []
        while at < len(candidates) and steps > 0:
            index = candidates[at]
            if matches(views[index]) is True:
                found.append(index)
            steps -= price.of(1, messages[index].head_bytes)
            at += 1
        if at < len(candidates):
            self._at = choice.text, at, found
        else:
            is_all = len(found) == len(messages)
            packed = range(len(messages)) if is_all else array("H", found) if found else ()
            self._chosen[choice.text], self._at = packed, ("", 0, [])
        return steps - 1

    def _candidates(self, choice: Choice) -> Sequence[int]:
        """Of which messages it may be true."""
        if choice.equality is None:
            return range(len(self._views))
        name, values = choice.equality
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = {}
            for index, view in enumerate(self._views):
                table.setdefault(view.get(name), []).append(index)
        some: list[int] = []
        for value in dict.fromkeys(values):
            some += table.get(value, ())
        return some if len(values) == 1 else sorted(some)
