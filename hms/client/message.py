"""Message: one body, named properties and header fields.

A message is built by its sender, gains its header when the send is confirmed, and is read-only
where it is received until `clear_properties` or `clear_body` is called. The head of a received
message is decoded when something of it is first asked for: who reads only bodies pays nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from field_buffer import FieldBuffer
from field_buffer.types import FieldValue
from hms.client.bodies import decode_body, encode_body
from hms.client.compression import (
    INFLATED_BYTES_MAX,
    RATIO_MAX,
    compress,
    encoding_of,
    inflate,
)
from hms.client.core.arguments import check_mapping
from hms.client.destinations import Destination
from hms.client.file_bodies import Upload
from hms.client.headers import Headers
from hms.client.message_file import FilePart
from hms.client.properties import Content, Properties, checked_properties, decode_content
from hms.client.public_names import public_names
from hms.client.typed_getters import Getters
from hms.constants import BodyKind
from hms.errors.catalogue import (
    IllegalState,
    InvalidArgument,
    MessageFormatError,
    MessageReadOnly,
)
from hms.wire.packed_messages import (
    FLAG_PERSISTENT,
    KIND_CARRAY,
    KIND_COMPRESSED,
    KIND_FILE,
    KIND_MAP,
    KIND_NONE,
    KIND_OBJECT,
    KIND_STREAM,
    KIND_TEXT,
    PRIORITY_DEFAULT,
    ROW,
    DeliveredRow,
)

_BODY, _PROPERTIES = 1, 2
_UNREAD: Any = object()
_CHANGEABLE = (dict, list)
_Given = Mapping[str, Any] | None
_pack_row = ROW.pack


class Message(Headers, Getters, FilePart):
    """A message; see the class methods for bodies other than bytes.

    body: bytes, None for a message without one, or a FieldBuffer whose fields become properties.
    Raises BodyKindError, and what setting a property raises.
    """

    __slots__ = (
        "_acknowledge",
        "_body",
        "_content",
        "_head",
        "_kind",
        "_locked",
        "_upload",
        "_value",
    )

    def __init__(
        self,
        body: bytes | bytearray | memoryview | FieldBuffer | None = b"",
        properties: Mapping[str, Any] | None = None,
        *,
        correlation_id: str | None = None,
        reply_to: Destination | str | None = None,
        type: str | None = None,  # noqa: A002 - JMS's name
    ) -> None:
        self._row = self._delivered = self._destination = None
        self._acknowledge: Callable[[Message], Any] | None = None
        self._locked = 0
        self._head = b""
        self._content: Content | None = None
        self._value = _UNREAD
        self._kind = KIND_CARRAY
        self._body: bytes = body if body.__class__ is bytes else self._unusual(body)
        if properties:
            self.writable().values.update(checked_properties(properties))
        elif properties is not None:
            check_mapping("properties", properties)
        if correlation_id is not None:
            self.correlation_id = correlation_id
        if reply_to is not None:
            self.reply_to = reply_to
        if type is not None:
            self.type = type

    def _unusual(self, body: Any) -> bytes:
        """The bytes of a body that is not plain bytes."""
        if body is None:
            self._kind = KIND_NONE
            return b""
        if isinstance(body, FieldBuffer):
            self._content = Content(checked_properties(body))
            return b""
        return encode_body(KIND_CARRAY, body)

    @classmethod
    def text(cls, body: str, properties: _Given = None, **header: Any) -> Self:
        """A message with a text; header as of Message."""
        return cls._built(KIND_TEXT, body, properties, header)

    @classmethod
    def map(cls, body: Mapping[str, Any], properties: _Given = None, **header: Any) -> Self:
        """A message with names and values; they are copied."""
        return cls._built(KIND_MAP, body, properties, header)

    @classmethod
    def stream(
        cls, body: list[Any] | tuple[Any, ...], properties: _Given = None, **header: Any
    ) -> Self:
        """A message with a sequence of values; they are copied."""
        return cls._built(KIND_STREAM, body, properties, header)

    @classmethod
    def object(cls, body: Any, properties: _Given = None, **header: Any) -> Self:
        """A message with any value that msgspec encodes; its receiver gets plain data."""
        return cls._built(KIND_OBJECT, body, properties, header)

    @classmethod
    def _built(cls, kind: int, body: Any, properties: _Given, header: dict[str, Any]) -> Self:
        self = cls(b"", properties, **header)
        self._kind = kind
        self._body = encode_body(kind, body)
        return self

    @classmethod
    def received(
        cls,
        row: DeliveredRow,
        head: bytes,
        body: bytes,
        destination: Destination,
        acknowledge: "Callable[[Message], Any] | None" = None,
    ) -> Self:
        """A delivered message; nothing of it is decoded yet. acknowledge is what ack() calls."""
        self = cls.__new__(cls)
        self._row = self._delivered = row
        self._destination = destination
        self._acknowledge = acknowledge
        self._locked = _BODY | _PROPERTIES
        self._head = head
        self._content = None
        self._value = _UNREAD
        self._kind = row.kind
        self._body = body
        return self

    @classmethod
    def received_many(
        cls,
        delivered: "Iterable[tuple[DeliveredRow, bytes, bytes]]",
        destination: Destination,
        acknowledge: "Callable[[Message], Any] | None" = None,
    ) -> list[Self]:
        """The same for each of them, without a call for each: a third of what it costs."""
        new, locked, found = cls.__new__, _BODY | _PROPERTIES, []
        for row, head, body in delivered:
            self = new(cls)
            self._row = self._delivered = row
            self._destination = destination
            self._acknowledge = acknowledge
            self._locked = locked
            self._head = head
            self._content = None
            self._value = _UNREAD
            self._kind = row.kind
            self._body = body
            found.append(self)
        return found

    @classmethod
    def received_list(
        cls,
        row: DeliveredRow,
        head: bytes,
        messages: "list[Message]",
        destination: Destination,
        acknowledge: "Callable[[Message], Any] | None" = None,
    ) -> Self:
        """A gathered group (F-C17): one message whose body is the list of its messages."""
        self = cls.received(row, head, b"", destination, acknowledge)
        self._kind, self._value = KIND_OBJECT, messages
        return self

    def encode_as_received(self) -> "tuple[DeliveredRow, bytes, bytes]":
        """(row, head, body) of a message that was received, as it came."""
        row = self._delivered
        if row is None:
            raise IllegalState(what="encode_as_received()", detail="it was not received")
        return row, self._head, self._body

    def encode(
        self,
        ttl_ms: int = 0,
        delay_ms: int = 0,
        priority: int = PRIORITY_DEFAULT,
        flags: int = 0,
        codec: str = "",
    ) -> tuple[bytes, bytes, bytes]:
        """(row, head, body) for pack_messages. A body alone has no head: that takes 0.2 us. codec:
        how its body is compressed; delay_ms and codec win over the properties that say the same."""
        kind, body, head = self._kind, self._body, b""
        if kind == KIND_FILE and self.upload is not None:
            detail = "a file is sent by send(), which takes its time; not in a batch or a schedule"
            raise InvalidArgument(what="file message", detail=detail)
        if self._content is not None or self._head:
            content = self.readable()
            head = content.encode()
            delay_ms = delay_ms or content.delay_ms()
            codec = codec or content.codec()
            flags |= content.order_flag()
        if codec:
            kind, body = compress(kind, body, codec)
        row = _pack_row(len(head), len(body), ttl_ms, delay_ms, priority, kind, flags, 0)
        return row, head, body

    def mark_sent(
        self,
        destination: Destination,
        message_id: int,
        timestamp_ms: int,
        *,
        ttl_ms: int = 0,
        delay_ms: int = 0,
        priority: int = PRIORITY_DEFAULT,
        is_persistent: bool = True,
        elapsed_s: float = 0.0,
    ) -> None:
        """Set the header from a confirmation; message_id 0 when the node was not waited for."""
        expires_at_ms = timestamp_ms + ttl_ms if ttl_ms else 0
        flags = FLAG_PERSISTENT if is_persistent else 0
        self._row = DeliveredRow(
            message_id, timestamp_ms, expires_at_ms, 0, 0, 0, priority, self._kind, flags
        )
        self._destination = destination
        self._elapsed_s = elapsed_s
        self._delay_ms = delay_ms

    # What is in it

    @property
    def kind(self) -> BodyKind:
        """What the body is; MessageFormatError for a kind that this version does not know."""
        try:
            return BodyKind(self._kind & ~KIND_COMPRESSED)
        except ValueError as fault:
            raise MessageFormatError(detail=f"its body is of kind {self._kind}") from fault

    @property
    def body(self) -> Any:
        """The body by its kind: bytes, str, dict, list, plain data or None. A dict or list is a
        copy each time: assign a new body to change what is sent."""
        if self._value is _UNREAD:
            if self._kind == KIND_CARRAY:
                return self._body
            if self._kind & KIND_COMPRESSED:
                return self.inflate()
            return self._decoded(self._kind, self._body)
        return self._shown()

    @body.setter
    def body(self, value: Any) -> None:
        if self._locked & _BODY:
            raise MessageReadOnly
        self._kind &= ~KIND_COMPRESSED
        self._body = encode_body(self._kind, value)
        self._value = _UNREAD

    def _decoded(self, kind: int, data: bytes) -> Any:
        """The value of these bytes, kept if nobody can change it."""
        value = decode_body(kind, data)
        if value.__class__ not in _CHANGEABLE:
            self._value = value
        return value

    def _shown(self) -> Any:
        """What is kept: a value, the messages of a list, or inflated bytes with their kind."""
        value = self._value
        if value.__class__ is tuple:
            return decode_body(*value)
        return list(value) if value.__class__ is list else value

    def inflate(self, bytes_max: int = INFLATED_BYTES_MAX, ratio_max: float = RATIO_MAX) -> Any:
        """The body; of a compressed one at most so many bytes, and so many times what came.
        InflatedTooLarge; `body` does the same with these limits."""
        if self._value is _UNREAD:
            self._value = inflate(self._kind, self._body, bytes_max, ratio_max)
        return self._shown()

    @property
    def compression(self) -> str:
        """How the body is compressed as it is here, "" when it is not; a message that is being sent
        is compressed on its way. MessageFormatError."""
        return encoding_of(self._kind, self._body).codec

    @property
    def body_bytes(self) -> bytes:
        """The bytes of the body, inflated."""
        return inflate(self._kind, self._body)[1]

    @property
    def properties(self) -> Properties:
        """The properties, a mapping that keeps their order."""
        return Properties(self)

    @properties.setter
    def properties(self, properties: Mapping[str, Any]) -> None:
        self.writable().values = checked_properties(properties)

    @property
    def is_read_only(self) -> bool:
        """Its properties cannot be changed: it was received."""
        return bool(self._locked & _PROPERTIES)

    def _becomes_file(self, upload: Upload | None) -> None:
        self._kind, self._upload = KIND_FILE, upload

    def _new_body(self, body: bytes) -> None:
        self._body, self._value = body, _UNREAD

    def clear_body(self) -> None:
        """Empty the body, keeping its kind; it can be set from now on."""
        self._locked &= ~_BODY
        self._kind &= ~KIND_COMPRESSED
        self._body, self._value = b"", _UNREAD

    def clear_properties(self) -> None:
        """Remove all properties; they can be set from now on. The header stays."""
        self._locked &= ~_PROPERTIES
        self.readable().values.clear()

    def property(self, name: str) -> FieldValue:
        """A property, or a reserved one such as "$MessageID"; PropertyNotFound."""
        value: FieldValue = Properties(self)[name]
        return value

    def field_buffer(self) -> FieldBuffer:
        """A new FieldBuffer with the properties as fields."""
        return FieldBuffer(self.readable().values)

    def readable(self) -> Content:
        """Properties and header texts, decoded when first asked for; MessageFormatError."""
        content = self._content
        if content is None:
            content = self._content = decode_content(self._head)
        return content

    def writable(self) -> Content:
        """The same for changing the properties; MessageReadOnly for a received message."""
        if self._locked & _PROPERTIES:
            raise MessageReadOnly
        return self.readable()

    def ack(self) -> Any:
        """Acknowledge it, in asyncio `await` it; IllegalState unless it was received in a session
        of mode CLIENT."""
        if self._acknowledge is None:
            detail = "only a message that was received can be acknowledged"
            raise IllegalState(what="message.ack()", detail=detail)
        return self._acknowledge(self)

    def __repr__(self) -> str:
        about = f"{self.message_id or 'unsent'} kind={self._kind} {len(self._body)} bytes"
        return f"<Message {about}>"

    def __dir__(self) -> list[str]:
        return public_names(self)
