"""What a client of distributed transactions does at random, and what a node knows of it."""

from hms.engine.xa.xa_codes import TMFAIL, TMSUCCESS, TMSUSPEND
from hms.errors.catalogue import DecisionRefused

SESSION = 3
NAMES = tuple(
    (7).to_bytes(4, "big") + bytes([1, 1]) + bytes([gtrid, bqual])
    for gtrid in range(3)
    for bqual in range(2)
)
GTRIDS = (b"one", b"two")


class BranchSteps:
    """Steps of a Walk, in any order: most of them are refused, which must change nothing."""

    def branch(self):
        """Begin or end work in a branch, or one's outcome."""
        choose = self.random
        if choose.random() < 0.3:
            self._whole(choose.choice(NAMES))
            return
        step = choose.choice((self._start, self._end, self._vote, self._outcome))
        known = list(self.node.engine.state.branches.by_xid)
        is_known = step != self._start and known and choose.random() < 0.9
        step(choose.choice(known if is_known else NAMES))

    def _whole(self, xid):
        """Some work in a branch of its own, up to the vote."""
        at = (self.connections, SESSION, xid, 0, 0, self.node.now_ms)
        if self.node.engine.branches.start(*at).code:
            return
        for _ in range(self.random.randrange(5)):
            self.random.choice((self.send, self.settle, self.credit, self.tick))()
        self._end(xid, TMSUCCESS)
        self._vote(xid)

    def _start(self, xid):
        at = (self.connections, SESSION, xid, self.random.choice((0, 0, 0x00200000, 0x08000000)))
        self.node.engine.branches.start(*at, self.random.choice((0, 60)), self.node.now_ms)

    def _end(self, _, flags=0):
        session = self.node.engine.state.connection(self.connections).sessions[SESSION]
        flags = flags or self.random.choice((TMSUCCESS, TMSUCCESS, TMSUCCESS, TMSUSPEND, TMFAIL))
        at = (self.connections, SESSION, session.xid, flags, self.node.now_ms)
        self._run(lambda fx: self.node.engine.branches.end(*at, fx))

    def _vote(self, xid):
        self._run(lambda fx: self.node.engine.branches.prepare(xid, self.node.now_ms, fx))

    def _outcome(self, xid):
        branches, now_ms, roll = self.node.engine.branches, self.node.now_ms, self.random.random()
        one = self.random.random() < 0.5
        if roll < 0.4:
            self._run(lambda fx: branches.commit(xid, now_ms, fx, is_one_phase=one, is_again=False))
        elif roll < 0.7:
            self._run(lambda fx: branches.rollback(xid, now_ms, fx))
        elif roll < 0.8:
            self._run(lambda fx: branches.forget(xid, now_ms, fx))
        else:
            self._operate_branch(xid)

    def _operate_branch(self, xid):
        branch = self.node.engine.state.branches.by_xid.get(xid)
        if branch is None or branch.state.value != "prepared":
            return
        verb = self.random.choice(("transaction.commit", "transaction.rollback"))
        at = (verb, {"xid": xid.hex()}, self.node.now_ms)
        self._run(lambda fx: self.node.engine.administer(*at, fx))

    def decision(self):
        """Begin a global transaction, decide it, or forget it."""
        branches, now_ms = self.node.engine.branches, self.node.now_ms
        gtrid, roll = self.random.choice(GTRIDS), self.random.random()
        if roll < 0.3:
            self._run(lambda fx: branches.forget_decision(gtrid, fx))
            return
        ready = [b for b in self.node.engine.state.branches.live.values() if not b.is_attached]
        xids = [b.xid for b in ready if b.state.value == "idle"]
        try:
            branches.begin_global(self.connections, gtrid, 0, "", now_ms)
            at = (self.connections, gtrid, b"who", xids, now_ms)
            self._run(lambda fx: branches.decide(*at, fx))
        except DecisionRefused:
            assert gtrid in self.node.engine.state.decisions.decided


def branches_of(state):
    """All that recovery restores of branches and decisions, as plain data."""
    return {
        "branches": [
            (
                branch.xid,
                branch.state,
                branch.serial,
                [(b.first_id, b.timestamp_ms, bytes(b.pack)) for b in _sends(branch)],
                sorted((p.name, m.id) for p, m in branch.work.acknowledged if m.is_persistent),
            )
            for branch in state.branches.in_doubt()
        ],
        "decisions": sorted(map(repr, state.decisions.decided.values())),
        "committed": sorted(state.branches.committed),
    }


def _sends(branch):
    return [batch for batch in branch.work.sends if batch.is_persistent]
