"""Global transactions over a real node, PostgreSQL and MariaDB: all or nothing."""

import signal

import pytest

import hms
import tpmon
from hms.errors.catalogue import TransactionRolledBack, TxProtocolError
from hms.testing import node
from hms.wire.xid import Xid
from tests.acceptance.bank_rig import ACCOUNTS, BALANCE, move
from tests.support.waiting import wait_until
from tpmon import tx
from tpmon.tx.connection_place import Blocking
from tpmon.tx.coordinator_identity import identity_of
from tpmon.xa import decisions
from tpmon.xa.resource_opening import Definition, make_resource

pytestmark = pytest.mark.usefixtures("no_session_is_left")


@pytest.fixture(scope="module")
def running(both):
    with node(config=both.config()) as booted:
        yield booted


def test_a_block_commits_in_both_databases(both, conn):
    """The reason why one has a transaction manager."""
    with conn.transaction(timeout_s=60):
        move(hms.rm, "t-commit", 1, 2, 5)

    assert all("t-commit" in entries for entries in both.entries())
    assert both.in_doubt() == 0
    assert both.total() == 2 * ACCOUNTS * BALANCE


def test_an_exception_rolls_both_databases_back(both, conn):
    """Half a transfer must not be seen, whatever goes wrong in the application."""

    def fail():
        with conn.transaction():
            move(hms.rm, "t-fault", 1, 2, 5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert not any("t-fault" in entries for entries in both.entries())
    assert both.total() == 2 * ACCOUNTS * BALANCE


def test_a_database_that_refuses_to_prepare_rolls_the_other_one_back(both, conn):
    """One veto is enough: a statement failed in PostgreSQL, so its prepare becomes a rollback."""

    def fail():
        with conn.transaction():
            move(hms.rm, "t-veto", 1, 2, 5)
            with pytest.raises(Exception, match="duplicate key"):
                hms.rm("pg").execute("INSERT INTO entry VALUES (%s, 0)", ("t-veto",))

    with pytest.raises(TransactionRolledBack):
        fail()

    assert not any("t-veto" in entries for entries in both.entries())
    assert both.in_doubt() == 0


def test_a_transaction_that_took_too_long_is_rolled_back(both, conn):
    """A timeout is a promise to the others who wait for the same rows."""

    def linger():
        with conn.transaction(timeout_s=0.5) as running:
            move(hms.rm, "t-late", 1, 2, 5)
            wait_until(lambda: running.state is tx.TX_TIMEOUT_ROLLBACK_ONLY)

    with pytest.raises(TransactionRolledBack, match="longer than"):
        linger()

    assert not any("t-late" in entries for entries in both.entries())


def test_an_application_cannot_commit_a_part_of_a_transaction(conn):
    """A commit() on the connection inside would leave the others alone."""
    with conn.transaction():
        for name in ("pg", "maria"):
            with pytest.raises(hms.IllegalState):
                hms.rm(name).commit()


def test_tmax_functions_do_the_same(both, running, monkeypatch):
    """Programs that come from Tmax keep their calls."""
    monkeypatch.setenv("HMS_ADDRESS", running.address)
    tpmon.tpstart()
    try:
        assert tx.tx_begin() == tx.TX_OK
        assert tx.tx_info().in_transaction
        move(tx.rm, "t-tx", 3, 4, 7)
        assert tx.tx_commit() == tx.TX_OK
        assert not tx.tx_info().in_transaction
        with pytest.raises(TxProtocolError) as raised:
            tx.tx_commit()
        assert tx.tx_code(raised.value) == tx.TX_PROTOCOL_ERROR
    finally:
        tpmon.tpend()

    assert all("t-tx" in entries for entries in both.entries())


def test_a_suspended_transaction_goes_on_in_another_place(both, running, monkeypatch):
    """Between suspend and resume the thread may run a transaction of its own."""
    monkeypatch.setenv("HMS_ADDRESS", running.address)
    tpmon.tpstart()
    try:
        tx.tx_begin()
        move(tx.rm, "t-outer", 3, 4, 7)
        left = tx.tpsuspendtx()
        tx.tx_begin()
        tx.rm("pg").execute("INSERT INTO entry VALUES ('t-inner', 0)")
        tx.tx_rollback()
        tx.tpresumetx(left)
        tx.tx_commit()
    finally:
        tpmon.tpend()

    assert all("t-outer" in entries for entries in both.entries())
    assert "t-inner" not in both.entries()[0]


def test_chained_transactions_follow_one_another(both, running, monkeypatch):
    """TX_CHAINED: the end of one is the beginning of the next."""
    monkeypatch.setenv("HMS_ADDRESS", running.address)
    tpmon.tpstart()
    try:
        tx.tx_set_transaction_control(tx.TX_CHAINED)
        tx.tx_set_commit_return(tx.TX_COMMIT_DECISION_LOGGED)
        tx.tx_begin()
        for number in range(3):
            move(tx.rm, f"t-chain{number}", 3, 4, 1)
            tx.tx_commit()
        assert tx.tx_info().in_transaction
        tx.tx_set_transaction_control(tx.TX_UNCHAINED)
        tx.tx_rollback()
    finally:
        tx.tx_set_commit_return(tx.TX_COMMIT_COMPLETED)
        tpmon.tpend()

    wait_until(lambda: all("t-chain2" in entries for entries in both.entries()), 60)


def test_an_orphan_of_this_node_is_rolled_back_and_one_of_others_is_not(both, conn):
    """Presumed abort: what nobody decided did not happen. Other systems' work is not ours."""
    rm = make_resource(Definition("pg", "postgresql", both.postgres.url))
    ours = decisions.xid_of(decisions.new_gtrid(identity_of(Blocking(conn))), b"pg.1")
    others = [Xid(77, b"somebody else"), decisions.xid_of(decisions.new_gtrid(12345), b"pg.1")]
    for number, xid in enumerate([ours, *others]):
        rm.xa_start(xid)
        rm.connection(xid).execute("INSERT INTO entry VALUES (%s, 0)", (f"t-orphan{number}",))
        rm.xa_end(xid)
        assert rm.xa_prepare(xid) == 0, rm.reason
    wait_until(lambda: both.in_doubt() == 2, 60)
    for xid in others:
        assert rm.xa_rollback(xid) == 0
    rm.close_idle()


def test_recovery_goes_on_when_a_database_was_down(both, conn, running):
    """A decision outlives the death of the database that was to carry it out."""
    with conn.transaction(wait="completed") as moving:
        move(hms.rm, "t-down", 1, 2, 5)
        kill = moving._coordinator
        kill._on_step = lambda step: step == "after decision" and both.postgres.stop(signal.SIGKILL)
    with hms.connect(running.address) as other:
        wait_until(lambda: _waits(other), 60)
    both.postgres.start()
    wait_until(both.is_settled, 60)
    assert all("t-down" in entries for entries in both.entries())
    assert both.total() == 2 * ACCOUNTS * BALANCE


def _waits(conn):
    told = conn.administer("status")["recovery"]
    return any(one["state"] == "down" for one in told.get("resources", ()))
