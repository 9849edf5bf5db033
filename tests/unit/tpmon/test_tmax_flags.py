"""Flags of the tp functions."""

import pytest

import hms
from tpmon.flags import check_flags


@pytest.mark.parametrize("flags", [object(), None, "1", 1.5])
def test_what_is_no_flag_is_told_by_an_error_of_ours(flags):
    """tpcall("ECHO", b"", object()) raised TypeError, which no `except HmsError` catches."""
    with pytest.raises(hms.InvalidArgument, match="flags"):
        check_flags("tpcall()", flags, 1)
