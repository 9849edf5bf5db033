"""What acceptance tests share: nodes and connections."""

import pytest

import hms
from hms.testing import node as booted
from tests.acceptance.bank_rig import bank
from tpmon.xa.resource_opening import close_resources


@pytest.fixture(scope="module")
def running(request):
    """A node with the CONFIG of the module, for all its tests."""
    with booted(config=request.module.CONFIG) as started:
        yield started


@pytest.fixture
def conn(request, running):
    """A connection to it, with the CONNECT of the module."""
    options = {"request_timeout_s": 60, **getattr(request.module, "CONNECT", {})}
    with hms.connect(running.address, **options) as connection:
        yield connection


@pytest.fixture
def node(request, tmp_path):
    """A node with the CONFIG of the module, for one test; its store outlives it."""
    with booted(store=tmp_path / "store", config=request.module.CONFIG) as started:
        yield started


@pytest.fixture
def emptied(running):
    """The node of the module, up, and nothing waits in its queues: for tests of one module that
    need no counters from 0. A boot of its own would take each of them a second."""
    if not running.is_running:
        running.boot(warm=True)
    with hms.connect(running.address) as connection:
        for row in connection.administer("queue.list"):
            connection.administer("queue.purge", {"name": row["name"]})
    return running


@pytest.fixture(scope="module")
def cold_boots():
    """Nodes of the module are started by themselves, not forked: it looks into their processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HMS_COLD_BOOTS", "1")
        yield


@pytest.fixture(scope="module")
def both():
    """Two databases with accounts, for all tests of the module."""
    with bank() as opened:
        yield opened


@pytest.fixture
def no_session_is_left():
    """No session with a database outlives the test."""
    yield
    close_resources()
