"""hms transaction on a real node: what an operator sees of transactions in doubt, and decides."""

import json
import os

import pytest
from click.testing import CliRunner

from hms.boot.cli import main
from hms.wire import branch_requests as wire
from hms.wire.xa_constants import XA_HEURCOM, XA_HEURRB, XA_OK
from hms.wire.xid import Xid
from tpmon.xa import decisions

CONFIG = "[hms.queue.orders]\n[hms.queue.copies]\n"


@pytest.fixture
def run(running):
    """The output of `hms transaction …` on the node; with another exit code, what it said."""

    def command(*words, code=0):
        said = CliRunner().invoke(
            main, ["transaction", words[0], "--connect", running.address, *words[1:]]
        )
        assert said.exit_code == code, said.output
        return said.output

    return command


@pytest.fixture
def prepared(conn):
    """A prepared branch that has sent a message."""
    session = conn.session(xa=True)
    xid, resource = Xid(3, os.urandom(8), b"hms"), session.resource
    assert resource.xa_start(xid) == XA_OK
    session.producer("orders").send("in doubt")
    assert resource.xa_end(xid) == XA_OK
    assert resource.xa_prepare(xid) == XA_OK
    yield xid, resource
    resource.xa_rollback(xid)
    resource.xa_forget(xid)


def _decided(conn, *participants):
    gtrid = os.urandom(24)
    conn.request(wire.BeginGlobal(gtrid))
    conn.request(wire.Decide(gtrid, decisions.encode(participants)))
    return gtrid


def test_what_is_in_doubt_is_listed_and_shown(run, prepared):
    """An operator has to find it, with its age and its contents, before deciding."""
    xid, _ = prepared
    (row,) = [one for one in json.loads(run("list", "--json")) if one["id"] == str(xid)]

    assert (row["kind"], row["state"]) == ("branch", "prepared")
    assert "1 sent" in row["what"]
    shown = json.loads(run("show", "--json", str(xid)))
    assert shown["sends"] == {"queue:orders": 1}


def test_an_operators_commit_is_heuristic(run, conn, prepared):
    """It takes effect, and the transaction manager hears that it was not its own."""
    xid, resource = prepared
    run("commit", "--yes", str(xid))

    assert "in doubt" in [m.body for m in conn.session().browser("orders")]
    assert "heuristically committed" in run("list")
    assert resource.xa_rollback(xid) == XA_HEURCOM
    run("forget", "--yes", str(xid))
    assert str(xid) not in run("list")


def test_an_operators_rollback_is_heuristic(run, prepared):
    """The same the other way."""
    xid, resource = prepared
    run("rollback", "--yes", str(xid))

    assert resource.xa_commit(xid) == XA_HEURRB
    run("forget", "--yes", str(xid))


def test_what_is_gone_cannot_be_decided(run):
    """And the error says so; a name that is none is told from one that is not there."""
    assert "HMS-7055" in run("commit", "--yes", str(Xid(3, b"gone", b"x")), code=1)
    assert "is no xid" in run("commit", "--yes", "1-xyz-2", code=1)
    assert "HMS-7058" in run("show", "abcdef", code=1)


def test_nothing_is_decided_without_a_word(run, prepared):
    """A wrong heuristic decision cannot be taken back."""
    xid, _ = prepared
    run("commit", str(xid), code=1)

    assert "prepared" in run("list")


def test_a_decision_shows_what_it_waits_for_and_takes_orders(run, conn):
    """A database that never comes back: its branch is decided by hand, and the decision forgotten
    when nothing is left."""
    left = decisions.Participant("pg", b"1")
    gtrid = _decided(conn, left, decisions.Participant("maria", b"2", decisions.COMMITTED))
    name = gtrid.hex()
    assert "pg prepared, maria committed" in run("list")
    assert "HMS-7056" in run("forget", "--yes", name, code=1)

    assert "ordered for pg" in run("rollback", "--yes", "--resource", "pg", name)

    shown = json.loads(run("show", "--json", name))
    assert shown["participants"][0]["state"] == "prepared (ordered: rollback)"
    assert "HMS-7056" in run("commit", "--yes", "--resource", "maria", name, code=1)
    run("forget", "--yes", "--force", name)
    assert name not in run("list")


def test_an_active_transaction_is_listed(run, conn):
    """So that nobody takes its prepared branches for orphans."""
    gtrid = os.urandom(24)
    conn.request(wire.BeginGlobal(gtrid, 0, "transfer"))

    assert "transfer" in run("list")
    conn.request(wire.EndGlobal(gtrid))
    assert gtrid.hex() not in run("list")
