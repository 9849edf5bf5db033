"""What tests of the monitor share."""

import pytest
from monitor_rig import Rig


@pytest.fixture
def rig():
    """A monitor with scripted clients and servers."""
    return Rig()
