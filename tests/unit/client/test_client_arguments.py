"""What an application is told of a wrong argument."""

import math

import pytest

from hms.client.core.arguments import check_patience
from hms.errors.catalogue import InvalidArgument


@pytest.mark.parametrize("value", ["1", b"1", True, math.nan, math.inf])
def test_a_time_to_wait_that_is_none_is_told_what_one_is(value):
    """`receive(timeout_s="1")` spoke of -inf seconds, which nobody may be meant to give."""
    with pytest.raises(InvalidArgument) as told:
        check_patience("timeout_s", value)

    wanted = "is not a number of seconds, or None to wait for ever"
    assert f"timeout_s: {value!a} {wanted}" in str(told.value)


@pytest.mark.parametrize("value", [None, 0, -1, 2.5])
def test_a_time_that_is_over_and_no_end_are_times_to_wait(value):
    """Loops compute what is left of a deadline."""
    assert check_patience("timeout_s", value) == value
