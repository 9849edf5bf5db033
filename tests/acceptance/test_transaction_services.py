"""Services in transactions: called in one, in one of their own, as listeners of a queue."""

import pytest

import hms
from hms.errors.catalogue import ServiceCallFailed, TransactionRolledBack, TxProtocolError
from hms.testing import node
from tests.acceptance.bank_rig import ACCOUNTS, BALANCE, TRANSFERS
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_session_is_left")

MODULE = "tests.acceptance.bank_services"


@pytest.fixture(scope="module")
def running(both, project_root):
    config = both.config(
        receipts={}, **{TRANSFERS: {"listener": "TRANSFER", "redelivery_limit": 2}}
    )
    config["server"] = {
        "bank": {"module": MODULE, "MIN": 3, "python_path": [str(project_root)], "MAXRSTART": -1}
    }
    config["service"] = {"AUTO": {"AUTOTRAN": True}}
    with node(config=config) as booted:
        with hms.connect(booted.address) as connection:  # a node is ready after 15 s without them
            wait_until(lambda: _connected(connection, "bank") == 3)
        yield booted


def order(name, amount=3, account=1):
    return {"id": name, "amount": amount, "account": account}


def receipts(conn):
    with conn.session() as session, session.browser(hms.Queue("receipts")) as browser:
        return [message.body.decode() for message in browser]


def test_what_called_services_did_commits_with_the_caller(both, conn):
    """The services answer before the caller has decided, so nothing of theirs is final yet."""
    with conn.transaction(timeout_s=60):
        conn.call("DEBIT", order("s-commit"))
        conn.call("CREDIT", order("s-commit"))
        assert not any("s-commit" in entries for entries in both.entries())
        assert "s-commit" not in receipts(conn)

    assert all("s-commit" in entries for entries in both.entries())
    assert "s-commit" in receipts(conn)
    assert both.in_doubt() == 0


def test_what_called_services_did_rolls_back_with_the_caller(both, conn):
    """A caller who fails afterwards takes all of it back."""

    def fail():
        with conn.transaction(timeout_s=60):
            conn.call("DEBIT", order("s-back"))
            conn.call("CREDIT", order("s-back"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not any("s-back" in entries for entries in both.entries())
    assert "s-back" not in receipts(conn)
    wait_until(both.is_settled, 60)


def test_a_service_that_fails_lets_the_transaction_only_roll_back(both, conn):
    """TPFAIL is a veto, even when the caller goes on as if nothing had happened."""

    def go_on():
        with conn.transaction(timeout_s=60):
            conn.call("CREDIT", order("s-spoil"))
            with pytest.raises(hms.ServiceFailedReply):
                conn.call("SPOIL", order("s-spoil"))

    with pytest.raises(TransactionRolledBack):
        go_on()
    assert not any("s-spoil" in entries for entries in both.entries())


def test_a_server_that_dies_in_a_transaction_rolls_it_back(both, conn):
    """What it had done is undone by its database, the others' part by the caller."""

    def die():
        with conn.transaction(timeout_s=60):
            conn.call("CREDIT", order("s-die"))
            with pytest.raises(hms.ServerLost):
                conn.call("DIE", order("s-die"))

    with pytest.raises(TransactionRolledBack):
        die()
    assert not any("s-die" in entries for entries in both.entries())
    wait_until(both.is_settled, 60)
    assert both.total() == 2 * ACCOUNTS * BALANCE


def test_a_service_begins_a_transaction_when_it_needs_one(both, conn):
    """transaction="required" outside one; and the services that it calls are part of it."""
    wait_until(lambda: _offers(conn, "BOTH"), 60)
    conn.call("BOTH", order("s-own"))

    assert all("s-own" in entries for entries in both.entries())
    assert "s-own" in receipts(conn)


def test_the_configuration_begins_a_transaction_for_a_service(both, conn):
    """AUTOTRAN: a service that knows nothing of transactions gets one."""
    conn.call("AUTO", order("s-auto"))

    assert all("s-auto" in entries for entries in both.entries())
    assert "s-auto" in receipts(conn)


def test_a_mandatory_service_is_refused_outside_a_transaction(both, conn):
    """Half a transfer must not be possible by a forgotten block."""
    with pytest.raises(ServiceCallFailed, match="must be called in a transaction"):
        conn.call("DEBIT", order("s-alone"))
    assert "s-alone" not in both.entries()[0]


def test_a_forwarded_call_takes_its_branches_along(both, conn):
    """The caller must hear of what the first service left, too."""
    with conn.transaction(timeout_s=60):
        conn.call("ONWARD", order("s-onward"))

    assert all("s-onward" in entries for entries in both.entries())
    assert both.in_doubt() == 0


def test_a_call_without_a_reply_is_refused_inside_a_transaction(conn):
    """Nobody would hear what it left behind."""
    with conn.transaction(), pytest.raises(hms.InvalidArgument, match="TPNOTRAN"):
        conn.start_call("DEBIT", b"", 6, None, is_reply_wanted=False)


def test_commit_waits_for_outstanding_calls(both, conn):
    """TX_PROTOCOL_ERROR, and nothing is changed: the transaction can still be committed."""
    with conn.transaction(timeout_s=60) as running:
        future = conn.call_async("DEBIT", order("s-async"))
        try:
            running.commit()
        except TxProtocolError:
            pass
        else:
            assert future.done()
        future.result(60)
        if not running.is_ended:
            conn.call("CREDIT", order("s-async"))

    assert "s-async" in both.entries()[0]


def test_a_listeners_message_and_its_databases_have_one_outcome(both, conn):
    """The message is gone exactly when the transfer is there."""
    with conn.session() as session:
        producer = session.producer(hms.Queue(TRANSFERS))
        for number in range(5):
            producer.send(f"s-listen{number} 1 2 {number + 1}".encode())
        producer.send(b"s-thirteen 1 2 13")

    wait_until(lambda: _entered(both, "s-listen") == 5, 60)
    wait_until(lambda: _count(conn, "HMS.DLQ") == 1, 60)
    assert _entered(both, "s-thirteen") == 0
    wait_until(lambda: sum(name.startswith("s-listen") for name in receipts(conn)) == 5, 60)
    assert "s-thirteen" not in receipts(conn)
    assert _count(conn, TRANSFERS) == 0
    assert both.total() == 2 * ACCOUNTS * BALANCE
    wait_until(both.is_settled, 60)


def _entered(both, prefix):
    found = [{name for name in entries if name.startswith(prefix)} for entries in both.entries()]
    return len(found[0] & found[1]) if found[0] == found[1] else -1


def _count(conn, queue):
    with conn.session() as session, session.browser(hms.Queue(queue)) as browser:
        return len(list(browser))


def _connected(conn, name):
    servers = {one["name"]: one for one in conn.administer("server.list")}
    return servers[name]["connected"]


def _offers(conn, name):
    return any(one["name"] == name and one["servers"] for one in conn.administer("service.list"))
