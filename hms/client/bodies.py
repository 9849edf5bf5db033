"""Bodies: what each kind of message body holds, and its bytes.

    CARRAY  bytes  as they are      STREAM  list        msgpack array
    TEXT    str    UTF-8            OBJECT  plain data  msgpack of what msgspec encodes
    MAP     dict   msgpack map      NONE    None        nothing
    FILE    dict   msgpack map: what the node has of the file

Nothing is ever pickled. No bytes at all are the empty value of a kind: b"", "", {}, [], None.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from field_buffer.types import CODES, plain
from hms.constants import BodyKind
from hms.errors.catalogue import BodyKindError, MessageFormatError

_EMPTY: dict[int, Callable[[], Any]] = {
    BodyKind.CARRAY: bytes,
    BodyKind.TEXT: str,
    BodyKind.MAP: dict,
    BodyKind.STREAM: list,
    BodyKind.OBJECT: lambda: None,
    BodyKind.FILE: dict,
    BodyKind.NONE: lambda: None,
}


def encode_body(kind: int, value: Any) -> bytes:
    """The bytes of a body; BodyKindError when a body of that kind cannot hold the value."""
    encoder = _ENCODERS.get(kind)
    if encoder is None:
        raise BodyKindError(kind=str(kind), detail="cannot be set")
    try:
        return encoder(value)
    except _UnfitError as fault:
        raise _unfit(kind, f"cannot hold a {type(value).__name__}") from fault
    except Exception as fault:  # msgspec passes on whatever a value's own methods raise
        raise _unfit(kind, f"cannot hold this value: {fault}") from fault


def decode_body(kind: int, data: bytes) -> Any:
    """The value of a body; MessageFormatError when the bytes are not of that kind."""
    if kind == BodyKind.CARRAY:
        return data
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise MessageFormatError(detail=f"its body is of kind {kind}, which is unknown here")
    if not data:
        return _EMPTY[kind]()
    try:
        return decoder(data)
    except Exception as fault:  # RecursionError and UnicodeDecodeError are no MsgspecError
        shown = BodyKind(kind).name.lower()
        raise MessageFormatError(detail=f"its {shown} body: {fault}") from fault


def encode_file(described: Mapping[str, Any]) -> bytes:
    """The body of a file message, for readers that do not know heads: what its file is."""
    return _encode({name.removeprefix("$File") or "Id": value for name, value in described.items()})


class _UnfitError(Exception):
    """A value of the wrong Python type."""


def _unfit(kind: int, detail: str) -> BodyKindError:
    return BodyKindError(kind=BodyKind(kind).name.lower(), detail=detail)


def _unwrapped(value: Any) -> Any:
    """For msgspec: a typed value inside a body becomes plain."""
    if type(value) in CODES:
        return plain(value)
    raise TypeError(f"a {type(value).__name__} cannot be encoded")


_encode = msgspec.msgpack.Encoder(enc_hook=_unwrapped).encode


def _carray(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _UnfitError
    return bytes(value)


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _UnfitError
    return value.encode()


def _map(value: Any) -> bytes:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _UnfitError
    if "" in value:
        raise ValueError("an empty name")
    return _encode({str(name): item for name, item in value.items()})


def _stream(value: Any) -> bytes:
    if not isinstance(value, list | tuple):
        raise _UnfitError
    return _encode(list(value))


def _nothing(value: Any) -> bytes:
    if value is not None:
        raise _UnfitError
    return b""


_ENCODERS: dict[int, Callable[[Any], bytes]] = {
    BodyKind.CARRAY: _carray,
    BodyKind.TEXT: _text,
    BodyKind.MAP: _map,
    BodyKind.STREAM: _stream,
    BodyKind.OBJECT: _encode,
    BodyKind.NONE: _nothing,
}
_DECODERS: dict[int, Callable[[bytes], Any]] = {
    BodyKind.TEXT: bytes.decode,
    BodyKind.MAP: msgspec.msgpack.Decoder(dict[str, Any]).decode,
    BodyKind.STREAM: msgspec.msgpack.Decoder(list[Any]).decode,
    BodyKind.OBJECT: msgspec.msgpack.Decoder().decode,
    BodyKind.FILE: msgspec.msgpack.Decoder(dict[str, Any]).decode,
    BodyKind.NONE: lambda _: None,
}
