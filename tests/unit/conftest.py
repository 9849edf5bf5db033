"""What unit tests share."""

import pytest
from client_link import new_link


@pytest.fixture
def link():
    """A client's link that is up."""
    return new_link()
