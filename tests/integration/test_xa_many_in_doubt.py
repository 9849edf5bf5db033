"""A recover scan over very many branches in doubt, in pages.

HMS_IN_DOUBT=10000 pytest tests/integration/test_xa_many_in_doubt.py --timeout 900     the full size
"""

import os

import pytest

from hms.testing import node
from tests.support.mariadb import mariadb_server
from tests.support.postgres import postgres_server
from tests.support.xa_benches import HmsBench, MariaDBBench, PostgreSQLBench
from tpmon.xa import TMNOFLAGS, TMSTARTRSCAN, XA_OK, Xid

IN_DOUBT = int(os.environ.get("HMS_IN_DOUBT", "300"))
PAGE = 90


@pytest.fixture
def postgres():
    settings = {"max_prepared_transactions": str(IN_DOUBT + 10), "fsync": "off"}
    with postgres_server(settings) as server:
        yield PostgreSQLBench(server)


@pytest.fixture
def mariadb():
    with mariadb_server(["--innodb-flush-log-at-trx-commit=0"]) as server:
        yield MariaDBBench(server)


@pytest.fixture
def hms_node():
    with node(config={"hms": {"queue": {HmsBench.queue: {}}}}) as running:
        yield HmsBench(running.address)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["postgres", "mariadb", "hms_node"])
def test_every_branch_in_doubt_is_told_once(request, kind):
    """A branch that a scan leaves out stays in doubt for ever, with its locks."""
    bench = request.getfixturevalue(kind)
    rm, looking = bench.open(), bench.open()
    wanted = [Xid(7, number.to_bytes(8, "big"), b"many") for number in range(IN_DOUBT)]
    for mark, xid in enumerate(wanted):
        assert rm.xa_start(xid) == XA_OK, rm.reason
        bench.work(rm, xid, mark)
        rm.xa_end(xid)
        assert rm.xa_prepare(xid) == XA_OK, rm.reason
        rm.detach(xid)

    found, flags = [], TMSTARTRSCAN
    while page := looking.xa_recover(PAGE, flags=flags):
        assert len(page) <= PAGE
        found += page
        flags = TMNOFLAGS
        if len(page) < PAGE:
            break

    assert sorted(found) == wanted
    bench.close()
