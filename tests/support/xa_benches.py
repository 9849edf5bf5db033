"""What the XA behaviours need of each resource manager: how to work, how to see what is there."""

import contextlib

import hms
from hms.wire.xa_constants import XA_OK
from tpmon.xa.kit import DatabaseResource
from tpmon.xa.mariadb import MariaDB
from tpmon.xa.postgresql import PostgreSQL


class PostgreSQLBench:
    """A PostgreSQL server with max_prepared_transactions."""

    able = frozenset(("read_only", "suspend", "join"))

    def __init__(self, server):
        self._server = server
        self._opened = []
        server.ask("CREATE TABLE IF NOT EXISTS marks (mark bigint PRIMARY KEY)")

    def open(self):
        rm = DatabaseResource("pg", PostgreSQL("pg", self._server.url))
        assert rm.xa_open() == XA_OK, rm.reason
        self._opened.append(rm)
        return rm

    def work(self, rm, xid, mark):
        rm.connection(xid).execute("INSERT INTO marks VALUES (%s)", (mark,))

    def read(self, rm, xid):
        rm.connection(xid).execute("SELECT count(*) FROM marks").fetchall()

    def marks(self):
        return {mark for (mark,) in self._server.ask("SELECT mark FROM marks")}

    def complete(self, xid, *, is_commit):
        raise NotImplementedError

    def close(self):
        for rm in self._opened:
            rm.xa_close()


class MariaDBBench(PostgreSQLBench):
    """A MariaDB server."""

    able = frozenset(("suspend", "join"))

    def open(self):
        rm = DatabaseResource("maria", MariaDB("maria", self._server.url))
        assert rm.xa_open() == XA_OK, rm.reason
        self._opened.append(rm)
        return rm

    def work(self, rm, xid, mark):
        with contextlib.closing(rm.connection(xid).cursor()) as cursor:
            cursor.execute("INSERT INTO marks VALUES (%s)", (mark,))

    def read(self, rm, xid):
        with contextlib.closing(rm.connection(xid).cursor()) as cursor:
            cursor.execute("SELECT count(*) FROM marks")


class HmsBench:
    """A node of HMS: a mark is a message in a queue."""

    able = frozenset(("read_only", "suspend", "join", "heuristics"))
    queue = "marks"

    def __init__(self, address):
        self._address = address
        self._opened = contextlib.ExitStack()
        self._looking = self._opened.enter_context(hms.connect(address))

    def open(self):
        connection = self._opened.enter_context(hms.connect(self._address))
        rm = connection.session(xa=True).resource
        assert rm.xa_open() == XA_OK, rm.reason
        return rm

    def work(self, rm, xid, mark):
        producer = rm.connection(xid).producer(hms.Queue(self.queue))
        producer.send(str(mark).encode())
        producer.close()

    def read(self, rm, xid):
        with rm.connection(xid).browser(hms.Queue(self.queue)) as browser:
            list(browser)

    def marks(self):
        with self._looking.session() as session, session.browser(hms.Queue(self.queue)) as browser:
            return {int(message.body) for message in browser}

    def complete(self, xid, *, is_commit):
        verb = "transaction.commit" if is_commit else "transaction.rollback"
        self._looking.administer(verb, {"xid": xid.pack().hex()})

    def close(self):
        self._opened.close()
