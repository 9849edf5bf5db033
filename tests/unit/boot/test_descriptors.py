"""Descriptors: connections leave some for the log (P8)."""

import resource
import subprocess
import sys

import pytest

from hms.boot.descriptors import connections_max, raise_limit


@pytest.mark.parametrize(
    ("wanted", "descriptors", "taken"),
    [(10_000, 1 << 20, 10_000), (10_000, 1024, 716), (100, 1024, 100), (100, 130, 1), (9, 10, 1)],
)
def test_connections_leave_a_fifth_of_the_descriptors(wanted, descriptors, taken):
    """1,024 silent strangers stopped a node at its next segment."""
    assert connections_max(wanted, descriptors) == taken


@pytest.mark.parametrize(("hard", "expected"), [(8192, 6725), (1500, 1500)])
def test_the_limit_is_raised_as_far_as_the_system_allows(hard, expected):
    """Shells start programs with 1,024."""
    program = f"""
import resource
from hms.boot.descriptors import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, {hard}))
print(raise_limit(2000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [str(expected).encode()] * 2


def test_a_limit_that_is_high_enough_stays():
    """Nobody asked for less."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_limit(1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
