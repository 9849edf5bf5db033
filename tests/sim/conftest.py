"""What all simulations have: the shortest runs of messages that were sent one by one."""

import pytest

from tests.support.short_runs import shorten_runs


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    """A simulated log has few messages in a row; a boot is to find blocks in it all the same."""
    shorten_runs(monkeypatch)
