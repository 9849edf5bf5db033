"""The coordinator: brings the branches of one global transaction to one outcome.

Phase one asks every participant to prepare, at the same time; those that only read vote so and are
done. Then the node decides, in its own log, and with the same record it commits its own branches,
which therefore need no prepare. Phase two carries the decision out. A single participant is
committed in one phase without any decision. One that cannot prepare at all (a last resource) is
committed after all others have prepared and before the decision: if the process dies just there,
it alone is committed, which its owner has accepted by configuring it so.

Who fails in phase two is finished by the node's recovery; what was finished by somebody else, or
otherwise than decided, is written beside the decision until an operator forgets it.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from hms.errors.catalogue import (
    TransactionRolledBack,
    TxFatal,
    TxHazard,
    TxHeuristicCommit,
    TxMixed,
)
from hms.errors.tree import HmsError
from hms.wire import xa_constants as xa
from tpmon.tx.decision_log import DecisionLog
from tpmon.tx.participant_steps import (
    Branch,
    Outcome,
    Pool,
    Tell,
    Vote,
    about,
    all_at_once,
    commit_branch,
    detach,
    raise_odd,
    roll_back,
    vote,
)
from tpmon.xa import decisions
from tpmon.xa.decisions import Participant

__all__ = ["Branch", "Coordinator", "Outcome"]

_finishers = Pool("hms-xa-finish")
"""Apart from the pool that they wait for."""


class Coordinator:
    """Ends one transaction; on_step is called at every step, for tests that let the process die;
    tell: for who traces it."""

    def __init__(
        self,
        log: DecisionLog,
        gtrid: bytes,
        on_step: Callable[[str], None] | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._log = log
        self._gtrid = gtrid
        self._on_step, self._tell = on_step or _nothing, tell

    # ---- commit

    def commit(
        self,
        branches: Sequence[Branch],
        register: Callable[[], None],
        *,
        is_waited: bool = True,
        is_known: bool = False,
    ) -> Outcome:
        """Commit all or roll all back; is_waited: return when all participants are done, else as
        soon as the decision is durable; is_known: the node has heard of the transaction already.

        TransactionRolledBack, TxMixed, TxHazard; TxFatal when the node did not answer.
        """
        if not branches or (len(branches) == 1 and not branches[0].is_prepared):
            if is_known:
                return self._end_without_decision(branches)
            return self._commit_one_phase(branches[0]) if branches else Outcome([])
        self._register(branches, register)
        voted = self._prepare(branches, self.roll_back)
        self._commit_last(voted)
        prepared = [b for b in voted if not (b.is_last or b.is_of_the_log)]
        with_decision = [b for b in voted if b.is_of_the_log]
        is_one = len(with_decision) == 1 and not any(b.is_last for b in voted)
        if not prepared and (is_one or not with_decision):
            return self._end_without_decision(with_decision)
        return self._decide_and_commit(prepared, with_decision, is_waited=is_waited)

    def _end_without_decision(self, left: Sequence[Branch]) -> Outcome:
        """There are no others, or they only read: the node has to hear that nobody will decide, or
        the transaction is active there, one more each time, until the connection ends."""
        try:
            return self._commit_one_phase(left[0]) if left else Outcome([])
        finally:
            with suppress(HmsError):
                self._log.end(self._gtrid)

    def _register(self, branches: Sequence[Branch], register: Callable[[], None]) -> None:
        """Before anything is prepared the node must know that somebody still may decide."""
        try:
            register()
        except HmsError as error:
            self.roll_back(branches)
            raise TransactionRolledBack(reason=str(error)) from error

    def _commit_one_phase(self, branch: Branch) -> Outcome:
        assert branch.rm is not None
        self._on_step("before commit")
        code = branch.rm.xa_commit(branch.xid, flags=xa.TMONEPHASE)
        self._on_step("after commit")
        self._told("commit", [branch], [xa.code_name(code)])
        if code == xa.XA_OK:
            return Outcome([])
        reason = f"{branch.resource} answered {xa.code_name(code)}: {branch.rm.reason}"
        if code in {xa.XAER_RMFAIL, xa.XA_HEURHAZ}:
            raise TxHazard(gtrid=decisions.printed(self._gtrid), detail=reason)
        if code == xa.XA_HEURMIX:
            raise TxMixed(gtrid=decisions.printed(self._gtrid), detail=reason)
        if code < 0:
            branch.rm.xa_rollback(branch.xid)
        raise TransactionRolledBack(reason=reason)

    def _prepare(
        self, branches: Sequence[Branch], roll_back: Callable[[Sequence[Branch]], None]
    ) -> list[Branch]:
        """Those that are to be committed; all are rolled back when one says no."""
        asked = [b for b in branches if not (b.is_prepared or b.is_last or b.is_of_the_log)]
        self._on_step("before prepare")
        votes = all_at_once([partial(vote, b) for b in asked])
        self._on_step("after prepare")
        self._told("prepare", asked, [xa.code_name(one.code) for one in votes])
        readers = {id(v.branch) for v in votes if v.code == xa.XA_RDONLY}
        for one in votes:
            one.branch.is_prepared = one.code == xa.XA_OK
        no = next((v for v in votes if v.code not in {xa.XA_OK, xa.XA_RDONLY}), None)
        left = [b for b in branches if id(b) not in readers]
        if no is not None:
            roll_back([b for b in left if not xa.is_rolled_back(_code_of(votes, b))])
            said = f"{no.branch.resource} answered {xa.code_name(no.code)}: {no.reason}"
            raise TransactionRolledBack(reason=said)
        return left

    def _commit_last(self, voted: Sequence[Branch]) -> None:
        """Commit what cannot prepare; the others are rolled back when it refuses."""
        for branch in [b for b in voted if b.is_last]:
            assert branch.rm is not None
            self._on_step("before last")
            code = branch.rm.xa_commit(branch.xid, flags=xa.TMONEPHASE)
            self._on_step("after last")
            self._told("commit", [branch], [xa.code_name(code)])
            if code == xa.XA_OK:
                continue
            said = f"{branch.resource} answered {xa.code_name(code)}: {branch.rm.reason}"
            self.roll_back([b for b in voted if b is not branch])
            if code == xa.XAER_RMFAIL:
                raise TxHazard(gtrid=decisions.printed(self._gtrid), detail=said)
            raise TransactionRolledBack(reason=said)

    def _decide_and_commit(
        self, prepared: list[Branch], with_decision: list[Branch], *, is_waited: bool
    ) -> Outcome:
        participants = [Participant(b.resource, b.xid.bqual) for b in prepared]
        packed = [b.xid.pack() for b in with_decision]
        self._on_step("before decision")
        try:
            self._log.decide(self._gtrid, decisions.encode(participants), packed)
        except TxFatal:  # nobody here may touch them, and recovery must be able to
            detach([*prepared, *with_decision])
            raise
        except HmsError as error:
            self.roll_back([*prepared, *with_decision])
            raise TransactionRolledBack(reason=str(error)) from error
        detach(with_decision)
        self._on_step("after decision")
        if self._tell is not None:
            self._tell("decision", outcome="commit")
        self._told("commit", with_decision, [decisions.COMMITTED] * len(with_decision))
        if not is_waited:
            _finishers.submit(self._finish_quietly, prepared, participants)
            return Outcome(participants)
        return self._finish(prepared, participants)

    def _finish_quietly(self, prepared: list[Branch], participants: list[Participant]) -> None:
        with suppress(HmsError):  # nobody waits for it: it is written beside the decision
            self._finish(prepared, participants)

    def _finish(self, prepared: list[Branch], participants: list[Participant]) -> Outcome:
        """Phase two."""
        self._on_step("before commit")
        states = all_at_once([partial(commit_branch, b) for b in prepared])
        self._on_step("after commit")
        self._told("commit", prepared, [state for state, _ in states])
        done = [
            Participant(p.resource, p.bqual, state, "", note)
            for p, (state, note) in zip(participants, states, strict=True)
        ]
        return Outcome(self._conclude(done))

    def _conclude(self, done: list[Participant]) -> list[Participant]:
        """Forget the decision, or write down what is left; TxMixed, TxHazard."""
        if all(p.state == decisions.COMMITTED for p in done):
            self._on_step("before forget")
            with suppress(HmsError):  # recovery does it then
                self._log.forget(self._gtrid)
            self._on_step("after forget")
            return done
        if not self._is_ours():
            return [p if p.state == decisions.COMMITTED else _left(p) for p in done]
        with suppress(HmsError):  # recovery finds out what it can
            self._log.note(self._gtrid, decisions.encode(done))
        with suppress(HmsError):  # else the end of the connection tells it
            self._log.end(self._gtrid)
        raise_odd(self._gtrid, done)
        return done

    def _is_ours(self) -> bool:
        """Whether nobody else has carried the decision out meanwhile: recovery takes it over when
        our connection is lost."""
        with suppress(HmsError):
            return self._log.state(self._gtrid) == "committing"
        return False

    # ---- a service's part

    def prepare_part(self, branches: Sequence[Branch]) -> list[Branch]:
        """Prepare what a service did, but do not decide; those that are left to commit."""
        last = next((b for b in branches if b.is_last), None)
        if last is not None:
            self.roll_back_part(branches)
            raise TransactionRolledBack(reason=f"{last.resource} cannot prepare in a service")
        return self._prepare(branches, self.roll_back_part)

    def roll_back_part(self, branches: Sequence[Branch]) -> None:
        """Roll back what a service did; the transaction itself goes on to its own end."""
        all_at_once([partial(roll_back, b) for b in branches])

    def _told(self, what: str, branches: Sequence[Branch], outcomes: Sequence[str]) -> None:
        """Each branch, and how it ended."""
        if self._tell is not None:
            for branch, outcome in zip(branches, outcomes, strict=True):
                self._tell(what, **about(branch), outcome=outcome)

    # ---- rollback

    def roll_back(self, branches: Sequence[Branch], *, is_known: bool = True) -> None:
        """Roll all back; TxHeuristicCommit, TxMixed or TxHazard when one was completed otherwise.
        is_known: the node has heard of the transaction.

        Who is not reached is rolled back by its own database, or by recovery.
        """
        reached = [b for b in branches if b.rm is not None]
        codes = all_at_once([partial(roll_back, b) for b in reached])
        self._told("rollback", reached, [xa.code_name(code) for code in codes])
        if is_known:
            with suppress(HmsError):
                self._log.end(self._gtrid)
        odd = {xa.XA_HEURCOM: TxHeuristicCommit, xa.XA_HEURMIX: TxMixed, xa.XA_HEURHAZ: TxHazard}
        for branch, code in zip(reached, codes, strict=True):
            if code in odd:
                detail = f"{branch.resource} answered {xa.code_name(code)}"
                raise odd[code](gtrid=decisions.printed(self._gtrid), detail=detail)


def _code_of(votes: Iterable[Vote], branch: Branch) -> int:
    return next((v.code for v in votes if v.branch is branch), xa.XA_OK)


def _left(participant: Participant) -> Participant:
    """One that recovery goes on with."""
    return Participant(participant.resource, participant.bqual)


def _nothing(_: str) -> None:
    """No step is told."""
