"""Recovery: branches that nobody finishes any more are brought to the outcome that was decided.

Each resource manager has a round of its own, in a thread of its own, so that one that is down
holds up no other. A round lists the prepared branches and asks the node about each: one whose
transaction is active is left alone, a decided one is committed, any other one of this node was
never decided and is rolled back (presumed abort). Branches of other systems are not touched.

Then every decision that nobody carries out any more is looked through: what it wants here and is
not prepared any more was committed by the client before it left.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from hms.errors.catalogue import DecisionUnreadable
from hms.wire import branch_requests as wire
from hms.wire import xa_constants as xa
from hms.wire.xid import Xid
from tpmon.xa import decisions
from tpmon.xa.decisions import Participant
from tpmon.xa.resource import ResourceManager, scan

__all__ = ["Asker", "Recovery", "Round", "Waiting"]

PAGE = 200

log = logging.getLogger("hms.recovery")


class Asker(Protocol):
    """The node."""

    def request(self, request: Any) -> Any:
        """The reply's data."""


class Waiting(NamedTuple):
    """A branch that could not be finished, and why."""

    resource: str
    gtrid: bytes
    reason: str


class Decision(NamedTuple):
    """One that nobody carries out any more. fault: why it cannot be read; then nothing is done
    about it, and the others go on."""

    gtrid: bytes
    participants: list[Participant]
    fault: str = ""


class Round(NamedTuple):
    """What a round did."""

    committed: int
    rolled_back: int
    waiting: list[Waiting]
    foreign: int


class Recovery:
    """The rounds of one node's resource managers; identity: what its gtrids begin with."""

    def __init__(self, node: Asker, identity: Callable[[], int]) -> None:
        self._node = node
        self._identity = identity
        self._lock = threading.Lock()
        self._told: set[bytes] = set()

    def round(self, rm: ResourceManager) -> Round:
        """Finish what is left over in a resource manager; XaError when it is not reached."""
        uid = self._identity()
        left = {d.gtrid: d for d in self.left_over()}  # before the scan: see the module
        found = list(scan(rm))
        ours = [xid for xid in found if decisions.node_of(xid) == uid]
        counts = {"committed": 0, "rolled back": 0, "": 0}
        waiting = []
        for xid in ours:
            did, reason = self._finish(rm, xid)
            counts[did] += 1
            if reason:
                waiting.append(Waiting(rm.name, xid.gtrid, reason))
        there = {(xid.gtrid, xid.bqual) for xid in ours}
        for decision in left.values():
            self._conclude(rm, decision, there)
        return Round(counts["committed"], counts["rolled back"], waiting, len(found) - len(ours))

    def left_over(self) -> Iterator[Decision]:
        """Decisions that nobody carries out."""
        after = 0
        while True:
            page = self._node.request(wire.ListDecisions(after, PAGE))
            for gtrid, participants, _, *held in page["decisions"]:
                if gtrid != decisions.IDENTITY and not any(held):
                    yield self._read(gtrid, participants)
            if not page["has_more"]:
                return
            after = page["position"]

    def _read(self, gtrid: bytes, participants: bytes) -> Decision:
        try:
            return Decision(gtrid, decisions.read(gtrid, participants))
        except DecisionUnreadable as error:
            if gtrid not in self._told:
                self._told.add(gtrid)
                log.warning("%s", error, extra={"event": "decision_unreadable"})
            return Decision(gtrid, [], str(error))

    # ---- one branch

    def _finish(self, rm: ResourceManager, xid: Xid) -> tuple[str, str]:
        """What was done with a prepared branch of ours, and why it could not be."""
        told = self._node.request(wire.AskDecision(xid.gtrid))
        if told["state"] in {"active", "committing"}:
            return "", ""
        try:
            wanted = self._participant(told, rm, xid)
        except DecisionUnreadable as error:
            return "", str(error)
        if wanted is None or wanted.order == decisions.ROLLBACK:
            return self._roll_back(rm, xid, wanted)
        return self._commit(rm, xid)

    def _participant(
        self, told: dict[str, Any], rm: ResourceManager, xid: Xid
    ) -> Participant | None:
        """What the decision says of a branch; None: it does not want it."""
        if told["state"] != "committed":
            return None
        known = decisions.read(xid.gtrid, told["participants"])
        return next((p for p in known if (p.resource, p.bqual) == (rm.name, xid.bqual)), None)

    def _commit(self, rm: ResourceManager, xid: Xid) -> tuple[str, str]:
        code = rm.xa_commit(xid)
        if code in {xa.XA_OK, xa.XAER_NOTA}:
            self._note(rm.name, xid, decisions.COMMITTED, "")
            return "committed", ""
        reason = f"{xa.code_name(code)}: {rm.reason}"
        if code in _HEURISTIC:
            self._note(rm.name, xid, _HEURISTIC[code], reason)
            return "", ""
        return "", reason

    def _roll_back(
        self, rm: ResourceManager, xid: Xid, wanted: Participant | None
    ) -> tuple[str, str]:
        code = rm.xa_rollback(xid)
        if code not in {xa.XA_OK, xa.XAER_NOTA}:
            return "", f"{xa.code_name(code)}: {rm.reason}"
        if wanted is not None:
            said = "an operator ordered it, against the decision"
            self._note(rm.name, xid, decisions.ROLLED_BACK, said)
        return "rolled back", ""

    # ---- decisions

    def _conclude(
        self, rm: ResourceManager, decision: Decision, there: set[tuple[bytes, bytes]]
    ) -> None:
        """What a decision wants here and is not there any more was committed."""
        for participant in decision.participants:
            is_here = participant.resource == rm.name and not decisions.is_settled(participant)
            if is_here and (decision.gtrid, participant.bqual) not in there:
                is_odd = participant.order == decisions.ROLLBACK
                state = decisions.HAZARD if is_odd else decisions.COMMITTED
                said = "it was not there when the operator's order came" if is_odd else ""
                xid = decisions.xid_of(decision.gtrid, participant.bqual)
                self._note(rm.name, xid, state, said)

    def _note(self, resource: str, xid: Xid, state: str, said: str) -> None:
        """Write down what became of a participant; forget the decision when all have committed."""
        with self._lock:
            told = self._node.request(wire.AskDecision(xid.gtrid))
            if told["state"] != "committed":
                return
            known = [
                _settled(p, state, said) if (p.resource, p.bqual) == (resource, xid.bqual) else p
                for p in decisions.read(xid.gtrid, told["participants"])
            ]
            if all(p.state == decisions.COMMITTED for p in known):
                self._node.request(wire.ForgetDecision(xid.gtrid))
            else:
                self._node.request(wire.NoteDecision(xid.gtrid, decisions.encode(known)))


_HEURISTIC = {
    xa.XA_HEURCOM: decisions.COMMITTED,
    xa.XA_HEURRB: decisions.ROLLED_BACK,
    xa.XA_HEURMIX: decisions.MIXED,
    xa.XA_HEURHAZ: decisions.HAZARD,
}


def _settled(participant: Participant, state: str, said: str) -> Participant:
    if decisions.is_settled(participant):
        return participant
    return Participant(participant.resource, participant.bqual, state, participant.order, said)
