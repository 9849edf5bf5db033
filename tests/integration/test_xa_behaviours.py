"""The XA behaviours, one by one, over every resource manager that HMS has an adapter for."""

import contextlib

import pytest

from hms.testing import node
from hms.wire.xa_constants import XA_OK, XAER_DUPID
from hms.wire.xid import Xid
from tests.support.mariadb import mariadb_server
from tests.support.postgres import postgres_server
from tests.support.xa_benches import HmsBench, MariaDBBench, PostgreSQLBench
from tpmon.xa.behaviour_bench import prepared, worked
from tpmon.xa.conformance import ABILITIES, BEHAVIOURS
from tpmon.xa.resource import scan

ENDED = 40
"""One in ten was still there."""


@pytest.fixture(scope="module")
def postgres():
    with postgres_server({"max_prepared_transactions": "100"}) as server:
        yield server


@pytest.fixture(scope="module")
def mariadb():
    with mariadb_server() as server:
        yield server


@pytest.fixture(scope="module")
def hms_address():
    with node(config={"hms": {"queue": {HmsBench.queue: {}}}}) as running:
        yield running.address


@pytest.fixture(params=["postgres", "mariadb", "hms_address"])
def bench(request):
    kinds = {"postgres": PostgreSQLBench, "mariadb": MariaDBBench, "hms_address": HmsBench}
    made = kinds[request.param](request.getfixturevalue(request.param))
    yield made
    made.close()


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda one: one.name)
def test_every_behaviour_of_a_resource_manager_is_shown(bench, behaviour):
    """One transaction manager serves them all, so they must answer alike."""
    assert behaviour.run(bench) is (not behaviour.needs or behaviour.needs in bench.able)


def test_a_bench_names_only_abilities_that_exist(bench):
    """A misspelt ability would leave out behaviours in silence."""
    assert bench.able <= ABILITIES


def test_mariadb_takes_xids_that_differ_in_the_format_id_alone_for_one(mariadb):
    """The server's own limit, which the documents name; what is listed has the id it began with."""
    bench = MariaDBBench(mariadb)
    rm = bench.open()
    first, second = Xid(1, b"same", b"branch"), Xid(2, b"same", b"branch")
    worked(bench, rm, first)
    assert rm.xa_prepare(first) == XA_OK
    assert rm.xa_start(second) == XAER_DUPID
    assert set(scan(bench.open())) == {first}
    assert rm.xa_rollback(first) == XA_OK
    bench.close()


def test_a_session_of_mariadb_has_ended_when_its_branch_was_let_go(mariadb):
    """While it ends, a commit by another one says OK and does nothing."""
    bench = MariaDBBench(mariadb)
    rm, other = bench.open(), bench.open()
    there = "SELECT 1 FROM information_schema.processlist WHERE id = %s"
    with contextlib.closing(mariadb.connect()) as looking, looking.cursor() as cursor:
        for _ in range(ENDED):
            xid, mark = prepared(bench, rm)
            number = rm._branches[xid].session.thread_id()
            rm.detach(xid)
            assert cursor.execute(there, (number,)) == 0
            assert other.xa_commit(xid) == XA_OK
            assert mark in bench.marks()
    bench.close()
