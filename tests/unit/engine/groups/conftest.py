"""What tests of groups and of order share."""

import pytest

from tests.support.order_rig import OrderRig


@pytest.fixture
def rig():
    """An engine with clients that see messages in their order."""
    return OrderRig()
