"""Data of a service call, by kind: bytes, text, a map, a field buffer, or nothing."""

from collections.abc import Mapping
from typing import Any

import msgspec

from field_buffer import FieldBuffer
from hms.errors.catalogue import BodyKindError, MessageFormatError
from hms.wire.packed_messages import KIND_CARRAY, KIND_MAP, KIND_NONE, KIND_TEXT

KIND_FIELD = 7
"""A field buffer, as FieldBuffer.encode() makes it; not the kind of any message body."""

Data = bytes | str | dict[str, Any] | FieldBuffer | None

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


def encode_data(data: Any) -> tuple[int, bytes]:
    """Kind and bytes of what an application gives, of an hms.Message its body; BodyKindError."""
    if data is None:
        return KIND_NONE, b""
    if isinstance(data, bytes | bytearray | memoryview):
        return KIND_CARRAY, bytes(data)
    if hasattr(data, "body_bytes"):
        return int(data.kind), data.body_bytes
    try:
        if isinstance(data, str):
            return KIND_TEXT, data.encode()
        if isinstance(data, FieldBuffer):
            return KIND_FIELD, data.encode()
        if isinstance(data, Mapping):
            return KIND_MAP, _encode(dict(data))
    except Exception as fault:  # whatever the encoder makes of the application's values
        raise BodyKindError(kind=type(data).__name__, detail=f"cannot be sent: {fault}") from fault
    raise BodyKindError(kind=type(data).__name__, detail="cannot be the data of a call")


def decode_data(kind: int, data: bytes) -> Any:
    """The data of a call or reply; MessageFormatError when the bytes are not of that kind."""
    if kind == KIND_NONE:
        return None
    try:
        if kind == KIND_TEXT:
            return data.decode()
        if kind == KIND_MAP:
            return _decode(data) if data else {}
    except Exception as fault:  # msgspec also raises RecursionError and UnicodeDecodeError
        raise MessageFormatError(detail=f"the data of a call: {fault}") from fault
    return FieldBuffer.decode(data) if kind == KIND_FIELD else data


_TYPE_NAMES = {
    KIND_CARRAY: "CARRAY",
    KIND_TEXT: "STRING",
    KIND_MAP: "JSON",
    KIND_FIELD: "FIELD",
    KIND_NONE: "NONE",
}


def type_name(kind: int) -> str:
    """The buffer type of data, as Tmax calls it; a mapping is JSON."""
    return _TYPE_NAMES.get(kind, "CARRAY")
