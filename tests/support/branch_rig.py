"""An engine as EngineRig has it, with XA sessions: 5 of the first client; 1 of a second one."""

from hms.engine.xa.xa_codes import TMSUCCESS
from tests.support.engine_rig import EngineRig

XA, OTHER = 5, 1
SECOND = 2


def xid(n=1, bqual=b"hms"):
    """A packed xid."""
    gtrid = n.to_bytes(4, "big")
    return (7).to_bytes(4, "big") + bytes([len(gtrid), len(bqual)]) + gtrid + bqual


class BranchRig(EngineRig):
    """Producers 51 orders, 52 news, 53 slow in the XA session; 1 orders of the second client."""

    def start(self, subscriptions=(), is_warm=None):
        """Boot from the log; both clients connect."""
        super().start(subscriptions, is_warm)
        self.connect()
        self.engine.open_session(1, XA, 0, "xa")
        for n, (what, name) in enumerate(
            (("queue", "orders"), ("topic", "news"), ("queue", "slow")), 1
        ):
            self.engine.open_producer(1, XA * 10 + n, XA, what, name)

    def connect(self):
        """The second client."""
        self.engine.open_connection(SECOND, 88, "", "")
        self.engine.open_session(SECOND, OTHER, 0, "xa")
        self.engine.open_producer(SECOND, 1, OTHER, "queue", "orders")

    @property
    def branches(self):
        """The engine's commands on branches."""
        return self.engine.branches

    def begin(self, name=None, flags=0, timeout_ms=0, connection=1, session=XA):
        """xa_start's code."""
        name = name or xid()
        answer = self.branches.start(connection, session, name, flags, timeout_ms, self.now_ms)
        return int(answer.code)

    def end(self, name=None, flags=TMSUCCESS, connection=1, session=XA):
        """xa_end's code."""
        return self._code(
            lambda fx: self.branches.end(connection, session, name or xid(), flags, self.now_ms, fx)
        )

    def prepare(self, name=None):
        """xa_prepare's code."""
        return self._code(lambda fx: self.branches.prepare(name or xid(), self.now_ms, fx))

    def commit(self, name=None, *, is_one_phase=False, is_again=False):
        """xa_commit's code."""
        return self._code(
            lambda fx: self.branches.commit(
                name or xid(), self.now_ms, fx, is_one_phase=is_one_phase, is_again=is_again
            )
        )

    def rollback(self, name=None):
        """xa_rollback's code."""
        return self._code(lambda fx: self.branches.rollback(name or xid(), self.now_ms, fx))

    def forget(self, name=None):
        """xa_forget's code."""
        return self._code(lambda fx: self.branches.forget(name or xid(), self.now_ms, fx))

    def recover(self, after=0, count=1000):
        """A page of xa_recover."""
        found = []
        self.run(lambda fx: found.append(self.branches.recover(after, count, fx)))
        return found[0]

    def operate(self, verb, name=None):
        """An operator's command on a branch."""
        found = []
        arguments = {"xid": (name or xid()).hex()}
        self.run(lambda fx: found.append(self.engine.administer(verb, arguments, self.now_ms, fx)))
        return found[0]

    def sent_in_branch(self, name=None, count=1):
        """A branch that has sent so many orders, and ended."""
        assert self.begin(name) == 0
        self.send(51, count)
        assert self.end(name) == 0

    def _code(self, call):
        found = []
        self.run(lambda fx: found.append(call(fx)))
        return int(found[0].code)
