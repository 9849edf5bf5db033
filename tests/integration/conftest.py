"""What integration tests share: a scripted node, a real one, a PostgreSQL server, and stores of
each kind."""

import queue

import pytest
from client_rig import WAIT_S, fake_node

import hms
from hms.testing import node as booted
from tests.support.postgres import postgres_server
from tests.support.store_place import KINDS, Place


@pytest.fixture
def node():
    """A node that answers as the test says."""
    with fake_node() as scripted:
        yield scripted


@pytest.fixture
def errors() -> "queue.Queue[hms.HmsError]":
    """What the exception listener of the connection was told."""
    return queue.Queue()


@pytest.fixture
def connection(node, errors):
    """A connection to the scripted node."""
    with hms.connect(
        node.address, request_timeout_s=WAIT_S, exception_listener=errors.put
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def running(request):
    """A real node with the CONFIG of the module, for all its tests."""
    with booted(config=request.module.CONFIG) as started:
        yield started


@pytest.fixture(scope="session")
def postgres():
    """One server for all tests that do not stop it; each uses tables of its own."""
    with postgres_server() as running:
        yield running


@pytest.fixture
def own_postgres():
    """A server that a test may stop."""
    with postgres_server() as running:
        yield running


@pytest.fixture
def tables(postgres, tmp_path):
    """A store on PostgreSQL."""
    return Place("postgresql", tmp_path, postgres)


def _place(kind, tmp_path, request):
    is_server = kind == "postgresql"
    return Place(kind, tmp_path, request.getfixturevalue("postgres") if is_server else None)


@pytest.fixture(params=KINDS)
def store_place(request, tmp_path):
    """A store of each kind."""
    return _place(request.param, tmp_path, request)


@pytest.fixture(params=KINDS[1:])
def database_place(request, tmp_path):
    """A store in each database."""
    return _place(request.param, tmp_path, request)
