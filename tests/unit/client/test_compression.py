"""Compressed bodies: smaller, the same again, and never a bomb."""

import struct
import zlib

import pytest

from hms.client import compression
from hms.client.message import Message
from hms.errors.catalogue import (
    CodecMissing,
    CompressionUnknown,
    InflatedTooLarge,
    MessageFormatError,
)
from hms.wire.packed_messages import KIND_COMPRESSED, KIND_NONE, KIND_TEXT

TEXT = " ".join(f"line {n} of many that are alike" for n in range(200))
CODECS = ("zlib", "zstd")


def _bomb(size, codec=1, packed=None):
    packed = zlib.compress(b"\0" * 1000) if packed is None else packed
    return struct.pack("<BQ", codec, size) + packed


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_body_is_smaller_and_the_same_again(codec):
    """F-D7."""
    kind, packed = compression.compress(KIND_TEXT, TEXT.encode(), codec)

    assert kind == KIND_TEXT | KIND_COMPRESSED
    assert len(packed) < len(TEXT) / 3
    assert compression.encoding_of(kind, packed) == (codec, len(TEXT))
    assert compression.inflate(kind, packed) == (KIND_TEXT, TEXT.encode())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "body",
    [b"", b"small", bytes(range(256)) * 1, b"\0" * 1_000_000],
    ids=["none", "small", "256", "0"],
)
def test_what_gains_nothing_or_looks_like_a_bomb_is_sent_as_it_is(codec, body):
    """A reader refuses what grows too much: no sender may make such a message."""
    assert compression.compress(0, body, codec) == (0, body)


@pytest.mark.parametrize("size", [65 << 20, 1 << 40, (1 << 64) - 1])
def test_a_bomb_is_refused_before_anything_is_inflated(size):
    """A few bytes must not fill the memory of who reads them."""
    with pytest.raises(InflatedTooLarge):
        compression.inflate(KIND_COMPRESSED, _bomb(size))


def test_a_body_that_grows_too_many_times_is_refused():
    """Also one of a size that is allowed."""
    packed = _bomb(1_000_000, packed=zlib.compress(b"\0" * 1_000_000))

    with pytest.raises(InflatedTooLarge, match="1000000"):
        compression.inflate(KIND_COMPRESSED, packed)
    assert compression.inflate(KIND_COMPRESSED, packed, ratio_max=1100)[1] == b"\0" * 1_000_000


@pytest.mark.parametrize("codec", [1, 2])
@pytest.mark.parametrize("said", [999, 1001, 0])
def test_a_body_that_lies_about_its_size_is_refused(codec, said):
    """No more than one byte beyond what it says is ever inflated."""
    import zstandard

    plain = bytes(n % 251 for n in range(1000))
    packed = zlib.compress(plain) if codec == 1 else zstandard.ZstdCompressor().compress(plain)

    with pytest.raises(MessageFormatError):
        compression.inflate(KIND_COMPRESSED, _bomb(said, codec, packed))


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 255])
def test_garbage_is_a_typed_error(codec):
    """The wire may say anything."""
    for body in (b"", b"\1", _bomb(10, codec, b""), _bomb(300, codec, b"garbage" * 9)):
        with pytest.raises(MessageFormatError):
            compression.inflate(KIND_COMPRESSED, body)


def test_an_unknown_or_missing_codec_is_said_when_it_is_asked_for(monkeypatch):
    """Not when the first message is sent at night."""
    with pytest.raises(CompressionUnknown):
        compression.check_codec("lzma")
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(CodecMissing, match="pip install"):
        compression.check_codec("zstd")


def test_a_message_is_compressed_when_it_is_encoded_and_inflated_when_it_is_read():
    """Properties and header stay readable; a body that is set anew is as it is."""
    message = Message.text(TEXT, {"Type": "News"})
    row, head, body = message.encode(codec="zlib")
    kind = row[25]

    assert kind == KIND_TEXT | KIND_COMPRESSED
    assert message.compression == ""
    assert len(body) < len(TEXT) / 3
    assert b"News" in head


def test_the_property_asks_for_compression_and_delay():
    """JMS_HMS_Compaction and JMS_HMS_Schedule, for callers that can set nothing else."""
    message = Message.text(TEXT, {"JMS_HMS_Compaction": True, "JMS_HMS_Schedule": 1500})
    row = message.encode()[0]

    assert row[25] & KIND_COMPRESSED
    assert struct.unpack_from("<Q", row, 16) == (1500,)
    assert KIND_NONE == 6
