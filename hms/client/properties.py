"""Properties: names and typed values of a message, and the head that carries them.

Some names are reserved: those that begin with $ or JMS (except JMSXGroupID, JMSXGroupSeq and those
of a message group) and the names of the HMS constants. They tell the header and what the node
added; they are read, never set, and do not appear in iteration, but for those that tell why a
message is a dead letter. Names that begin with JMS_HMS_ are for the sender to set: they tell the
node how to treat the message, such as JMS_HMS_RedeliveryLimit.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Protocol

import hms.constants  # as an attribute of hms it would be looked for in modules that need this one
from field_buffer import FieldBuffer
from field_buffer.names import check_name
from field_buffer.types import (
    LONG_MAX,
    PLAIN_TYPES,
    FieldType,
    FieldValue,
    check_value,
    infer_type,
    make_typed,
    plain,
)
from hms.client.core.arguments import check_mapping, shortened, shown
from hms.client.file_bodies import FILE_NAMES
from hms.errors.catalogue import (
    InvalidArgument,
    MessageFormatError,
    PropertyNameError,
    PropertyNotFound,
    PropertyTypeError,
    ReservedProperty,
)
from hms.errors.tree import HmsError
from hms.wire.packed_messages import (
    FLAG_ORDER,
    HEAD_BYTES_MAX,
    PROPERTY_GLOBAL_ORDER,
    Head,
    decode_head,
    encode_head,
)

SETTABLE_JMS = frozenset(
    (
        "JMSXGroupID",
        "JMSXGroupSeq",
        "JMS_JEUS_MSG_GROUP_NAME",
        "JMS_JEUS_MSG_GROUP_NUMBERING",
        "JMS_JEUS_MSG_GROUP_END",
    )
)
SETTABLE_PREFIX = "JMS_HMS_"
SELECTOR_WORDS = frozenset(
    ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")
)
"""What JMS 3.1 §3.8.1.1 forbids as identifiers, so that a selector can name every property."""

SCHEDULE_PROPERTY = "JMS_HMS_Schedule"
COMPACTION_PROPERTY = "JMS_HMS_Compaction"
"""A delay in milliseconds and the wish for compression, for callers that can set nothing else."""
_RESERVED_NAMES = frozenset(
    name for name in hms.constants.__all__ if name.startswith("HMS") and not name.startswith("HMS_")
)
OF_A_LETTER = (
    *("$DeadReason", "$DeadText", "$DeadOrigin", "$DeadSubscription", "$DeadTime", "$DeadCount"),
    *("$ReturnCount", "$OriginalMessageID"),
)
"""What the node says of a dead letter: it stands among its properties, behind the sender's."""
_NAMES_REMEMBERED = 4096


@lru_cache(_NAMES_REMEMBERED)
def check_property_name(name: str) -> str:
    """The name, if a user may set it; ReservedProperty or PropertyNameError otherwise."""
    if isinstance(name, str) and is_reserved(name):
        raise ReservedProperty(name=shortened(name))
    check_name(name)
    if name.upper() in SELECTOR_WORDS:
        raise PropertyNameError(name=name, detail="it is a word of the selector language")
    return name


def checked_name(name: Any) -> str:
    """The same for whatever was given; PropertyNameError for what is no text."""
    if not isinstance(name, str):
        detail = f"it is a {type(name).__name__}, not a text"
        raise PropertyNameError(name=shown(name), detail=detail)
    return check_property_name(name)


@lru_cache(_NAMES_REMEMBERED)
def is_reserved(name: str) -> bool:
    """Whether a name belongs to the header, the node or a later version of JMS."""
    if name.startswith(("$", "JMS", "@HMS")):
        return name not in SETTABLE_JMS and not name.startswith(SETTABLE_PREFIX)
    return name in _RESERVED_NAMES


class Content:
    """What a head carries: properties, header fields, and in `node` what the node added."""

    __slots__ = ("correlation_id", "node", "reply_to", "type", "values")

    def __init__(self, values: dict[str, FieldValue]) -> None:
        self.values = values
        self.correlation_id: str | None = None
        self.reply_to: str | None = None
        self.type: str | None = None
        self.node: dict[str, Any] = {}

    def delay_ms(self) -> int:
        """What JMS_HMS_Schedule says: milliseconds before which the message is delivered to nobody.
        InvalidArgument."""
        said = self.values.get(SCHEDULE_PROPERTY)
        if said is None:
            return 0
        value = plain(said)
        if type(value) is not int or value < 0:
            detail = f"{value!r} is not a number of milliseconds from 0 on"
            raise InvalidArgument(what=SCHEDULE_PROPERTY, detail=detail)
        return value

    def order_flag(self) -> int:
        """FLAG_ORDER when it names its global order itself (F-C16)."""
        return FLAG_ORDER if PROPERTY_GLOBAL_ORDER in self.values else 0

    def codec(self) -> str:
        """How JMS_HMS_Compaction wants the body compressed: true is zlib."""
        said = self.values.get(COMPACTION_PROPERTY)
        return "zlib" if said is not None and plain(said) else ""

    def encode(self) -> bytes:
        """The head's bytes, without what the node added, but with its file; InvalidArgument when
        they are too many."""
        values = self.values
        node = {name: self.node[name] for name in FILE_NAMES if name in self.node}
        if PLAIN_TYPES.issuperset(map(type, values.values())):
            head = Head(values, b"", self.correlation_id, self.reply_to, self.type, node)
        else:
            types = bytes(map(infer_type, values.values()))
            raw = {name: plain(value) for name, value in values.items()}
            head = Head(raw, types, self.correlation_id, self.reply_to, self.type, node)
        data = encode_head(head)
        if len(data) > HEAD_BYTES_MAX:
            detail = f"they take {len(data)} bytes; {HEAD_BYTES_MAX} are allowed"
            raise InvalidArgument(what="the message's properties", detail=detail)
        return data


def decode_content(data: bytes) -> Content:
    """What a head's bytes carry; MessageFormatError when they cannot be read."""
    if not data:
        return Content({})
    head = decode_head(data)
    values = _typed(head) if head.types else head.properties
    if any(map(is_reserved, values)):
        # Another library let its user forge them: they have no effect.
        values = {name: value for name, value in values.items() if not is_reserved(name)}
    content = Content(values)
    if any(type(value) is int and value > LONG_MAX for value in content.values.values()):
        raise MessageFormatError(detail="its head: an integer of more than 64 bits")
    content.correlation_id, content.reply_to = head.correlation_id, head.reply_to
    content.type, content.node = head.type, head.node
    return content


def _typed(head: Head) -> dict[str, FieldValue]:
    if len(head.types) != len(head.properties):
        detail = f"its head: {len(head.types)} types for {len(head.properties)} properties"
        raise MessageFormatError(detail=detail)
    try:
        return {
            name: make_typed(code, value, name)
            for code, (name, value) in zip(head.types, head.properties.items(), strict=True)
        }
    except HmsError as fault:
        raise MessageFormatError(detail=f"its head: {fault}") from fault


def checked_properties(properties: Mapping[Any, Any]) -> dict[str, FieldValue]:
    """A new dict of names and values that a message may carry."""
    if isinstance(properties, FieldBuffer):
        properties = _single_fields(properties)
    check_mapping("properties", properties)
    return {
        checked_name(name): check_value(value, name)
        for name, value in properties.items()
        if name not in OF_A_LETTER  # a copy of a dead letter's is none
    }


def _single_fields(fields: FieldBuffer) -> dict[str, FieldValue]:
    """The fields of a buffer by name; a message's property has one value only."""
    found: dict[str, FieldValue] = {}
    for field, values in fields.items():
        known = fields.table.find(field)
        name = str(field) if known is None else known.name
        if len(values) != 1:
            detail = f"{len(values)} occurrences; send FieldBuffer.encode() as the body instead"
            raise PropertyTypeError(name=name, detail=detail)
        found[name] = values[0]
    return found


class Owner(Protocol):
    """What Properties needs of its message."""

    def readable(self) -> Content:
        """The content, for reading."""

    def writable(self) -> Content:
        """The content, for changing; MessageReadOnly for a received message."""

    def reserved(self, name: str) -> FieldValue | None:
        """The value of a reserved name, None when there is none."""


class Properties(MutableMapping[str, Any]):
    """A message's properties, in the order in which they were set."""

    __slots__ = ("_message",)

    def __init__(self, message: Owner) -> None:
        self._message = message

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise InvalidArgument(what="name", detail=f"a {type(name).__name__} is not a text")
        value = self.get(name)
        if value is None:
            raise PropertyNotFound(name=shortened(name))
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """A property's or reserved property's value, or the default."""
        if isinstance(name, str) and is_reserved(name):
            value = self._message.reserved(name)
        else:
            values = self._message.readable().values
            value = values.get(name) if isinstance(name, str) else None
        return default if value is None else value

    def type_of(self, name: str) -> FieldType:
        """The type of a property; PropertyNotFound when there is none."""
        return infer_type(self[name])

    def set_typed(self, name: str, kind: int, value: Any) -> None:
        """Set a property as the given type, HMS_CHAR to HMS_CARRAY, or 9 for a boolean."""
        content = self._message.writable()
        checked = checked_name(name)
        if not isinstance(kind, int):
            raise InvalidArgument(what="kind", detail=f"a {type(kind).__name__} is not a type")
        content.values[checked] = make_typed(kind, value, name)

    def __setitem__(self, name: str, value: Any) -> None:
        content = self._message.writable()
        checked = checked_name(name)
        content.values[checked] = check_value(value, name)

    def __delitem__(self, name: str) -> None:
        values = self._message.writable().values
        if not isinstance(name, str) or name not in values:
            raise PropertyNotFound(name=shortened(name))
        del values[name]

    def clear(self) -> None:
        """Remove all; MessageReadOnly for a received message, see Message.clear_properties."""
        self._message.writable().values.clear()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        content = self._message.readable()
        if "$DeadReason" not in content.node:
            return iter(content.values)
        return iter([*content.values, *(name for name in OF_A_LETTER if name in content.node)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return repr(dict(self))
