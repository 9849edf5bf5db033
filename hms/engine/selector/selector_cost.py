"""What it costs to ask a selector about a message, in steps of about a microsecond.

Steps are counted, not measured: the engine has no clock, and the same commands must do the same
(P3). They are an upper bound of the usual cost, rather than a fair one.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from hms.engine.selector.nodes import Condition, In, Like, Literal, Name
from hms.engine.text_sizes import text_bytes

__all__ = ["Price", "memory_of", "price_of"]

_DECODING = 2
_TERMS_PER_STEP = 4
_BYTES_PER_STEP = 128
_NODE_BYTES, _VALUE_BYTES = 500, 80
_LIKE_BYTES = 130
"""For each character of a pattern."""


class Price(NamedTuple):
    """each: of one message; per_bytes: so many steps more for 128 bytes of its head."""

    each: int = 0
    per_bytes: int = 0

    def of(self, count: int, head_bytes: int) -> int:
        """Of so many messages with so many bytes of heads."""
        return count * self.each + head_bytes * self.per_bytes // _BYTES_PER_STEP


def price_of(condition: Condition | None) -> Price:
    """A LIKE reads a property that may be as long as the head; everything else stops early."""
    terms = likes = 0
    for node in _nodes(condition):
        terms += isinstance(node, Name | Literal)
        likes += isinstance(node, Like)
    return Price(_DECODING + terms // _TERMS_PER_STEP + likes, _DECODING + likes)


def memory_of(text: str, condition: Condition | None) -> int:
    """What a selector takes in memory at most, compiled."""
    size = _NODE_BYTES + text_bytes(text)
    for node in _nodes(condition):
        size += _NODE_BYTES
        if isinstance(node, Like):
            size += _LIKE_BYTES * len(node.pattern)
        elif isinstance(node, In):
            size += sum([_VALUE_BYTES + text_bytes(value) for value in node.values])
        elif isinstance(node, Literal) and isinstance(node.value, str):
            size += text_bytes(node.value)
    return size


def _nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, tuple):
        for one in node:
            yield from _nodes(one)
    elif is_dataclass(node):
        yield node
        for field in fields(node):
            yield from _nodes(getattr(node, field.name))
