"""The decision log: a coordinator's decision is durable, or it was never made."""

import pytest

from hms.engine.effects import Effects
from hms.engine.xa import decision_requests
from hms.engine.xa.decisions import IDENTITY
from hms.engine.xa.xa_codes import Code
from hms.errors.catalogue import DecisionNotFound, DecisionRefused
from tests.support.branch_rig import OTHER, SECOND, xid
from tpmon.xa import decisions

GTRID = b"transfer 1"


def _begin(rig, gtrid=GTRID, timeout_ms=0, connection=1):
    rig.branches.begin_global(connection, gtrid, timeout_ms, "bank", rig.now_ms)


def _decide(rig, gtrid=GTRID, xids=(), connection=1):
    return rig.run(lambda fx: rig.branches.decide(connection, gtrid, b"who", xids, rig.now_ms, fx))


def _ask(rig, gtrid=GTRID):
    return rig.branches.ask(gtrid, Effects())["state"]


def test_a_decision_outlives_a_crash_until_it_is_forgotten(rig):
    """Whoever finds a prepared branch asks, and must hear the same answer for ever."""
    _begin(rig)
    assert _ask(rig) == "active"
    assert _decide(rig).must_wait
    rig.start()
    assert _ask(rig) == "committed"

    rig.run(lambda fx: rig.branches.forget_decision(GTRID, fx))
    rig.start()

    assert _ask(rig) == "unknown"


def test_what_was_not_begun_cannot_be_decided(rig):
    """A crash of the node forgets what is active: then nobody may decide for it any more, because a
    recoverer may have rolled its branches back."""
    _begin(rig)
    rig.start()

    with pytest.raises(DecisionRefused):
        _decide(rig)


def test_decisions_that_nobody_forgets_are_refused_beyond_their_bytes(rig, monkeypatch):
    """They are in memory: 8,000 of 48 KiB had 390 MiB, and nothing counted them. One that is
    refused can be rolled back; what there is goes on, and one that is forgotten makes room."""
    monkeypatch.setattr(decision_requests, "DECISIONS_BYTES_MAX", 500)
    for number in range(3):
        _begin(rig, b"%d" % number)
        _decide(rig, b"%d" % number)
    _begin(rig)
    with pytest.raises(DecisionRefused, match="not forgotten"):
        _decide(rig)
    with pytest.raises(DecisionRefused, match="not forgotten"):
        rig.run(lambda fx: rig.branches.note(b"0", bytes(20), rig.now_ms, fx))
    rig.run(lambda fx: rig.branches.note(b"0", b"w", rig.now_ms, fx))

    rig.run(lambda fx: rig.branches.forget_decision(b"0", fx))
    _decide(rig)


def test_the_end_of_its_connection_ends_an_active_transaction(rig):
    """The same."""
    _begin(rig)
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))

    assert _ask(rig) == "unknown"


def test_nobody_else_decides(rig):
    """Only who began it knows that all have voted."""
    _begin(rig)

    with pytest.raises(DecisionRefused):
        _decide(rig, connection=SECOND)
    with pytest.raises(DecisionRefused):
        _begin(rig, connection=SECOND)


def test_a_transaction_whose_time_is_over_is_not_committed(rig):
    """Its branches may have been rolled back already."""
    _begin(rig, timeout_ms=100)
    rig.now_ms += 100

    with pytest.raises(DecisionRefused):
        _decide(rig)


def test_deciding_twice_is_deciding_once(rig):
    """The reply to the first one may have been lost."""
    _begin(rig)
    _decide(rig)
    before = len(rig.log)

    _decide(rig)
    _decide(rig, connection=SECOND)

    assert len(rig.log) == before


def test_a_decision_and_the_branches_here_are_one_record(rig):
    """HMS needs no vote of its own: it commits when it decides."""
    rig.sent_in_branch()
    _begin(rig)
    before = len(rig.log)

    _decide(rig, xids=[xid()])

    assert len(rig.log) == before + 1
    assert len(rig.browse().messages) == 1
    rig.start()
    assert len(rig.browse().messages) == 1
    assert _ask(rig) == "committed"


def test_a_refused_decision_changes_nothing(rig):
    """One branch that cannot be committed, and none is."""
    rig.sent_in_branch(xid(1))
    rig.begin(xid(2))
    _begin(rig)

    with pytest.raises(DecisionRefused):
        _decide(rig, xids=[xid(1), xid(2)])

    assert _ask(rig) == "active"
    assert rig.commit(xid(1), is_one_phase=True) == Code.OK


def test_a_decision_says_what_is_left_to_do(rig):
    """Its participants are noted again as they end; over a crash too."""
    _begin(rig)
    _decide(rig)
    rig.run(lambda fx: rig.branches.note(GTRID, b"one is left", rig.now_ms, fx))
    rig.start()

    page = rig.branches.decisions(0, 10, Effects())

    assert page["decisions"] == [[GTRID, b"one is left", 1000, False]]
    with pytest.raises(DecisionNotFound):
        rig.run(lambda fx: rig.branches.note(b"other", b"", rig.now_ms, fx))


def test_a_decision_is_its_makers_until_that_one_leaves(rig):
    """Recovery that went ahead of a living client would make its commit look like a stranger's."""
    _begin(rig)
    _decide(rig)
    assert _ask(rig) == "committing"
    assert rig.branches.decisions(0, 10, Effects())["decisions"][0][3]

    rig.branches.end_global(2, GTRID, rig.now_ms, Effects())
    assert _ask(rig) == "committing"
    rig.branches.end_global(1, GTRID, rig.now_ms, Effects())

    assert _ask(rig) == "committed"


def test_what_names_the_node_among_the_decisions_is_not_counted(rig):
    """Operators look at that count to see whether something waits."""
    assert decisions.IDENTITY == IDENTITY
    _begin(rig, IDENTITY)
    _decide(rig, IDENTITY)
    status = rig.engine.administer("status", {}, rig.now_ms, Effects())

    assert status["decisions"] == 0


def _left_by_a_service(rig, gtrid):
    """A branch of that transaction in which another client's session has worked."""
    name = (7).to_bytes(4, "big") + bytes([len(gtrid), 1]) + gtrid + b"s"
    assert rig.begin(name, connection=SECOND, session=OTHER) == Code.OK
    rig.send(1, connection=SECOND)
    assert rig.end(name, connection=SECOND, session=OTHER) == Code.OK
    return name


def _one_phase(rig, name, by):
    found = []
    rig.run(
        lambda fx: found.append(
            rig.branches.commit(name, rig.now_ms, fx, is_one_phase=True, is_again=False, by=by)
        )
    )
    return found[0].code


def test_the_coordinator_commits_the_only_branch_though_a_service_has_worked_in_it(rig):
    """It was told that there is no such branch, so the transaction was rolled back by its word, and
    the branch stayed until its server's end."""
    _begin(rig)
    name = _left_by_a_service(rig, GTRID)
    other = _left_by_a_service(rig, b"transfer 2")

    assert _one_phase(rig, other, 1) == Code.NOTA
    assert _one_phase(rig, name, 1) == Code.OK


@pytest.mark.parametrize("how", ["it ends it", "its connection ends"])
def test_what_services_have_left_ends_with_a_transaction_that_is_not_decided(rig, how):
    """Nobody else would end it: its messages were held until the server that worked there left."""
    _begin(rig)
    name = _left_by_a_service(rig, GTRID)
    other = _left_by_a_service(rig, b"transfer 2")

    if how == "it ends it":
        rig.run(lambda fx: rig.branches.end_global(1, GTRID, rig.now_ms, fx))
    else:
        rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))

    assert list(rig.engine.state.branches.by_xid) == [other]
    assert rig.rollback(name) == Code.NOTA
    assert rig.rollback(other) == Code.OK
    assert rig.engine.state.branches.live_of == {}


def test_a_service_that_works_on_in_a_transaction_that_is_over_is_told(rig):
    """Its branch would be left behind as well."""
    _begin(rig)
    name = (7).to_bytes(4, "big") + bytes([len(GTRID), 1]) + GTRID + b"s"
    assert rig.begin(name, connection=SECOND, session=OTHER) == Code.OK
    rig.run(lambda fx: rig.branches.end_global(1, GTRID, rig.now_ms, fx))

    assert rig.end(name, connection=SECOND, session=OTHER) == Code.RBROLLBACK
    assert rig.begin(name, connection=SECOND, session=OTHER) == Code.RBROLLBACK
    assert rig.engine.state.branches.by_xid == {}
    _begin(rig)
    assert rig.begin(name, connection=SECOND, session=OTHER) == Code.OK


def test_what_a_service_does_has_the_time_of_its_transaction(rig):
    """A client that hung kept its messages for as long as the server lived."""
    _begin(rig, timeout_ms=1000)
    name = _left_by_a_service(rig, GTRID)
    rig.now_ms += 2000
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))

    assert _one_phase(rig, name, 1) == Code.RBTIMEOUT
