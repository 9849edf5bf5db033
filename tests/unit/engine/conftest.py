"""What tests of the engine share; a folder or file with another rig defines its own."""

import pytest

from tests.support.engine_rig import EngineRig


@pytest.fixture
def rig():
    """An engine with one client."""
    return EngineRig()
