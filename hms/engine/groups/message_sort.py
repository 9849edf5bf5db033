"""Message sort: what waits is ordered by a property instead of by its arrival (F-C15).

The key is read once, when a message begins to wait. Those that have one come first, ordered by it;
among equal keys priority and arrival decide. Those that have none, or one of another type, keep
their own order behind them: by priority, then as they came.
"""

import enum
import math
from collections.abc import Iterable
from functools import total_ordering
from typing import Any, NamedTuple

from hms.engine.messages import StoredMessage
from hms.engine.selector.selector_fields import selector_view
from hms.engine.text_sizes import text_bytes
from hms.errors.catalogue import SortKeyMismatch
from hms.wire.packed_messages import Head

Entry = tuple[Any, ...]
"""What a message's place follows from; the last item is the message, the one before its seq."""


_ENTRY_BYTES = 250
"""Of an entry, with its numbers and its place in the heap."""


def entry_bytes(entry: Entry) -> int:
    """What the place of a message in a sorted line takes in memory, with its key."""
    value = entry[1].value if isinstance(entry[1], _Falling) else entry[1]
    return _ENTRY_BYTES + (text_bytes(value) if isinstance(value, str) else 0)


class SortType(enum.StrEnum):
    """What a sort key has to be."""

    BOOLEAN = "BOOLEAN"
    BYTE = "BYTE"
    SHORT = "SHORT"
    INTEGER = "INTEGER"
    LONG = "LONG"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"


_BITS = {SortType.BYTE: 8, SortType.SHORT: 16, SortType.INTEGER: 32, SortType.LONG: 64}


class SortSettings(NamedTuple):
    """The property by which messages are ordered, its type, and in which direction."""

    key: str
    type: SortType = SortType.STRING
    is_descending: bool = False


@total_ordering
class _Falling:
    """A value that sorts the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Falling) and self.value == other.value

    def __lt__(self, other: "_Falling") -> bool:
        return bool(other.value < self.value)

    def __hash__(self) -> int:
        return hash(self.value)


class MessageSort:
    """Gives each message its place."""

    def __init__(self, settings: SortSettings) -> None:
        self.settings = settings
        self._names = frozenset((settings.key,))

    @property
    def text(self) -> str:
        """How an operator reads it."""
        own = self.settings
        direction = "DESCENDING" if own.is_descending else "ASCENDING"
        return f"{own.key} {own.type.value} {direction}"

    def check(self, destination: str, heads: Iterable[Head]) -> None:
        """SortKeyMismatch for a message whose key is there, but of another type."""
        for head in heads:
            value = head.properties.get(self.settings.key)
            if value is not None and not self._fits(value):
                raise SortKeyMismatch(
                    destination=destination,
                    key=self.settings.key,
                    type=self.settings.type.value,
                    value=repr(value)[:80],
                )

    def entry(self, message: StoredMessage) -> Entry:
        """The place of a message: the smallest entry is taken first."""
        value = self._value(message)
        behind = -message.priority, message.seq, message
        if value is None or not self._fits(value):
            return 1, 0, *behind
        if not self.settings.is_descending:
            return 0, value, *behind
        return 0, _Falling(value) if isinstance(value, str) else -value, *behind

    def _value(self, message: StoredMessage) -> Any:
        """None for a message without a key."""
        return selector_view(message, self._names).get(self.settings.key)

    def _fits(self, value: Any) -> bool:
        wanted = self.settings.type
        if wanted is SortType.STRING or wanted is SortType.BOOLEAN:
            return isinstance(value, str if wanted is SortType.STRING else bool)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if wanted is SortType.FLOAT or wanted is SortType.DOUBLE:
            return not math.isnan(value)
        limit = 1 << (_BITS[wanted] - 1)
        return isinstance(value, int) and -limit <= value < limit
