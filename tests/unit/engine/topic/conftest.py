"""What tests of topics share."""

import pytest

from hms.engine.flow.shares import Shares
from hms.engine.settings import EngineSettings
from hms.engine.topic import TopicTree
from tests.support.topic_rig import TopicRig


@pytest.fixture
def rig():
    """An engine with subscribers and publishers."""
    return TopicRig()


@pytest.fixture
def tree():
    """Topics, of which there may be 100."""
    return TopicTree(Shares(EngineSettings(topics_max=100)))
