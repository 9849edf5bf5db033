"""What tests of branches share."""

import pytest

from tests.support.branch_rig import BranchRig


@pytest.fixture
def rig():
    """An engine with a resource manager's session."""
    return BranchRig()
