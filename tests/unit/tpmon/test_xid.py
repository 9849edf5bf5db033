"""Xid: packed, printed and parsed, every byte of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpmon.xa import Xid

XIDS = st.builds(
    Xid,
    st.integers(0, 2**31 - 1),
    st.binary(min_size=1, max_size=64),
    st.binary(max_size=64),
)


@given(XIDS)
def test_what_is_packed_or_printed_comes_back(xid):
    """An xid that came back changed would be an orphan for ever."""
    assert Xid.unpack(xid.pack()) == xid
    assert Xid.parse(str(xid)) == xid
    assert len(xid.pack()) <= 134


@given(st.binary(max_size=140))
def test_other_bytes_are_no_xid_or_exactly_one(packed):
    """What comes from a wire is either refused or understood, never half."""
    try:
        xid = Xid.unpack(packed)
    except ValueError:
        return
    assert xid.pack() == packed


@given(st.text(max_size=30))
def test_other_text_is_no_xid_or_exactly_one(printed):
    """An operator's typing error must not name another branch."""
    try:
        xid = Xid.parse(printed)
    except ValueError:
        return
    assert str(xid) == printed


@pytest.mark.parametrize(
    ("format_id", "gtrid", "bqual"),
    [(-1, b"x", b""), (2**31, b"x", b""), (0, b"", b""), (0, b"x" * 65, b""), (0, b"x", b"x" * 65)],
)
def test_what_x_open_does_not_allow_is_refused(format_id, gtrid, bqual):
    """Databases would cut it off in silence."""
    with pytest.raises(ValueError, match=r"format_id|gtrid|bqual"):
        Xid(format_id, gtrid, bqual)


def test_the_branches_of_a_transaction_differ_in_bqual_only():
    """Gtrid is what recovery asks for."""
    xid = Xid(7, b"transaction")

    assert xid.branch(b"one") == Xid(7, b"transaction", b"one")
    assert xid < xid.branch(b"one")


def test_a_dbapi_connection_gets_the_same_parts_as_text():
    """DB-API 2.0 drivers have xids of their own."""

    class Connection:
        def xid(self, *parts):
            return parts

    assert Xid(7, b"\x01\xff", b"b").dbapi(Connection()) == (7, "01ff", "62")
