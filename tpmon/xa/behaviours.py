"""Behaviours of a resource manager: outcomes, order, names. Each is a sentence."""

from typing import Any

from hms.wire import xa_constants as xa
from tpmon.xa.behaviour_bench import Bench, behaviour, expect, new_mark, new_xid, prepared, worked
from tpmon.xa.resource import scan


@behaviour()
def a_prepared_branch_shows_nothing_until_it_is_committed(bench: Bench, rm: Any) -> None:
    """Otherwise a transaction could be seen in one place and not yet in the other."""
    xid, mark = prepared(bench, rm)
    assert mark not in bench.marks()
    expect(rm.xa_commit(xid), xa.XA_OK)
    assert mark in bench.marks()


@behaviour()
def a_prepared_branch_can_be_rolled_back(bench: Bench, rm: Any) -> None:
    """Another participant may say no after this one said yes."""
    xid, mark = prepared(bench, rm)
    expect(rm.xa_rollback(xid), xa.XA_OK)
    assert mark not in bench.marks()
    assert xid not in set(scan(rm))


@behaviour()
def a_branch_commits_in_one_phase(bench: Bench, rm: Any) -> None:
    """A transaction with one participant needs no prepare."""
    xid, mark = worked(bench, rm)
    expect(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XA_OK)
    assert mark in bench.marks()


@behaviour()
def a_branch_is_rolled_back_before_it_is_prepared(bench: Bench, rm: Any) -> None:
    """The usual end of work that failed."""
    xid, mark = worked(bench, rm)
    expect(rm.xa_rollback(xid), xa.XA_OK)
    assert mark not in bench.marks()


@behaviour()
def what_is_not_known_is_nota(bench: Bench, rm: Any) -> None:
    """XAER_NOTA tells a transaction manager that there is nothing left to do."""
    del bench
    xid = new_xid()
    expect(rm.xa_end(xid), xa.XAER_NOTA)
    expect(rm.xa_prepare(xid), xa.XAER_NOTA)
    expect(rm.xa_commit(xid), xa.XAER_NOTA)
    expect(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XAER_NOTA)
    expect(rm.xa_rollback(xid), xa.XAER_NOTA)
    expect(rm.xa_start(xid, flags=xa.TMJOIN), xa.XAER_NOTA)
    expect(rm.xa_start(xid, flags=xa.TMRESUME), xa.XAER_NOTA)
    expect(rm.xa_forget(xid), xa.XAER_NOTA)


@behaviour()
def a_branch_cannot_begin_twice(bench: Bench, rm: Any) -> None:
    """XAER_DUPID: two pieces of work under one name could not be told apart."""
    xid, _ = worked(bench, rm)
    expect(rm.xa_start(xid), xa.XAER_DUPID)
    expect(rm.xa_rollback(xid), xa.XA_OK)


@behaviour()
def a_prepared_name_is_not_given_twice(bench: Bench, rm: Any) -> None:
    """XAER_DUPID, at the latest when the second one is prepared, from another process too."""
    xid, mark = prepared(bench, rm)
    other = bench.open()
    code = other.xa_start(xid)
    if code == xa.XA_OK:
        bench.work(other, xid, new_mark())
        expect(other.xa_end(xid), xa.XA_OK)
        code = other.xa_prepare(xid)
    expect(code, xa.XAER_DUPID)
    expect(rm.xa_commit(xid), xa.XA_OK)
    assert mark in bench.marks()


@behaviour()
def calls_out_of_order_are_refused_and_change_nothing(bench: Bench, rm: Any) -> None:
    """XAER_PROTO: a mistake must not cost the branch."""
    xid, mark = new_xid(), new_mark()
    expect(rm.xa_start(xid), xa.XA_OK)
    expect(rm.xa_prepare(xid), xa.XAER_PROTO)
    expect(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XAER_PROTO)
    bench.work(rm, xid, mark)
    expect(rm.xa_end(xid), xa.XA_OK)
    expect(rm.xa_end(xid), xa.XAER_PROTO)
    expect(rm.xa_commit(xid), xa.XAER_PROTO)
    expect(rm.xa_start(xid, flags=xa.TMRESUME), xa.XAER_PROTO)
    expect(rm.xa_prepare(xid), xa.XA_OK)
    expect(rm.xa_prepare(xid), xa.XAER_PROTO)
    expect(rm.xa_commit(xid), xa.XA_OK)
    assert mark in bench.marks()


@behaviour()
def a_prepared_branch_does_not_commit_in_one_phase(bench: Bench, rm: Any) -> None:
    """The decision about it is already somebody else's."""
    xid, _ = prepared(bench, rm)
    expect(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XAER_PROTO)
    expect(rm.xa_rollback(xid), xa.XA_OK)


@behaviour()
def work_that_failed_can_only_be_rolled_back(bench: Bench, rm: Any) -> None:
    """TMFAIL is the application's veto."""
    xid, mark = new_xid(), new_mark()
    expect(rm.xa_start(xid), xa.XA_OK)
    bench.work(rm, xid, mark)
    expect(rm.xa_end(xid, flags=xa.TMFAIL), xa.XA_OK)
    code = rm.xa_prepare(xid)
    assert xa.is_rolled_back(code), xa.code_name(code)
    assert rm.xa_rollback(xid) in {xa.XA_OK, xa.XAER_NOTA}
    assert mark not in bench.marks()
