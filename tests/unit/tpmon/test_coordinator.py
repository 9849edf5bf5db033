"""The coordinator, step by step, over scripted resource managers and a log in memory."""

import pytest

from hms.errors.catalogue import (
    DecisionRefused,
    TransactionRolledBack,
    TxFatal,
    TxHazard,
    TxHeuristicCommit,
    TxMixed,
)
from hms.wire import xa_constants as xa
from tpmon.tx.coordinator import Coordinator
from tpmon.tx.participant_steps import Branch
from tpmon.xa import decisions

GTRID = b"transaction"


class Resource:
    """Says what it is told to say, and remembers what it was asked."""

    def __init__(self, name, journal, *, is_last=False, **codes):
        self.name, self.reason, self.is_last_resource = name, "as scripted", is_last
        self._journal, self._codes = journal, codes

    def _say(self, what):
        self._journal.append(f"{what} {self.name}")
        code = self._codes.get(what, xa.XA_OK)
        return code.pop(0) if isinstance(code, list) else code

    def xa_prepare(self, _):
        return self._say("prepare")

    def xa_commit(self, _, flags=0):
        return self._say("one" if flags else "commit")

    def xa_rollback(self, _):
        return self._say("rollback")

    def xa_forget(self, _):
        return self._say("forget")

    def detach(self, _):
        self._say("detach")


class Log:
    """A decision log in memory."""

    node_uid = 1

    def __init__(self, journal):
        self.journal, self.refuses, self.kept = journal, None, {}
        self.is_taken_over = False

    def begin(self, *_):
        self.journal.append("begin")

    def decide(self, gtrid, participants, branches):
        self.journal.append(f"decide {len(decisions.decode(participants))}+{len(branches)}")
        if self.refuses is not None:
            raise self.refuses
        self.kept[gtrid] = decisions.decode(participants)

    def note(self, gtrid, participants):
        self.kept[gtrid] = decisions.decode(participants)

    def forget(self, gtrid):
        self.journal.append("forget")
        del self.kept[gtrid]

    def end(self, _):
        self.journal.append("end")

    def state(self, _):
        return "committed" if self.is_taken_over else "committing"


class Desk:
    """A coordinator with its log."""

    def __init__(self):
        self.journal = []
        self.log = Log(self.journal)
        self.coordinator = Coordinator(self.log, GTRID)

    def branch(self, name, *, of_log=False, **codes):
        rm = Resource(name, self.journal, **codes)
        xid = decisions.xid_of(GTRID, name.encode())
        return Branch(name, xid, rm, is_of_the_log=of_log)

    def commit(self, *branches):
        return self.coordinator.commit(branches, lambda: self.log.begin(GTRID, 0))


@pytest.fixture
def desk():
    return Desk()


def test_all_prepare_before_the_decision_and_commit_after_it(desk):
    """That order is the whole of two-phase commit."""
    desk.commit(desk.branch("a"), desk.branch("b"))

    assert desk.journal[0] == "begin"
    assert sorted(desk.journal[1:3]) == ["prepare a", "prepare b"]
    assert desk.journal[3] == "decide 2+0"
    assert sorted(desk.journal[4:6]) == ["commit a", "commit b"]
    assert desk.journal[6:] == ["forget"]


def test_one_participant_needs_neither_vote_nor_decision(desk):
    """The one-phase optimisation."""
    desk.commit(desk.branch("a"))

    assert desk.journal == ["one a"]


@pytest.mark.parametrize("count", [0, 1])
def test_a_transaction_that_the_node_knows_ends_there_without_a_decision_too(desk, count):
    """It has called services, which left nothing; the node held it until its connection ended."""
    branches = [desk.branch("a")][:count]
    desk.coordinator.commit(branches, lambda: None, is_known=True)

    assert desk.journal == [*["one a"][:count], "end"]


def test_who_only_read_is_left_out_of_the_second_phase(desk):
    """A read-only vote ends the branch; the node hears that there is nothing to decide, or it has
    one more active transaction until the connection ends."""
    desk.commit(desk.branch("a", prepare=xa.XA_RDONLY), desk.branch("b", prepare=xa.XA_RDONLY))

    assert sorted(desk.journal[:3]) == ["begin", "prepare a", "prepare b"]
    assert desk.journal[3:] == ["end"]


def test_the_nodes_own_branch_is_committed_with_the_decision(desk):
    """One record, one sync."""
    desk.commit(desk.branch("a"), desk.branch("hms", of_log=True))

    assert desk.journal[:3] == ["begin", "prepare a", "decide 1+1"]
    assert desk.journal[3:] == ["detach hms", "commit a", "forget"]


def test_only_the_nodes_own_branch_left_is_committed_in_one_phase(desk):
    """The others have only read."""
    desk.commit(desk.branch("a", prepare=xa.XA_RDONLY), desk.branch("hms", of_log=True))

    assert desk.journal == ["begin", "prepare a", "one hms", "end"]


def test_the_node_hears_of_the_end_also_where_its_own_branch_is_refused(desk):
    """Whatever came of it, nobody will decide."""
    reads = desk.branch("a", prepare=xa.XA_RDONLY)
    with pytest.raises(TransactionRolledBack):
        desk.commit(reads, desk.branch("hms", of_log=True, one=xa.XA_RBROLLBACK))

    assert desk.journal[-1] == "end"


def test_one_veto_rolls_all_back(desk):
    """Those that said yes, too."""
    with pytest.raises(TransactionRolledBack, match="b answered XA_RBDEADLOCK"):
        desk.commit(desk.branch("a"), desk.branch("b", prepare=xa.XA_RBDEADLOCK))

    assert "rollback a" in desk.journal
    assert "rollback b" not in desk.journal
    assert not any(word.startswith("decide") for word in desk.journal)
    assert desk.journal[-1] == "end"


def test_a_last_resource_goes_between_votes_and_decision(desk):
    """Later, and a crash before it could lose it; earlier, and a veto could not undo it."""
    desk.commit(desk.branch("a"), desk.branch("lite", is_last=True))

    assert desk.journal == ["begin", "prepare a", "one lite", "decide 1+0", "commit a", "forget"]


def test_a_last_resource_that_refuses_rolls_all_back(desk):
    """Nothing is decided yet."""
    with pytest.raises(TransactionRolledBack, match="lite"):
        desk.commit(desk.branch("a"), desk.branch("lite", is_last=True, one=xa.XA_RBINTEGRITY))

    assert "rollback a" in desk.journal


def test_a_last_resource_that_is_lost_at_its_commit_is_a_hazard(desk):
    """Nobody knows what it did."""
    with pytest.raises(TxHazard, match="lite"):
        desk.commit(desk.branch("a"), desk.branch("lite", is_last=True, one=xa.XAER_RMFAIL))


def test_a_refused_decision_rolls_all_back(desk):
    """The node was down in between, so it does not know the transaction any more."""
    desk.log.refuses = DecisionRefused(gtrid="x", reason="it is not active")
    with pytest.raises(TransactionRolledBack, match="not active"):
        desk.commit(desk.branch("a"), desk.branch("b"))

    assert {"rollback a", "rollback b"} <= set(desk.journal)


def test_a_decision_without_an_answer_leaves_all_to_recovery(desk):
    """Whatever is done now could be the wrong thing."""
    desk.log.refuses = TxFatal(what="tx_commit()", gtrid="x", detail="no answer")
    with pytest.raises(TxFatal):
        desk.commit(desk.branch("a"), desk.branch("b"))

    assert not {"rollback a", "commit a"} & set(desk.journal)
    assert {"detach a", "detach b"} <= set(desk.journal)


def test_a_commit_that_is_lost_is_repeated_and_its_nota_is_a_yes(desk):
    """The answer was lost, not the commit."""
    outcome = desk.commit(desk.branch("a", commit=[xa.XAER_RMFAIL, xa.XAER_NOTA]), desk.branch("b"))

    assert not outcome.pending
    assert desk.journal[-1] == "forget"


def test_who_is_down_in_the_second_phase_is_left_to_recovery(desk):
    """The decision stands; the application does not wait for ever."""
    outcome = desk.commit(desk.branch("a", commit=xa.XAER_RMFAIL), desk.branch("b"))

    assert [one.resource for one in outcome.pending] == ["a"]
    assert [one.state for one in desk.log.kept[GTRID]] == ["prepared", "committed"]
    assert desk.journal[-1] == "end"


def test_what_somebody_finished_by_hand_is_a_hazard_and_is_written_down(desk):
    """XAER_NOTA of a branch that has voted."""
    with pytest.raises(TxHazard, match="a: hazard"):
        desk.commit(desk.branch("a", commit=xa.XAER_NOTA), desk.branch("b"))

    assert [one.state for one in desk.log.kept[GTRID]] == ["hazard", "committed"]


def test_what_recovery_finished_is_no_hazard(desk):
    """It takes over when the connection was lost, and may be faster."""
    desk.log.is_taken_over = True
    outcome = desk.commit(desk.branch("a", commit=xa.XAER_NOTA), desk.branch("b"))

    assert [one.resource for one in outcome.pending] == ["a"]
    assert [one.state for one in desk.log.kept[GTRID]] == ["prepared", "prepared"]


def test_a_heuristic_rollback_is_mixed(desk):
    """One did not do what was decided."""
    with pytest.raises(TxMixed, match="a: rolled back"):
        desk.commit(desk.branch("a", commit=xa.XA_HEURRB), desk.branch("b"))


def test_a_heuristic_commit_that_agrees_is_forgotten(desk):
    """An operator was only early."""
    desk.commit(desk.branch("a", commit=xa.XA_HEURCOM), desk.branch("b"))

    assert "forget a" in desk.journal
    assert desk.journal[-1] == "forget"


def test_a_heuristic_commit_against_a_rollback_is_told(desk):
    """TX_COMMITTED."""
    branches = [desk.branch("a", rollback=xa.XA_HEURCOM), desk.branch("b")]
    with pytest.raises(TxHeuristicCommit, match="a answered XA_HEURCOM"):
        desk.coordinator.roll_back(branches)

    assert "rollback b" in desk.journal
