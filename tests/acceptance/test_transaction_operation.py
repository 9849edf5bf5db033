"""A database that never comes back: others go on, and an operator decides in its stead."""

import json
import signal

import pytest
from click.testing import CliRunner

import hms
from hms.boot.cli import main
from hms.testing import node
from hms.wire import branch_requests as wire
from tests.acceptance.bank_rig import bank, move
from tests.support.waiting import wait_until
from tpmon.tx.connection_place import place_of
from tpmon.tx.coordinator_identity import identity_of
from tpmon.xa import XA_OK, decisions
from tpmon.xa.resource import scan
from tpmon.xa.resource_opening import close_resources


@pytest.fixture(scope="module")
def servers():
    with bank() as opened:
        yield opened


@pytest.fixture
def both(servers):
    """Both databases are up, whatever a test before has left."""
    servers.postgres.start()
    yield servers
    close_resources()


@pytest.fixture
def running(both):
    with node(config=both.config(receipts={})) as booted:
        yield booted


def command(running, *words):
    """What hms transaction prints as JSON."""
    done = CliRunner().invoke(
        main,
        ["transaction", *words, "--connect", running.address, "--json"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def stranded(conn, both, name, accounts):
    """A transaction that is decided, and PostgreSQL is gone before it hears of it."""
    with conn.transaction(timeout_s=60) as moving:
        move(hms.rm, name, *accounts, 5)
        coordinator = moving._coordinator
        coordinator._on_step = lambda step: (
            step == "after decision" and both.postgres.stop(signal.SIGQUIT)
        )
    return moving.gtrid.hex()


def test_a_database_that_is_away_holds_up_nobody_else(both, running):
    """Who waits for whom must be seen, and the others must not wait."""
    with hms.connect(running.address) as conn:
        gtrid = stranded(conn, both, "delayed", (1, 2))
        assert "delayed" in {row[0] for row in both.mariadb.ask("SELECT id FROM entry")}
        wait_until(lambda: _waits(conn, gtrid), 60)

        with conn.transaction(timeout_s=60):
            with hms.rm("maria").cursor() as cursor:
                cursor.execute("INSERT INTO entry VALUES ('meanwhile', 0)")
            hms.rm("hms").producer(hms.Queue("receipts")).send(b"meanwhile")
        assert "meanwhile" in {row[0] for row in both.mariadb.ask("SELECT id FROM entry")}
        wait_until(lambda: _states(conn) == {"pg": "down", "maria": "up"}, 60)
        both.postgres.start()
        wait_until(both.is_settled, 60)
        wait_until(lambda: not _waits(conn, gtrid), 60)
        assert "delayed" in both.entries()[0]


def test_what_an_operator_decides_is_carried_out_and_told_until_it_is_forgotten(both, running):
    """A heuristic decision breaks the transaction apart, so it must not pass in silence."""
    with hms.connect(running.address) as conn:
        gtrid = stranded(conn, both, "stranded", (3, 4))
        wait_until(lambda: _waits(conn, gtrid), 60)
        command(running, "rollback", gtrid, "--resource", "pg", "--yes")
        assert "ordered: rollback" in _of(running, gtrid, "pg")["state"]
        both.postgres.start()
        wait_until(lambda: _of(running, gtrid, "pg")["state"].startswith("rolled back"), 60)

        assert "stranded" not in both.entries()[0]
        assert "stranded" in both.entries()[1]
        assert "operator" in _of(running, gtrid, "pg")["note"]
        wait_until(lambda: "operator" in _waits(conn, gtrid), 60)
        command(running, "forget", gtrid, "--yes")
        wait_until(lambda: not _waits(conn, gtrid), 60)


def test_a_decision_that_cannot_be_read_is_told_and_holds_up_no_other(both, running):
    """Recovery would end with the first one that it meets, again after each restart."""
    with hms.connect(running.address) as conn:
        uid = identity_of(conn)
        poison, good = decisions.new_gtrid(uid), decisions.new_gtrid(uid)
        with hms.connect(running.address) as decider:
            maria = place_of(decider).resource("maria")
            for gtrid in (poison, good):
                decider.request(wire.BeginGlobal(gtrid))
                xid = decisions.xid_of(gtrid, b"maria.1")
                assert maria.xa_start(xid) == XA_OK
                with maria.connection(xid).cursor() as cursor:
                    cursor.execute("INSERT INTO entry VALUES (%s, 0)", (gtrid.hex()[-20:],))
                assert (maria.xa_end(xid), maria.xa_prepare(xid)) == (XA_OK, XA_OK)
                maria.detach(xid)
            decider.request(wire.Decide(poison, b"\xc1 this is no msgpack"))
            wanted = [decisions.Participant("maria", b"maria.1")]
            decider.request(wire.Decide(good, decisions.encode(wanted)))
        wait_until(lambda: "cannot be read" in _waits(conn, poison.hex()), 60)
        wait_until(
            lambda: good.hex()[-20:] in {r[0] for r in both.mariadb.ask("SELECT * FROM entry")}, 60
        )

        (shown,) = command(running, "show", poison.hex())["participants"]
        assert (shown["state"], "HMS-6040" in shown["note"]) == ("unreadable", True)
        assert poison in {xid.gtrid for xid in scan(maria)}
        assert maria.xa_rollback(decisions.xid_of(poison, b"maria.1")) == XA_OK
        command(running, "forget", poison.hex(), "--force", "--yes")
        wait_until(lambda: not _waits(conn, poison.hex()), 60)


def _waits(conn, gtrid):
    """Why recovery says that a transaction waits."""
    told = conn.administer("status").get("recovery", {})
    return " ".join(t["why"] for t in told.get("transactions", ()) if t["gtrid"] == gtrid)


def _states(conn):
    """What recovery says of each database."""
    told = conn.administer("status")["recovery"]
    return {one["name"]: one["state"] for one in told["resources"]}


def _of(running, gtrid, resource):
    found = command(running, "show", gtrid)["participants"]
    return next(one for one in found if one["resource"] == resource)
