"""Behaviours of a resource manager: suspend and join, recovery, heuristics. Each is a sentence."""

import os
from typing import Any

from hms.errors.catalogue import XaError
from hms.wire import xa_constants as xa
from hms.wire.xid import Xid
from tpmon.xa.behaviour_bench import (
    Bench,
    behaviour,
    expect,
    new_mark,
    new_xid,
    prepared,
    until_free,
    worked,
)
from tpmon.xa.resource import scan


@behaviour("suspend")
def a_suspended_branch_goes_on_when_it_is_resumed(bench: Bench, rm: Any) -> None:
    """tpsuspendtx() leaves one transaction for a while, also to begin another."""
    xid, first, second = new_xid(), new_mark(), new_mark()
    expect(rm.xa_start(xid), xa.XA_OK)
    bench.work(rm, xid, first)
    expect(rm.xa_end(xid, flags=xa.TMSUSPEND), xa.XA_OK)
    expect(rm.xa_prepare(xid), xa.XAER_PROTO)
    between, third = worked(bench, rm)
    expect(rm.xa_commit(between, flags=xa.TMONEPHASE), xa.XA_OK)
    expect(rm.xa_start(xid, flags=xa.TMRESUME), xa.XA_OK)
    bench.work(rm, xid, second)
    expect(rm.xa_end(xid), xa.XA_OK)
    assert {first, second, third} & bench.marks() == {third}
    expect(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XA_OK)
    assert {first, second, third} <= bench.marks()


@behaviour("join")
def a_branch_is_joined_after_its_work_ended(bench: Bench, rm: Any) -> None:
    """Several pieces of work of one transaction share one branch, and one outcome."""
    xid, first = worked(bench, rm)
    second = new_mark()
    expect(rm.xa_start(xid, flags=xa.TMJOIN), xa.XA_OK)
    bench.work(rm, xid, second)
    expect(rm.xa_end(xid), xa.XA_OK)
    expect(rm.xa_prepare(xid), xa.XA_OK)
    assert not {first, second} & bench.marks()
    expect(rm.xa_commit(xid), xa.XA_OK)
    assert {first, second} <= bench.marks()


@behaviour()
def flags_that_do_not_belong_are_invalid(bench: Bench, rm: Any) -> None:
    """XAER_INVAL, and nothing changed."""
    xid = new_xid()
    expect(rm.xa_start(xid, flags=xa.TMONEPHASE), xa.XAER_INVAL)
    expect(rm.xa_start(xid, flags=xa.TMJOIN | xa.TMRESUME), xa.XAER_INVAL)
    expect(rm.xa_start(xid), xa.XA_OK)
    bench.work(rm, xid, new_mark())
    expect(rm.xa_end(xid, flags=xa.TMJOIN), xa.XAER_INVAL)
    expect(rm.xa_end(xid), xa.XA_OK)
    expect(rm.xa_commit(xid, flags=xa.TMJOIN), xa.XAER_INVAL)
    expect(rm.xa_rollback(xid), xa.XA_OK)


@behaviour("read_only")
def what_changed_nothing_votes_read_only(bench: Bench, rm: Any) -> None:
    """XA_RDONLY ends the branch: it needs no second phase."""
    xid = new_xid()
    expect(rm.xa_start(xid), xa.XA_OK)
    bench.read(rm, xid)
    expect(rm.xa_end(xid), xa.XA_OK)
    expect(rm.xa_prepare(xid), xa.XA_RDONLY)
    expect(rm.xa_commit(xid), xa.XAER_NOTA)
    assert xid not in set(scan(rm))


@behaviour()
def an_xid_of_any_form_is_found_and_finished(bench: Bench, rm: Any) -> None:
    """Databases print a printable, a binary, a quoted and a halved one in different ways."""
    xids = [
        Xid(format_id, os.urandom(6).hex().encode() + gtrid, bqual)
        for format_id in (0, 1, 0x484D53, 2**31 - 1)
        for gtrid, bqual in _PARTS
    ]
    marks = set()
    for xid in xids:
        marks.add(worked(bench, rm, xid)[1])
        expect(rm.xa_prepare(xid), xa.XA_OK)
    other = bench.open()
    assert set(xids) <= set(scan(other))
    for number, xid in enumerate(xids):
        is_commit = number % 2 == 0
        expect(_finished_by(other, xid, is_commit=is_commit), xa.XA_RETRY)
        rm.detach(xid)
        done = until_free(other.xa_commit if is_commit else other.xa_rollback, xid)
        assert done in {xa.XA_OK, xa.XAER_NOTA}, xa.code_name(done)
    assert not set(xids) & set(scan(other))
    assert len(marks & bench.marks()) == len(xids) // 2


_PARTS = (
    (b"printed", b"part"),
    (b"printed", b""),
    (b"it's \\ 100%", b'"q"'),
    (b"\x00\xff\x80", b"\x00"),
    (b"\n", b"\x7f"),
    ("\u00e9".encode(), "\u00fc".encode()),
    (b"g" * 52, b"b" * 64),
)


def _finished_by(other: Any, xid: Xid, *, is_commit: bool) -> int:
    """XA_RETRY, or XA_OK where another session need not let go first; never XAER_NOTA."""
    code: int = other.xa_commit(xid) if is_commit else other.xa_rollback(xid)
    return xa.XA_RETRY if code == xa.XA_OK else code


@behaviour()
def another_process_finds_and_commits_a_prepared_branch(bench: Bench, rm: Any) -> None:
    """That is what recovery is made of."""
    xid, mark = prepared(bench, rm)
    other = bench.open()
    assert xid in set(scan(other))
    rm.detach(xid)
    expect(until_free(other.xa_commit, xid), xa.XA_OK)
    assert mark in bench.marks()
    assert xid not in set(scan(other))


@behaviour()
def another_process_rolls_a_prepared_branch_back(bench: Bench, rm: Any) -> None:
    """Presumed abort: nobody decided for it."""
    xid, mark = prepared(bench, rm)
    other = bench.open()
    rm.detach(xid)
    expect(until_free(other.xa_rollback, xid), xa.XA_OK)
    assert mark not in bench.marks()
    expect(other.xa_rollback(xid), xa.XAER_NOTA)


@behaviour()
def what_is_finished_is_not_known_any_more(bench: Bench, rm: Any) -> None:
    """A second order for the same branch changes nothing."""
    xid, mark = prepared(bench, rm)
    expect(rm.xa_commit(xid), xa.XA_OK)
    expect(rm.xa_rollback(xid), xa.XAER_NOTA)
    assert mark in bench.marks()


@behaviour()
def branches_of_one_transaction_have_outcomes_of_their_own(bench: Bench, rm: Any) -> None:
    """Gtrid and bqual together are the name."""
    first, one = worked(bench, rm)
    second, two = worked(bench, rm, first.branch(b"\x02"))
    expect(rm.xa_prepare(first), xa.XA_OK)
    expect(rm.xa_rollback(second), xa.XA_OK)
    expect(rm.xa_commit(first), xa.XA_OK)
    assert {one, two} & bench.marks() == {one}


@behaviour()
def every_byte_of_a_name_comes_back(bench: Bench, rm: Any) -> None:
    """A name that came back changed would be an orphan for ever."""
    xids = [
        Xid(0, bytes(range(64)), bytes(range(192, 256))),
        Xid(2**31 - 1, b"'\\\"\x00%s--" + os.urandom(8), b""),
    ]
    for xid in xids:
        worked(bench, rm, xid)
        expect(rm.xa_prepare(xid), xa.XA_OK)
    found = set(scan(bench.open()))
    for xid in xids:
        expect(rm.xa_rollback(xid), xa.XA_OK)
    assert set(xids) <= found


@behaviour()
def a_recover_scan_comes_in_pages(bench: Bench, rm: Any) -> None:
    """Each branch once, whatever the page; fewer than asked for ends the scan."""
    wanted = [prepared(bench, rm)[0] for _ in range(7)]
    for page in (1, 3, 7, 100):
        found = [xid for xid in scan(rm, page) if xid in wanted]
        assert sorted(found) == sorted(wanted)
    for xid in wanted:
        expect(rm.xa_rollback(xid), xa.XA_OK)


@behaviour()
def a_scan_that_was_not_begun_does_not_go_on(bench: Bench, rm: Any) -> None:
    """XAER_INVAL (X/Open XA, xa_recover), as for a count that asks for nothing."""
    del bench
    rm.xa_recover(10, flags=xa.TMSTARTRSCAN | xa.TMENDRSCAN)
    for count, flags in ((10, 0), (10, xa.TMENDRSCAN), (0, xa.TMSTARTRSCAN), (-1, xa.TMSTARTRSCAN)):
        try:
            rm.xa_recover(count, flags=flags)
        except XaError as error:
            expect(error.xa_code, xa.XAER_INVAL)
        else:
            raise AssertionError(f"{count}, {flags:#x}: XAER_INVAL is not raised")


@behaviour()
def it_is_not_closed_while_work_is_going_on(bench: Bench, rm: Any) -> None:
    """XAER_PROTO; a prepared branch is no work that is going on."""
    xid, _ = worked(bench, rm)
    expect(rm.xa_close(), xa.XAER_PROTO)
    expect(rm.xa_prepare(xid), xa.XA_OK)
    expect(rm.xa_close(), xa.XA_OK)
    other = bench.open()
    expect(until_free(other.xa_rollback, xid), xa.XA_OK)


@behaviour("heuristics")
def what_an_operator_committed_is_told_until_it_is_forgotten(bench: Bench, rm: Any) -> None:
    """XA_HEURCOM: the transaction manager must hear that its rollback did not happen."""
    xid, mark = prepared(bench, rm)
    bench.complete(xid, is_commit=True)
    assert mark in bench.marks()
    assert xid in set(scan(rm))
    expect(rm.xa_rollback(xid), xa.XA_HEURCOM)
    expect(rm.xa_rollback(xid), xa.XA_HEURCOM)
    expect(rm.xa_forget(xid), xa.XA_OK)
    expect(rm.xa_rollback(xid), xa.XAER_NOTA)


@behaviour("heuristics")
def what_an_operator_rolled_back_is_told_until_it_is_forgotten(bench: Bench, rm: Any) -> None:
    """XA_HEURRB: the transaction manager must hear that its commit did not happen."""
    xid, mark = prepared(bench, rm)
    bench.complete(xid, is_commit=False)
    assert mark not in bench.marks()
    expect(rm.xa_commit(xid), xa.XA_HEURRB)
    expect(rm.xa_forget(xid), xa.XA_OK)
    expect(rm.xa_commit(xid), xa.XAER_NOTA)


@behaviour()
def what_a_hand_finished_is_not_taken_for_an_error(bench: Bench, rm: Any) -> None:
    """A branch that another transaction manager, or a hand, finished answers XAER_NOTA."""
    xid, _ = prepared(bench, rm)
    other = bench.open()
    rm.detach(xid)
    expect(until_free(other.xa_rollback, xid), xa.XA_OK)
    expect(rm.xa_commit(xid), xa.XAER_NOTA)
