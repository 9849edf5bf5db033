"""The compiled inner loops give what the loops in Python give, for whatever bytes come."""

import contextlib
import importlib
import os
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hms.errors.tree import HmsError
from hms.wire import packed_messages
from hms.wire.frames import CLIENT_KINDS, ENVELOPE, Envelope, Kind, decode_envelope, frame
from hms.wire.packed_messages import (
    DELIVERED_ROW,
    ROW,
    DeliveredRow,
    Row,
    slice_payloads,
    unpack_delivered,
    unpack_rows,
)

needs_native = pytest.mark.skipif(
    not packed_messages.IS_NATIVE, reason="this package was built without a C compiler"
)
NUMBERS = st.integers(0, 2**32 - 1)
SIZES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 80)), min_size=1, max_size=20)


def both_ways(loop, name, *arguments):
    """What comes with the compiled loop and without it: values, or the error's words."""
    found = []
    for one in (loop, packed_messages.PLAIN[name]):
        try:
            found.append(one(*arguments))
        except (HmsError, struct.error) as error:
            found.append(str(error))
    return found


def row_pack(sizes, others) -> bytes:
    rows = [
        ROW.pack(head, body, *others[:2], *(one % 256 for one in others[2:5]), others[5])
        for head, body in sizes
    ]
    return b"".join(rows) + bytes(range(256)) * (sum(map(sum, sizes)) // 256 + 1)


def delivered_pack(sizes, others) -> bytes:
    rows = [
        DELIVERED_ROW.pack(*others[:4], head, body, *(one % 256 for one in others[4:7]), others[2])
        for head, body in sizes
    ]
    return b"".join(rows) + bytes(range(256)) * (sum(map(sum, sizes)) // 256 + 1)


@needs_native
@given(SIZES, st.lists(NUMBERS, min_size=6, max_size=6), st.integers(0, 9), st.integers(-3, 3))
def test_rows_and_payloads_are_the_same(sizes, others, offset, too_many):
    """One byte too many or too few is refused by both, with the same words."""
    total = len(sizes) * ROW.size + sum(map(sum, sizes)) + too_many
    pack = memoryview(b"?" * offset + row_pack(sizes, others)[: max(0, total)])
    rows, plain = both_ways(unpack_rows, "unpack_rows", pack, len(sizes), offset)
    assert rows == plain
    if isinstance(rows, list):
        assert all(type(row) is Row for row in rows)
        found, expected = both_ways(slice_payloads, "slice_payloads", pack, tuple(rows), offset)
        assert found == expected


@needs_native
@given(SIZES, st.lists(NUMBERS, min_size=7, max_size=7), st.integers(0, 9), st.integers(-3, 3))
def test_delivered_messages_are_the_same(sizes, others, offset, too_many):
    """What a client takes apart."""
    total = len(sizes) * DELIVERED_ROW.size + sum(map(sum, sizes)) + too_many
    pack = b"?" * offset + delivered_pack(sizes, others)[: max(0, total)]
    found, plain = both_ways(unpack_delivered, "unpack_delivered", pack, len(sizes), offset)
    assert found == plain
    if isinstance(found, list):
        assert all(type(row) is DeliveredRow for row, _, _ in found)


ENVELOPES = st.builds(
    ENVELOPE.pack,
    st.sampled_from([b"HM", b"HN"]),
    st.sampled_from([1, 1, 2]),
    st.integers(0, 30),
    NUMBERS,
    NUMBERS,
    st.integers(0, 5),
)
PARTS = st.lists(ENVELOPES | st.binary(max_size=20), max_size=3)


@needs_native
@given(PARTS | PARTS.map(tuple), st.integers(-1, 6), st.booleans())
def test_envelopes_are_the_same(parts, bytes_max, is_client):
    """Whatever is wrong with a frame is told with the same words."""
    parts = [*parts[:1], *map(memoryview, parts[1:])]
    kinds = (CLIENT_KINDS,) if is_client else ()
    found, plain = both_ways(decode_envelope, "envelope", parts, bytes_max, *kinds)
    assert found == plain
    assert isinstance(found, str) or type(found) is Envelope


@needs_native
@given(st.sampled_from(Kind), st.binary(max_size=9), st.integers(-1, 2**33), st.integers(-1, 2**33))
def test_frames_are_the_same(kind, payload, correlation, count):
    """A number that is too large is refused, not cut off."""
    found, plain = both_ways(frame, "frame", kind, payload, correlation, count)
    assert found == plain
    assert frame(kind, payload) == frame(kind, payload=payload, count=1)
    assert frame(kind) == frame(kind, b"", 0, 1)


@needs_native
@given(st.binary(max_size=400), st.integers(-2, 2**40), st.integers(-5, 500))
def test_garbage_is_the_same_and_touches_nothing_it_should_not(pack, count, offset):
    """Sizes that no memory holds, counts below zero, an offset behind the end."""
    compiled = importlib.import_module("hms.wire._native")
    for unpack, kind in (
        (compiled.unpack_rows, Row),
        (compiled.unpack_delivered, DeliveredRow),
    ):
        found = unpack(kind, pack, count, offset)
        assert found is None or len(found) == count
    rows = [Row(count, 1)] * 3 if count >= 0 else [Row(-1, 1)]
    found = compiled.slice_payloads(pack, rows, offset)
    assert (
        found is None
        or b"".join(found) == pack[offset + len(rows) * ROW.size :][: sum(map(len, found))]
    )


@needs_native
@pytest.mark.parametrize("wrong", [1, list, object()])
def test_what_is_no_type_of_tuples_is_refused(wrong):
    """Another type's memory is laid out differently."""
    compiled = importlib.import_module("hms.wire._native")
    with pytest.raises(TypeError, match="tuples"):
        compiled.unpack_rows(wrong, bytes(32), 1, 0)
    with pytest.raises(TypeError, match="tuples"):
        compiled.unpack_delivered(wrong, bytes(48), 1, 0)


@needs_native
@pytest.mark.parametrize("rows", [[1], [()], [(1,)], [("1", 2)], [(2**70, 1)]])
def test_rows_that_are_none_are_refused_or_not_understood(rows):
    """They come from packed_messages.py alone, and still nothing is read through them."""
    compiled = importlib.import_module("hms.wire._native")
    with contextlib.suppress(TypeError, OverflowError):
        assert compiled.slice_payloads(bytes(200), rows, 0) is None


@needs_native
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.integers(-2, 2**40) | st.integers(0, 4),
            st.integers(-2, 2**40) | st.integers(0, 4),
            st.integers(-2, 9),
        ),
        max_size=4,
    ),
    st.integers(0, 1023),
)
def test_columns_of_garbage_touch_nothing_they_should_not(runs, wanted):
    """The fields of a head are whatever Python says they are."""
    compiled = importlib.import_module("hms.wire._native")
    told = ("x", None, "é", {"a": "1"}, {}, {"a": 1}, {"b": 0.5}, {"c": True})
    with contextlib.suppress(OverflowError):
        found = compiled.message_columns(runs, wanted, lambda _: told)
        assert found is None or len(found[0]) == ROW.size * sum(run[3] for run in runs)


@needs_native
@pytest.mark.parametrize(
    "told", [None, (), (1,) * 8, (None,) * 3 + (1,) * 5, (None,) * 3 + ({1: "x"},) * 5]
)
def test_fields_that_are_none_are_refused(told):
    """They come from the history alone, and still nothing is read through them."""
    compiled = importlib.import_module("hms.wire._native")
    runs = [(ROW.pack(1, 0, 0, 0, 4, 0, 0, 0) + b"?", 1, 0, 1)]
    with pytest.raises(TypeError):
        compiled.message_columns(runs, 1023, lambda _: told)
    with pytest.raises(ZeroDivisionError):
        compiled.message_columns(runs, 1023, lambda _: 1 // 0)


@needs_native
def test_nothing_leaks():
    """A node unpacks for months."""
    compiled = importlib.import_module("hms.wire._native")
    head = packed_messages.encode_head(packed_messages.Head({"a": "x", "b": 1, "c": 0.5, "d": b""}))
    said = ROW.pack(len(head), 1, 0, 0, 4, 0, 0, 0) + head + b"?"
    told = ("x", None, "é", {"a": "1"}, {}, {"a": 1}, {"b": 0.5}, {"c": True})
    pack = ROW.pack(1, 2, 3, 4, 5, 6, 7, 8) * 50 + bytes(150)
    delivered = DELIVERED_ROW.pack(1, 2, 3, 4, 1, 2, 5, 6, 7, 8) * 50 + bytes(150)

    def work():
        for _ in range(100):
            rows = compiled.unpack_rows(Row, pack, 50, 0)
            compiled.slice_payloads(pack, rows, 0)
            compiled.unpack_delivered(DeliveredRow, delivered, 50, 0)
            assert compiled.unpack_rows(Row, pack[:-1], 50, 0) is None
            assert compiled.unpack_delivered(DeliveredRow, delivered[:-1], 50, 0) is None
            assert compiled.slice_payloads(pack[:-1], rows, 0) is None
            runs = [(said, 1, 0, 1), (None, 0, 0, 5), (pack, 50, 2, 9)]
            assert compiled.message_columns(runs, 1023, lambda _: told) is not None
            runs.append((pack, 51, 0, 1))
            assert compiled.message_columns(runs, 1023, lambda _: told) is None

    def grown():
        before = sys.getallocatedblocks()
        work()
        return sys.getallocatedblocks() - before

    work()
    assert min(grown() for _ in range(3)) < 200  # what other threads take comes once


def test_python_alone_does_without_the_compiled_loops():
    """HMS_PURE turns them off, as does a build without a compiler."""
    said = subprocess.run(
        [sys.executable, "-c", "import hms.wire.packed_messages as p; print(p.IS_NATIVE)"],
        env=os.environ | {"HMS_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    assert said.stdout == "False\n"
