"""Rows to messages: what `write.format("hms")` makes of the columns of a frame.

A row of the history is sent as it was, byte for byte: `head`, `body`, `kind` and `priority` decide.
A frame of one's own has `body` or `value`, properties as maps, and header fields by their names.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hms
from hms.client.message import Message
from hms.errors.catalogue import SinkError
from hms.errors.tree import HmsError
from hms.history.events import KINDS
from hms.history.scope import parse_destination
from hms.history.sink_link import Destination, Outgoing
from hms.wire.packed_messages import (
    KIND_CARRAY,
    KIND_NONE,
    KIND_TEXT,
    PRIORITY_DEFAULT,
    ROW,
    DeliveredRow,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Target", "check_columns", "messages_of"]

_NUMBERS = {name: number for number, name in enumerate(KINDS)}
_TYPED = ("string_properties", "long_properties", "double_properties", "boolean_properties")
_MAPS = ("properties", *_TYPED)
_FIELDS = ("correlation_id", "reply_to", "type")
_TEXTS = ("destination", "destination_kind", "kind", *_FIELDS)
USED = ("body", "value", "head", "priority", *_TEXTS, *_MAPS)
"""The columns that are looked at; others are left aside."""


class _Exact(Message):
    """A message that leaves with the very head, body, kind and priority that it was made with."""

    __slots__ = ()

    def encode(
        self,
        ttl_ms: int = 0,
        delay_ms: int = 0,
        priority: int = 0,  # noqa: ARG002 - its own counts
        flags: int = 0,
        codec: str = "",  # noqa: ARG002 - and its head says how its body is compressed
    ) -> tuple[bytes, bytes, bytes]:
        """(row, head, body) for the client's packs."""
        own = self._delivered
        assert own is not None, "made by _exact()"
        head, body = self._head, self._body
        row = ROW.pack(len(head), len(body), ttl_ms, delay_ms, own.priority, own.kind, flags, 0)
        return row, head, body


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go that do not say it themselves, and their priority."""

    destination: str = ""
    priority: int = PRIORITY_DEFAULT


def check_columns(names: Iterable[str], target: Target) -> None:
    """Refuse a frame that cannot be sent, before anything is. SinkError."""
    known = set(names)
    if not known.intersection(("body", "value", "head")):
        raise SinkError(detail=f"they need a column body or value; there are {', '.join(names)}")
    if not target.destination and "destination" not in known:
        raise SinkError(detail="they need the option destination, or a column of that name")


def messages_of(batches: "Iterable[pa.RecordBatch]", target: Target) -> Iterator[Outgoing]:
    """The messages of Arrow batches, in their order. SinkError names the row that cannot be one."""
    places: dict[tuple[str | None, str], Destination] = {}
    number = 0
    for batch in batches:
        names = [name for name in USED if name in batch.schema.names]
        columns = [batch.column(name).to_pylist(maps_as_pydicts="strict") for name in names]
        for values in zip(*columns, strict=True):
            number += 1
            row = dict(zip(names, values, strict=True))
            try:
                yield _outgoing(row, target, places)
            except SinkError as fault:
                raise SinkError(detail=f"row {number}: {fault.fields['detail']}") from fault
            except HmsError as fault:
                raise SinkError(detail=f"row {number}: {fault}") from fault


def _outgoing(
    row: Mapping[str, Any], target: Target, places: dict[tuple[str | None, str], Destination]
) -> Outgoing:
    key = _key(row, target)
    place = places.get(key)
    if place is None:
        kind, name = key
        place = places[key] = hms.Topic(name) if kind == "topic" else hms.Queue(name)
    body, kind_number = _body(row)
    head = _head(row)
    priority = _priority(row, target)
    said = DeliveredRow(0, 0, 0, 0, len(head), len(body), priority, kind_number, 0)
    content = (bytes((priority, kind_number)), head, body)
    return Outgoing(place, _Exact.received(said, head, body, place), content)


def _key(row: Mapping[str, Any], target: Target) -> tuple[str | None, str]:
    if target.destination:
        return parse_destination(target.destination)
    name = row.get("destination")
    if not name:
        raise SinkError(detail="it has no destination")
    kind = row.get("destination_kind")
    return (kind, name) if kind else parse_destination(name)


def _priority(row: Mapping[str, Any], target: Target) -> int:
    found = row.get("priority")
    priority = target.priority if found is None else found
    if priority not in range(10):
        raise SinkError(detail=f"priority {priority} is not between 0 and 9")
    return int(priority)


def _body(row: Mapping[str, Any]) -> tuple[bytes, int]:
    """The bytes and the number of the kind; text is text, bytes are bytes, null is no body."""
    body = row.get("body")
    body = row.get("value") if body is None else body
    shown = row.get("kind")
    if shown is not None and shown not in _NUMBERS:
        raise SinkError(
            detail=f"kind {shown!r} is not known; known are {', '.join(filter(None, KINDS))}"
        )
    if body is None:
        return b"", KIND_NONE if shown is None else _NUMBERS[shown]
    if isinstance(body, str):
        return body.encode(), KIND_TEXT if shown is None else _NUMBERS[shown]
    if not isinstance(body, bytes):
        raise SinkError(detail=f"its body is neither text nor binary but {type(body).__name__}")
    return body, KIND_CARRAY if shown is None else _NUMBERS[shown]


def _head(row: Mapping[str, Any]) -> bytes:
    exact = row.get("head")
    if exact is not None:
        return bytes(exact)
    properties: dict[str, Any] = {}
    for name in _TYPED if any(row.get(name) is not None for name in _TYPED) else ("properties",):
        properties.update(row.get(name) or {})
    fields = {name: row[name] for name in _FIELDS if row.get(name) is not None}
    if not properties and not fields:
        return b""
    return hms.Message(b"", properties, **fields).encode()[1]
