"""A database that never comes back: others go on, and an operator decides in its stead."""

import json
import signal

import pytest
from click.testing import CliRunner

import hms
from boot.cli import main
from hms.testing import node
from tests.acceptance.bank_rig import bank, move
from tests.support.store_place import until
from tpmon.xa.opening import close_resources


@pytest.fixture
def both():
    with bank() as opened:
        yield opened
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


def stranded(conn, both):
    """A transaction that is decided, and PostgreSQL is gone before it hears of it."""
    with conn.transaction(timeout_s=60) as moving:
        move(hms.rm, "stranded", 1, 2, 5)
        coordinator = moving._coordinator
        coordinator._on_step = lambda step: (
            step == "after decision" and both.postgres.stop(signal.SIGQUIT)
        )
    return moving.gtrid.hex()


def test_a_database_that_is_away_holds_up_nobody_else(both, running):
    """Who waits for whom must be seen, and the others must not wait."""
    with hms.connect(running.address) as conn:
        gtrid = stranded(conn, both)
        assert "stranded" in {row[0] for row in both.mariadb.ask("SELECT id FROM entry")}
        until(lambda: _waits(conn, gtrid), 30)

        with conn.transaction(timeout_s=60):
            with hms.rm("maria").cursor() as cursor:
                cursor.execute("INSERT INTO entry VALUES ('meanwhile', 0)")
            hms.rm("hms").producer(hms.Queue("receipts")).send(b"meanwhile")
        assert "meanwhile" in {row[0] for row in both.mariadb.ask("SELECT id FROM entry")}
        told = conn.administer("status")["recovery"]
        assert {one["name"]: one["state"] for one in told["resources"]} == {
            "pg": "down",
            "maria": "up",
        }
        both.postgres.start()
        until(both.is_settled, 30)
        until(lambda: not _waits(conn, gtrid), 30)
        assert "stranded" in both.entries()[0]


def test_what_an_operator_decides_is_carried_out_and_told_until_it_is_forgotten(both, running):
    """A heuristic decision breaks the transaction apart, so it must not pass in silence."""
    with hms.connect(running.address) as conn:
        gtrid = stranded(conn, both)
        until(lambda: _waits(conn, gtrid), 30)
        command(running, "rollback", gtrid, "--resource", "pg", "--yes")
        assert "ordered: rollback" in _of(running, gtrid, "pg")["state"]
        both.postgres.start()
        until(lambda: _of(running, gtrid, "pg")["state"].startswith("rolled back"), 30)

        assert "stranded" not in both.entries()[0]
        assert "stranded" in both.entries()[1]
        assert "operator" in _of(running, gtrid, "pg")["note"]
        until(lambda: "operator" in _waits(conn, gtrid), 30)
        command(running, "forget", gtrid, "--yes")
        until(lambda: not _waits(conn, gtrid), 30)


def _waits(conn, gtrid):
    """Why recovery says that a transaction waits."""
    told = conn.administer("status").get("recovery", {})
    return " ".join(t["why"] for t in told.get("transactions", ()) if t["gtrid"] == gtrid)


def _of(running, gtrid, resource):
    found = command(running, "show", gtrid)["participants"]
    return next(one for one in found if one["resource"] == resource)
