"""What unit tests share."""

import gc

import pytest
from client_link import new_link


@pytest.fixture
def link():
    """A client's link that is up."""
    return new_link()


@pytest.fixture(scope="module")
def frozen_again():
    """For tests that thaw what tests/conftest.py froze: behind the last one of their file all is
    frozen again, or each full collection would hold up later tests for a second."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()
