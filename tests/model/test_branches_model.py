"""A model of branches against the engine: X/Open's state table, and nothing lost or doubled.

The model knows states and counts only; the engine knows messages, locks and the log.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hms.engine.xa.xa_codes import TMFAIL, TMJOIN, TMRESUME, TMSUCCESS, TMSUSPEND, Code
from hms.errors.catalogue import TransactionRolledBack
from tests.support.branch_rig import OTHER, SECOND, XA, BranchRig, xid
from tests.support.effort import walks

NAMES = st.integers(1, 2)
WHO = st.sampled_from(((1, XA), (SECOND, OTHER)))
PRODUCERS = {(1, XA): 51, (SECOND, OTHER): 1}


@dataclass
class Modelled:
    """A branch as the model has it; attached and suspended: connections."""

    owner: int
    state: str = "active"
    why: Code = Code.RBROLLBACK
    sent: int = 0
    taken: int = 0
    attached: set[int] = field(default_factory=set)
    suspended: set[int] = field(default_factory=set)

    @property
    def is_free(self):
        return not self.attached and not self.suspended


class Branches(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.rig = BranchRig()
        self.branches: dict[int, Modelled] = {}
        self.at: dict[int, int] = {}
        """The branch in which a connection's session works."""
        self.there = 0

    @rule(who=WHO, n=NAMES, flags=st.sampled_from((0, 0, TMJOIN, TMRESUME)))
    def start(self, who, n, flags):
        branch, number = self.branches.get(n), who[0]
        code = self.rig.begin(xid(n), flags, connection=number, session=who[1])
        assert code == self._started(branch, number, flags)
        if branch is not None and flags == TMRESUME and number not in self.at:
            branch.suspended.discard(number)
        if code == Code.OK:
            branch = self.branches.setdefault(n, Modelled(number))
            branch.state, self.at[number] = "active", n
            branch.attached.add(number)

    def _started(self, branch, number, flags):
        if number in self.at:
            return Code.PROTO
        if flags == 0:
            return Code.OK if branch is None else Code.DUPID
        if branch is None:
            return Code.NOTA
        is_suspended = number in branch.suspended
        if flags == TMRESUME and not is_suspended:
            return Code.PROTO
        if branch.state == "rollback only":
            return branch.why
        may_work = branch.state in ("active", "idle") and is_suspended is (flags == TMRESUME)
        return Code.OK if may_work else Code.PROTO

    @rule(who=WHO, n=NAMES, flags=st.sampled_from((TMSUCCESS, TMSUCCESS, TMSUSPEND, TMFAIL)))
    def end(self, who, n, flags):
        branch, number = self.branches.get(n), who[0]
        code = self.rig.end(xid(n), flags, connection=number, session=who[1])
        is_in_it, is_suspended = self.at.get(number) == n, False
        if branch is not None:
            is_suspended = number in branch.suspended
        if branch is None or not (is_in_it or is_suspended):
            assert code == (Code.NOTA if branch is None else Code.PROTO)
            return
        if is_suspended and flags == TMSUSPEND:
            assert code == Code.PROTO
            return
        self._leave(branch, number, n)
        if flags == TMFAIL:
            self._undo(branch, Code.RBROLLBACK)
        elif flags == TMSUSPEND and branch.state == "active":
            branch.suspended.add(number)
        is_over = branch.state == "rollback only" and flags != TMFAIL
        assert code == (branch.why if is_over else Code.OK)
        if branch.state == "active" and branch.is_free:
            branch.state = "idle"

    def _leave(self, branch, number, n):
        branch.attached.discard(number)
        branch.suspended.discard(number)
        if self.at.get(number) == n:
            del self.at[number]

    def _undo(self, branch, why):
        if branch.state != "rollback only":
            branch.state, branch.why = "rollback only", why
            self.there += branch.taken
            branch.sent = branch.taken = 0

    @rule(who=WHO)
    def send(self, who):
        branch = self.branches.get(self.at.get(who[0]))
        if branch is not None and branch.state == "rollback only":
            with pytest.raises(TransactionRolledBack):
                self.rig.send(PRODUCERS[who], connection=who[0])
            return
        self.rig.send(PRODUCERS[who], connection=who[0])
        if branch is None:
            self.there += 1
        else:
            branch.sent += 1

    @rule(count=st.integers(1, 3))
    def take(self, count):
        branch = self.branches.get(self.at.get(1))
        messages = self.rig.consume(9, session=XA, credit=count)
        self.rig.acknowledge(9, messages)
        self.rig.run(lambda fx: self.rig.engine.close_consumer(1, 9, self.rig.now_ms, fx))
        if branch is None:
            self.there -= len(messages)
        elif branch.state != "rollback only":
            self.there -= len(messages)
            branch.taken += len(messages)

    @rule(n=NAMES, sends=st.integers(0, 2), takes=st.integers(0, 2), is_prepared=st.booleans())
    def work(self, n, sends, takes, is_prepared):
        """Some work up to the vote: what single steps come to seldom."""
        me = (1, XA)
        if 1 in self.at or n in self.branches:
            return
        self.start(me, n, 0)
        for _ in range(sends):
            self.send(me)
        self.take(takes)
        self.end(me, n, TMSUCCESS)
        if is_prepared:
            self.complete(n, "prepare")

    @rule(n=NAMES, what=st.sampled_from(("prepare", "commit", "one phase", "rollback", "forget")))
    def complete(self, n, what):
        calls = {"commit": self.rig.commit, "rollback": self.rig.rollback}
        calls |= {"prepare": self.rig.prepare, "forget": self.rig.forget}
        calls["one phase"] = lambda name: self.rig.commit(name, is_one_phase=True)
        assert calls[what](xid(n)) == self._completed(n, what)

    def _completed(self, n, what):
        branch = self.branches.get(n)
        if branch is None:
            return Code.NOTA
        if branch.state.startswith("heuristically"):
            if what == "forget":
                del self.branches[n]
                return Code.OK
            heuristic = Code.HEURCOM if branch.state.endswith("committed") else Code.HEURRB
            return Code.PROTO if what == "prepare" else heuristic
        allowed = {"prepared": ("commit", "rollback")}
        if not branch.is_free or what not in allowed.get(
            branch.state, ("prepare", "one phase", "rollback")
        ):
            return Code.PROTO
        return self._ended(n, branch, what)

    def _ended(self, n, branch, what):
        if what == "prepare" and branch.state == "idle" and (branch.sent or branch.taken):
            branch.state = "prepared"
            return Code.OK
        del self.branches[n]
        if branch.state == "rollback only":
            return Code.OK if what == "rollback" else branch.why
        self.there += branch.taken if what == "rollback" else branch.sent
        return Code.RDONLY if what == "prepare" else Code.OK

    @rule(n=NAMES, verb=st.sampled_from(("commit", "rollback")))
    def operate(self, n, verb):
        branch = self.branches.get(n)
        if branch is None or branch.state != "prepared":
            return
        self.rig.operate(f"transaction.{verb}", xid(n))
        self.there += branch.sent if verb == "commit" else branch.taken
        done = "committed" if verb == "commit" else "rolled back"
        branch.state = f"heuristically {done}"

    @rule()
    def crash(self):
        for n, branch in list(self.branches.items()):
            if branch.state in ("active", "idle", "rollback only"):
                self.there += branch.taken
                del self.branches[n]
        self.at.clear()
        self.rig.start()

    @invariant()
    def nothing_is_lost_or_doubled(self):
        queues = self.rig.engine.state.queues
        assert sum(len(q.line.everything()) for q in queues.values()) == self.there
        recorded = ("prepared", "heuristically committed", "heuristically rolled back")
        wanted = {xid(n) for n, b in self.branches.items() if b.state in recorded}
        assert set(self.rig.recover()["xids"]) == wanted


TestBranches = Branches.TestCase
TestBranches.settings = settings(max_examples=walks(60), stateful_step_count=40, deadline=None)
