"""Compressed bodies: smaller on the wire and in the store, and no bomb for who reads them (F-D7).

A message whose body is compressed has KIND_COMPRESSED in its kind beside what the body is, and its
bytes begin with a head, COMPRESSED: the codec and the size of the body itself. Only applications
compress and inflate; properties stay readable for everybody. A sender compresses nothing that
would not become smaller, or would look like a bomb; a reader judges by the head before it inflates.
"""

import struct
import zlib
from typing import Any, NamedTuple

from hms.client.core.arguments import shortened
from hms.errors.catalogue import (
    CodecMissing,
    CompressionUnknown,
    InflatedTooLarge,
    MessageFormatError,
)
from hms.wire.packed_messages import KIND_COMPRESSED, KIND_MASK

COMPRESSED = struct.Struct("<BQ")
"""codec, size_bytes of the body itself."""
ZLIB, ZSTD = "zlib", "zstd"
INFLATED_BYTES_MAX = 64 << 20
RATIO_MAX = 250
"""The largest permitted ratio of inflated to compressed bytes; real bodies rarely exceed 20."""
WORTH_BYTES = 256
"""A smaller body is sent as it is."""
_CODES = {ZLIB: 1, ZSTD: 2}
_NAMES = {code: name for name, code in _CODES.items()}
_WINDOW_MAX = 1 << 26
_LEVEL = {ZLIB: 6, ZSTD: 3}


class Encoding(NamedTuple):
    """How a body is encoded; codec "" for one that is as it is."""

    codec: str
    size_bytes: int


def check_codec(codec: str) -> None:
    """Refuse a codec that is not known or not installed. CompressionUnknown, CodecMissing."""
    if codec not in _CODES:
        raise CompressionUnknown(codec=shortened(codec))
    if codec == ZSTD:
        _zstandard()


def compress(kind: int, body: bytes, codec: str) -> tuple[int, bytes]:
    """Kind and bytes of a body to be sent; both as they were where that is better."""
    if kind & KIND_COMPRESSED or len(body) < WORTH_BYTES:
        return kind, body
    if len(body) > INFLATED_BYTES_MAX:
        limits = {"limit": INFLATED_BYTES_MAX, "ratio": RATIO_MAX}
        raise InflatedTooLarge(size=len(body), inflated=len(body), **limits)
    check_codec(codec)
    packed = _compress(codec, body)
    size = COMPRESSED.size + len(packed)
    if size >= len(body) or len(body) > RATIO_MAX * size:
        return kind, body
    return kind | KIND_COMPRESSED, COMPRESSED.pack(_CODES[codec], len(body)) + packed


def encoding_of(kind: int, body: bytes) -> Encoding:
    """How a body is encoded, without inflating it; MessageFormatError."""
    if not kind & KIND_COMPRESSED:
        return Encoding("", len(body))
    if len(body) < COMPRESSED.size:
        raise MessageFormatError(detail=f"a compressed body of {len(body)} bytes")
    code, size = COMPRESSED.unpack_from(body)
    codec = _NAMES.get(code)
    if codec is None:
        raise MessageFormatError(detail=f"its body is compressed by codec {code}, which is unknown")
    return Encoding(codec, size)


def inflate(
    kind: int,
    body: bytes,
    bytes_max: int = INFLATED_BYTES_MAX,
    ratio_max: float = RATIO_MAX,
) -> tuple[int, bytes]:
    """Kind and bytes of a body itself. InflatedTooLarge before anything is inflated;
    MessageFormatError, CodecMissing."""
    codec, size = encoding_of(kind, body)
    if not codec:
        return kind, body
    if size > bytes_max or size > ratio_max * len(body):
        limits = {"limit": bytes_max, "ratio": ratio_max}
        raise InflatedTooLarge(size=len(body), inflated=size, **limits)
    packed = memoryview(body)[COMPRESSED.size :]
    found = _inflate_zlib(packed, size) if codec == ZLIB else _inflate_zstd(packed, size)
    if len(found) != size:
        detail = f"its compressed body has {len(found)} bytes or more, not {size} as it says"
        raise MessageFormatError(detail=detail)
    return kind & KIND_MASK, found


def inflated(body: bytes) -> bytes:
    """The body itself of a message whose kind says that it is compressed; as inflate()."""
    return inflate(KIND_COMPRESSED, body)[1]


def _compress(codec: str, body: bytes) -> bytes:
    if codec == ZLIB:
        return zlib.compress(body, _LEVEL[ZLIB])
    packed: bytes = _zstandard().ZstdCompressor(level=_LEVEL[ZSTD]).compress(body)
    return packed


def _inflate_zlib(packed: memoryview, size: int) -> bytes:
    """At most one byte more than it says."""
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(packed, size + 1)
    except zlib.error as fault:
        raise MessageFormatError(detail=f"its compressed body: {fault}") from fault
    if not inflater.eof or inflater.unused_data:
        raise MessageFormatError(detail="its compressed body does not end where it says")
    return found


def _inflate_zstd(packed: memoryview, size: int) -> bytes:
    zstandard = _zstandard()
    try:
        with zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX).stream_reader(
            packed
        ) as reader:
            found: bytes = reader.read(size + 1)
    except zstandard.ZstdError as fault:
        raise MessageFormatError(detail=f"its compressed body: {fault}") from fault
    return found


def _zstandard() -> Any:
    try:
        import zstandard  # noqa: PLC0415 - an extra, for those only who use it
    except ImportError as fault:
        raise CodecMissing(codec=ZSTD, package="zstandard") from fault
    return zstandard
