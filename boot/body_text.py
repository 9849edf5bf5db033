"""A message body as people read it: text, the values of a map, stream or object, or hexadecimal."""

import json
from typing import Any

from hms.client.bodies import decode_body
from hms.client.compression import inflate
from hms.constants import BodyKind
from hms.errors.catalogue import MessageFormatError
from hms.errors.tree import HmsError
from hms.wire.packed_messages import KIND_COMPRESSED, KIND_MASK

__all__ = ["WHOLE_MAX", "body_text", "needs_whole"]

WHOLE_MAX = 1 << 20
"""A body of more bytes is not read whole to be shown."""
_WITH_VALUES = (BodyKind.MAP, BodyKind.STREAM, BodyKind.OBJECT, BodyKind.FILE)
IN_LOG = "(in the log only)"


def needs_whole(kind: int, length: int) -> bool:
    """Whether the beginning of a body says nothing that can be read."""
    is_coded = bool(kind & KIND_COMPRESSED) or kind & KIND_MASK in _WITH_VALUES
    return is_coded and length <= WHOLE_MAX


def body_text(kind: int, data: bytes | None, length: int, how: str = "text") -> str:
    """data: its first bytes of `length`, None where the log alone has it; how: text, hex, which
    shows it as it is stored, or json. MessageFormatError for what is no JSON."""
    if data is None:
        return IN_LOG
    if how == "hex":
        return data.hex(" ")
    is_whole = len(data) == length
    if kind & KIND_COMPRESSED:
        if not is_whole:
            return f"(compressed, {length} bytes)"
        kind, data = _inflated(kind, data)
    if how == "json":
        return _indented(kind, data, is_whole=is_whole)
    if kind & KIND_MASK in _WITH_VALUES and is_whole:
        try:
            return _json(decode_body(kind, data))
        except MessageFormatError:
            pass
    return data.decode(errors="backslashreplace")


def _inflated(kind: int, data: bytes) -> tuple[int, bytes]:
    try:
        return inflate(kind, data, WHOLE_MAX)
    except HmsError as error:
        return BodyKind.TEXT, f"({error})".encode()


def _indented(kind: int, data: bytes, *, is_whole: bool) -> str:
    if not is_whole:
        raise MessageFormatError(detail=f"only its first {len(data)} bytes are shown")
    if kind & KIND_MASK in _WITH_VALUES:
        return _json(decode_body(kind, data), indent=2)
    try:
        return _json(json.loads(data), indent=2)
    except (ValueError, RecursionError) as fault:
        raise MessageFormatError(detail=f"its body is no JSON: {fault}") from fault


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    return value.hex(" ") if isinstance(value, bytes) else str(value)
