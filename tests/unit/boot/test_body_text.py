"""Bodies as an operator reads them."""

import json

import pytest

import hms
from hms.boot.body_text import WHOLE_MAX, body_text, needs_whole
from hms.errors.catalogue import MessageFormatError
from hms.wire.packed_messages import KIND_COMPRESSED, ROW


def packed(message, codec=""):
    row, _, body = message.encode(codec=codec) if codec else message.encode()
    return ROW.unpack(row)[5], body


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (hms.Message(b"\xffraw"), "\\xffraw"),
        (hms.Message.text("café"), "café"),
        (hms.Message.map({"cups": 2, "raw": b"\1"}), '{"cups": 2, "raw": "01"}'),
        (hms.Message.stream([1, "x"]), '[1, "x"]'),
        (hms.Message.object({"deep": [1, None]}), '{"deep": [1, null]}'),
    ],
)
def test_a_body_is_shown_by_its_kind(message, text):
    """Its values, not the bytes that carry them."""
    kind, body = packed(message)
    assert body_text(kind, body, len(body)) == text
    assert body_text(kind, body, len(body), "hex") == body.hex(" ")
    assert body_text(kind, None, 5) == "(in the log only)"


def test_json_is_indented_and_what_is_none_is_refused():
    """In a text, or in bytes."""
    body = b'{"a":[1]}'
    assert json.loads(body_text(0, body, len(body), "json")) == {"a": [1]}
    for wrong in (b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(MessageFormatError):
            body_text(1, wrong, len(wrong), "json")
    with pytest.raises(MessageFormatError):
        body_text(1, body[:3], len(body), "json")


def test_a_damaged_body_is_shown_as_it_is():
    """A map that is none; a compressed body that is none, or only begun."""
    assert body_text(2, b"\xc1x", 2) == "\\xc1x"
    assert body_text(KIND_COMPRESSED, b"\1\0", 2).startswith("(")
    assert body_text(KIND_COMPRESSED, b"\1\0", 50) == "(compressed, 50 bytes)"


def test_a_body_is_read_whole_where_its_beginning_says_nothing():
    """And where it is not too long for that."""
    assert (needs_whole(0, 5), needs_whole(1, 5)) == (False, False)
    assert (needs_whole(2, 5), needs_whole(KIND_COMPRESSED, 5)) == (True, True)
    assert not needs_whole(2, WHOLE_MAX + 1)
