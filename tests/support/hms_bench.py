"""What the XA behaviours need of HMS: a mark is a message in a queue."""

import hms
from tpmon.xa.constants import XA_OK


class HmsBench:
    """A running node with a queue `marks`."""

    able = frozenset(("read_only", "suspend", "join", "heuristics"))

    def __init__(self, address):
        self._address = address
        self._connections = [hms.connect(address, reconnect=False)]
        self._browsing = self._connections[0].session()

    def open(self):
        connection = hms.connect(self._address, reconnect=False)
        self._connections.append(connection)
        rm = connection.session(xa=True).resource
        assert rm.xa_open() == XA_OK, rm.reason
        return rm

    def work(self, rm, xid, mark):
        with rm.connection(xid).producer("marks") as producer:
            producer.send(str(mark))

    def read(self, rm, xid):
        assert list(rm.connection(xid).browser("marks", selector="FALSE")) == []

    def marks(self):
        return {int(message.body) for message in self._browsing.browser("marks")}

    def complete(self, xid, *, is_commit):
        verb = "transaction.commit" if is_commit else "transaction.rollback"
        self._connections[0].administer(verb, {"xid": xid.pack().hex()})

    def close(self):
        for connection in self._connections:
            connection.close()
