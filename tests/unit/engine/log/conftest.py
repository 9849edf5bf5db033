"""What tests of boots share."""

import pytest

from hms.engine.log.pinned_recovery import PinnedStub


@pytest.fixture
def stubs(monkeypatch):
    """The ids of messages of pinned segments that were looked for one by one."""
    found, make = [], PinnedStub.at

    def noted(id_, segment, offset):
        found.append(id_)
        return make(id_, segment, offset)

    monkeypatch.setattr(PinnedStub, "at", staticmethod(noted))
    return found
