"""The comfortable layer: sessions that join by themselves, decorators, asyncio, a last resource."""

import asyncio
import sqlite3

import pytest

import hms
import hms.aio
import tpmon
from hms.errors.catalogue import TransactionRolledBack, TxProtocolError
from hms.testing import node
from tests.support.mariadb import mariadb_server
from tpmon import tx

pytestmark = pytest.mark.usefixtures("no_session_is_left")
MARKS = hms.Queue("marks")


@pytest.fixture(scope="module")
def server():
    with mariadb_server() as opened:
        opened.ask("CREATE TABLE mark (id varchar(64) PRIMARY KEY) ENGINE=InnoDB")
        yield opened


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sqlite") / "marks.db"
    session = sqlite3.connect(path)
    session.execute("CREATE TABLE mark (id text PRIMARY KEY)")
    session.close()
    return path


@pytest.fixture(scope="module")
def running(server, file):
    config = {
        "rm": {
            "maria": {"kind": "mariadb", "open": server.url},
            "lite": {"kind": "sqlite", "open": f"sqlite:{file}", "last_resource": True},
        },
        "hms": {"queue": {"marks": {}}},
    }
    with node(config=config) as booted:
        yield booted


def mark(name):
    with hms.rm("maria").cursor() as cursor:
        cursor.execute("INSERT INTO mark VALUES (%s)", (name,))


def messages(conn):
    with conn.session() as session, session.browser(MARKS) as browser:
        return {message.body for message in browser}


def test_a_session_of_another_connection_joins_the_transaction_of_its_thread(running, conn):
    """Outside of it, what it sent would stay when the transaction rolls back."""
    with (
        hms.connect(running.address) as other,
        other.session(xa=True) as session,
        session.producer(MARKS) as out,
    ):
        with conn.transaction() as transaction:
            out.send(b"rolled back")
            transaction.rollback()
        with conn.transaction():
            out.send(b"of another connection")
            assert b"of another connection" not in messages(conn)
        assert b"of another connection" in messages(conn)
        assert b"rolled back" not in messages(conn)


def test_a_session_of_another_node_of_the_same_name_is_refused(conn):
    """Its branch would be taken for one of this node, and nobody could recover it."""
    with (
        node(config={"hms": {"queue": {"marks": {}}}}) as stranger,
        hms.connect(stranger.address) as other,
        other.session(xa=True) as session,
        session.producer(MARKS) as out,
    ):
        assert session.resource.node_uid == conn.link.welcome.node_uid
        with pytest.raises(TxProtocolError, match="another node"), conn.transaction():
            raise AssertionError("it began")
        with other.transaction():
            out.send(b"there")
        assert messages(other) == {b"there"}
    with conn.transaction() as transaction:
        assert not transaction.is_ended


def marked(server):
    return {row[0] for row in server.ask("SELECT id FROM mark")}


def lite(file):
    session = sqlite3.connect(file)
    try:
        return {row[0] for row in session.execute("SELECT id FROM mark")}
    finally:
        session.close()


def fail(conn, work):
    """A transaction that does its work and then does not end well."""
    with conn.transaction():
        work()
        raise ZeroDivisionError


def told(conn, prefix=""):
    with conn.session() as session, session.browser(MARKS) as browser:
        bodies = sorted(message.body.decode() for message in browser)
    return [body for body in bodies if body.startswith(prefix)]


def test_an_xa_session_joins_the_transactions_of_its_thread(server, conn):
    """F-B6: between begin and commit its work belongs to the transaction, outside it does not."""
    with conn.session(xa=True) as session:
        producer = session.producer(MARKS)
        producer.send(b"x-before")
        with conn.transaction():
            producer.send(b"x-inside")
            mark("inside")
            assert told(conn, "x-") == ["x-before"]
        producer.send(b"x-after")
        with pytest.raises(ZeroDivisionError):
            fail(conn, lambda: producer.send(b"x-never"))

    assert told(conn, "x-") == ["x-after", "x-before", "x-inside"]
    assert "inside" in marked(server)


def test_a_received_message_comes_again_when_the_transaction_is_rolled_back(conn):
    """A receipt is work like any other."""
    with conn.session() as session:
        session.producer(MARKS).send(b"again", {"which": "again"})
    with conn.session(xa=True) as session:
        consumer = session.consumer(MARKS, selector="which = 'again'")
        with pytest.raises(ZeroDivisionError):
            fail(conn, lambda: consumer.receive(timeout_s=60).body)
        with conn.transaction():
            assert consumer.receive(timeout_s=60).body == b"again"

    assert "again" not in told(conn)


def test_a_function_runs_in_its_callers_transaction_or_in_one_of_its_own(server, conn, running):
    """@transactional: required joins, requires_new stands alone, mandatory and never refuse."""

    @hms.transactional(connection=conn)
    def joined():
        mark("d-joined")

    @hms.transactional("requires_new", connection=conn)
    def apart():
        mark("d-apart")

    @hms.transactional("mandatory")
    def inner():
        mark("d-inner")

    def fail():
        with conn.transaction():
            joined()
            inner()
            apart()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert {one for one in marked(server) if one.startswith("d-")} == {"d-apart"}
    with pytest.raises(TxProtocolError, match="must be called in a transaction"):
        inner()
    joined()
    assert "d-joined" in marked(server)


def test_a_last_resource_is_committed_before_the_decision(server, file, conn):
    """SQLite cannot prepare; it takes part because its owner said so."""
    with conn.transaction():
        mark("l-good")
        hms.rm("lite").execute("INSERT INTO mark VALUES ('l-good')")

    assert "l-good" in marked(server)
    assert "l-good" in lite(file)


def test_a_last_resource_that_refuses_rolls_the_others_back(server, file, conn):
    """The others have only promised, so they can still go back."""

    def collide():
        with conn.transaction():
            mark("l-bad")
            lite_session = hms.rm("lite")
            lite_session.execute("PRAGMA defer_foreign_keys = ON")
            lite_session.execute("CREATE TABLE IF NOT EXISTS child (id text REFERENCES mark(id))")
            lite_session.execute("INSERT INTO mark VALUES ('l-bad')")
            lite_session.execute("ROLLBACK")

    with pytest.raises(TransactionRolledBack):
        collide()
    assert "l-bad" not in marked(server)
    assert "l-bad" not in lite(file)


def test_a_task_has_transactions_of_its_own(server, running):
    """asyncio: what may wait runs beside the loop, and siblings do not share a transaction."""

    async def work(conn, name):
        async with conn.transaction(timeout_s=60) as transaction:
            maria = await transaction.rm("maria")

            def insert():
                with maria.cursor() as cursor:
                    cursor.execute("INSERT INTO mark VALUES (%s)", (name,))

            await asyncio.to_thread(insert)
            if name == "a-2":
                raise ZeroDivisionError

    async def run():
        async with hms.aio.connect(running.address) as conn:
            names = [f"a-{number}" for number in range(4)]
            done = await asyncio.gather(*(work(conn, n) for n in names), return_exceptions=True)
            async with conn.session(xa=True) as session, conn.transaction() as transaction:
                await transaction.enlist(session)
                await (await session.producer(MARKS)).send(b"from a task")
        return done

    done = asyncio.run(run())

    assert [type(one) for one in done] == [type(None), type(None), ZeroDivisionError, type(None)]
    assert {one for one in marked(server) if one.startswith("a-")} == {"a-0", "a-1", "a-3"}
    with hms.connect(running.address) as conn:
        assert "from a task" in told(conn)


def test_the_states_of_x_open_are_kept(running, monkeypatch):
    """TX_PROTOCOL_ERROR for every call in the wrong state, and nothing changes."""
    monkeypatch.setenv("HMS_ADDRESS", running.address)
    tpmon.tpstart()
    try:
        assert tx.tx_open() == tx.tx_open() == tx.TX_OK
        assert tx.tx_begin() == tx.TX_OK
        for call in (tx.tx_begin, tx.tx_close):
            assert _code(call) == tx.TX_PROTOCOL_ERROR
        assert tx.tx_info().transaction_state is tx.TX_ACTIVE
        assert tx.tx_rollback() == tx.TX_OK
        for call in (tx.tx_commit, tx.tx_rollback, tx.tpsuspendtx):
            assert _code(call) == tx.TX_PROTOCOL_ERROR
        assert tx.tx_close() == tx.TX_OK
        assert _code(tx.tx_begin) == tx.TX_PROTOCOL_ERROR
        assert tx.tx_open() == tx.TX_OK
        assert _code(lambda: tx.tx_set_commit_return(9)) == tx.TX_EINVAL
        assert _code(lambda: tx.tx_set_transaction_control(9)) == tx.TX_EINVAL
        assert _code(lambda: tx.tx_set_transaction_timeout(-1)) == tx.TX_EINVAL
        assert tx.tx_set_transaction_timeout(7) == tx.TX_OK
        assert tx.tx_info().transaction_timeout == 7
    finally:
        tx.tx_open()
        tx.tx_set_transaction_timeout(0)
        tpmon.tpend()


def _code(call):
    with pytest.raises(hms.HmsError) as raised:
        call()
    return tx.tx_code(raised.value)
