"""The ports of servers for tests."""

from itertools import pairwise

import pytest

from hms.testing.ports import FIRST, LAST, free_port


def test_a_port_is_not_given_twice_in_a_row():
    """Who asks for several has listened at none yet."""
    given = [free_port() for _ in range(300)]
    assert len(set(given)) == len(given)


@pytest.mark.parametrize("workers", [2, 3, 16])
def test_workers_of_xdist_have_ports_of_their_own(workers, monkeypatch):
    """A node that is booted again in a moment has the port that it had."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(workers))
    spans = []
    for number in range(workers):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        given = [free_port() for _ in range(30)]
        spans.append((min(given), max(given)))
    assert spans[0][0] >= FIRST
    assert spans[-1][1] <= LAST
    assert all(before[1] < after[0] for before, after in pairwise(spans))
