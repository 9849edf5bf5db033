"""The behaviours that a resource manager must show, one by one; run them over your own adapter.

    @pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda b: b.__name__)
    def test_my_database(bench, behaviour):
        behaviour.run(bench)

A Bench says how to do a piece of work in a branch and how to see what is committed. What a resource
manager cannot do it leaves out of `able`; such behaviours then pass as not applicable.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from field_buffer.catalogue import XaError
from tpmon.xa import constants as xa
from tpmon.xa.resource import ResourceManager, scan
from tpmon.xa.xid import Xid

__all__ = ["ABILITIES", "BEHAVIOURS", "Behaviour", "Bench"]

ABILITIES = frozenset(("read_only", "suspend", "join", "heuristics"))
FORMAT_ID = 77
_numbers = itertools.count(1)


class Bench(Protocol):
    """What the behaviours need of the adapter's author.

    able: which of ABILITIES it has.
    """

    able: frozenset[str]

    def open(self) -> ResourceManager:
        """One more view of the same resource manager, as another process would have it."""

    def work(self, rm: ResourceManager, xid: Xid, mark: int) -> None:
        """Leave a mark that nobody else leaves, inside an active branch."""

    def read(self, rm: ResourceManager, xid: Xid) -> None:
        """Look without changing anything."""

    def marks(self) -> set[int]:
        """The marks that are committed."""

    def complete(self, xid: Xid, *, is_commit: bool) -> None:
        """What an operator does by hand to a prepared branch (only with "heuristics")."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One of them; needs: the ability without which it does not apply."""

    check: "Callable[[Bench, ResourceManager], None]"
    needs: str = ""

    @property
    def name(self) -> str:
        """Its sentence."""
        return self.check.__name__

    def run(self, bench: Bench) -> bool:
        """Show it; False when it does not apply. AssertionError when it is not shown."""
        if self.needs and self.needs not in bench.able:
            return False
        rm = bench.open()
        self.check(bench, rm)
        return True


_FOUND: list[Behaviour] = []


def _behaviour(needs: str = "") -> Callable[[Any], Any]:
    def keep(check: Callable[[Bench, ResourceManager], None]) -> Any:
        _FOUND.append(Behaviour(check, needs))
        return check

    return keep


def _xid(bqual: bytes = b"\x01") -> Xid:
    return Xid(FORMAT_ID, os.urandom(16), bqual)


def _mark() -> int:
    return next(_numbers) * 1_000_003 + os.getpid()


def _is(code: int, wanted: int) -> None:
    assert code == wanted, f"{xa.code_name(code)} instead of {xa.code_name(wanted)}"


def _worked(bench: Bench, rm: ResourceManager, xid: Xid | None = None) -> tuple[Xid, int]:
    """A branch with one mark, ended."""
    xid, mark = xid or _xid(), _mark()
    _is(rm.xa_start(xid), xa.XA_OK)
    bench.work(rm, xid, mark)
    _is(rm.xa_end(xid), xa.XA_OK)
    return xid, mark


def _prepared(bench: Bench, rm: ResourceManager) -> tuple[Xid, int]:
    xid, mark = _worked(bench, rm)
    _is(rm.xa_prepare(xid), xa.XA_OK)
    return xid, mark


@_behaviour()
def a_prepared_branch_shows_nothing_until_it_is_committed(bench: Bench, rm: Any) -> None:
    """Otherwise a transaction could be seen in one place and not yet in the other."""
    xid, mark = _prepared(bench, rm)
    assert mark not in bench.marks()
    _is(rm.xa_commit(xid), xa.XA_OK)
    assert mark in bench.marks()


@_behaviour()
def a_prepared_branch_can_be_rolled_back(bench: Bench, rm: Any) -> None:
    """Another participant may say no after this one said yes."""
    xid, mark = _prepared(bench, rm)
    _is(rm.xa_rollback(xid), xa.XA_OK)
    assert mark not in bench.marks()
    assert xid not in set(scan(rm))


@_behaviour()
def a_branch_commits_in_one_phase(bench: Bench, rm: Any) -> None:
    """A transaction with one participant needs no prepare."""
    xid, mark = _worked(bench, rm)
    _is(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XA_OK)
    assert mark in bench.marks()


@_behaviour()
def a_branch_is_rolled_back_before_it_is_prepared(bench: Bench, rm: Any) -> None:
    """The usual end of work that failed."""
    xid, mark = _worked(bench, rm)
    _is(rm.xa_rollback(xid), xa.XA_OK)
    assert mark not in bench.marks()


@_behaviour()
def what_is_not_known_is_nota(bench: Bench, rm: Any) -> None:
    """XAER_NOTA tells a transaction manager that there is nothing left to do."""
    del bench
    xid = _xid()
    _is(rm.xa_end(xid), xa.XAER_NOTA)
    _is(rm.xa_prepare(xid), xa.XAER_NOTA)
    _is(rm.xa_commit(xid), xa.XAER_NOTA)
    _is(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XAER_NOTA)
    _is(rm.xa_rollback(xid), xa.XAER_NOTA)
    _is(rm.xa_start(xid, flags=xa.TMJOIN), xa.XAER_NOTA)
    _is(rm.xa_start(xid, flags=xa.TMRESUME), xa.XAER_NOTA)
    _is(rm.xa_forget(xid), xa.XAER_NOTA)


@_behaviour()
def a_branch_cannot_begin_twice(bench: Bench, rm: Any) -> None:
    """XAER_DUPID: two pieces of work under one name could not be told apart."""
    xid, _ = _worked(bench, rm)
    _is(rm.xa_start(xid), xa.XAER_DUPID)
    _is(rm.xa_rollback(xid), xa.XA_OK)


@_behaviour()
def a_prepared_name_is_not_given_twice(bench: Bench, rm: Any) -> None:
    """XAER_DUPID, at the latest when the second one is prepared, from another process too."""
    xid, mark = _prepared(bench, rm)
    other = bench.open()
    code = other.xa_start(xid)
    if code == xa.XA_OK:
        bench.work(other, xid, _mark())
        _is(other.xa_end(xid), xa.XA_OK)
        code = other.xa_prepare(xid)
    _is(code, xa.XAER_DUPID)
    _is(rm.xa_commit(xid), xa.XA_OK)
    assert mark in bench.marks()


@_behaviour()
def calls_out_of_order_are_refused_and_change_nothing(bench: Bench, rm: Any) -> None:
    """XAER_PROTO: a mistake must not cost the branch."""
    xid, mark = _xid(), _mark()
    _is(rm.xa_start(xid), xa.XA_OK)
    _is(rm.xa_prepare(xid), xa.XAER_PROTO)
    _is(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XAER_PROTO)
    bench.work(rm, xid, mark)
    _is(rm.xa_end(xid), xa.XA_OK)
    _is(rm.xa_end(xid), xa.XAER_PROTO)
    _is(rm.xa_commit(xid), xa.XAER_PROTO)
    _is(rm.xa_start(xid, flags=xa.TMRESUME), xa.XAER_PROTO)
    _is(rm.xa_prepare(xid), xa.XA_OK)
    _is(rm.xa_prepare(xid), xa.XAER_PROTO)
    _is(rm.xa_commit(xid), xa.XA_OK)
    assert mark in bench.marks()


@_behaviour()
def a_prepared_branch_does_not_commit_in_one_phase(bench: Bench, rm: Any) -> None:
    """The decision about it is already somebody else's."""
    xid, _ = _prepared(bench, rm)
    _is(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XAER_PROTO)
    _is(rm.xa_rollback(xid), xa.XA_OK)


@_behaviour()
def work_that_failed_can_only_be_rolled_back(bench: Bench, rm: Any) -> None:
    """TMFAIL is the application's veto."""
    xid, mark = _xid(), _mark()
    _is(rm.xa_start(xid), xa.XA_OK)
    bench.work(rm, xid, mark)
    _is(rm.xa_end(xid, flags=xa.TMFAIL), xa.XA_OK)
    code = rm.xa_prepare(xid)
    assert xa.is_rolled_back(code), xa.code_name(code)
    assert rm.xa_rollback(xid) in {xa.XA_OK, xa.XAER_NOTA}
    assert mark not in bench.marks()


@_behaviour("suspend")
def a_suspended_branch_goes_on_when_it_is_resumed(bench: Bench, rm: Any) -> None:
    """tpsuspendtx() leaves one transaction for a while, also to begin another."""
    xid, first, second = _xid(), _mark(), _mark()
    _is(rm.xa_start(xid), xa.XA_OK)
    bench.work(rm, xid, first)
    _is(rm.xa_end(xid, flags=xa.TMSUSPEND), xa.XA_OK)
    _is(rm.xa_prepare(xid), xa.XAER_PROTO)
    between, third = _worked(bench, rm)
    _is(rm.xa_commit(between, flags=xa.TMONEPHASE), xa.XA_OK)
    _is(rm.xa_start(xid, flags=xa.TMRESUME), xa.XA_OK)
    bench.work(rm, xid, second)
    _is(rm.xa_end(xid), xa.XA_OK)
    assert {first, second, third} & bench.marks() == {third}
    _is(rm.xa_commit(xid, flags=xa.TMONEPHASE), xa.XA_OK)
    assert {first, second, third} <= bench.marks()


@_behaviour("join")
def a_branch_is_joined_after_its_work_ended(bench: Bench, rm: Any) -> None:
    """Several pieces of work of one transaction share one branch, and one outcome."""
    xid, first = _worked(bench, rm)
    second = _mark()
    _is(rm.xa_start(xid, flags=xa.TMJOIN), xa.XA_OK)
    bench.work(rm, xid, second)
    _is(rm.xa_end(xid), xa.XA_OK)
    _is(rm.xa_prepare(xid), xa.XA_OK)
    assert not {first, second} & bench.marks()
    _is(rm.xa_commit(xid), xa.XA_OK)
    assert {first, second} <= bench.marks()


@_behaviour()
def flags_that_do_not_belong_are_invalid(bench: Bench, rm: Any) -> None:
    """XAER_INVAL, and nothing changed."""
    xid = _xid()
    _is(rm.xa_start(xid, flags=xa.TMONEPHASE), xa.XAER_INVAL)
    _is(rm.xa_start(xid, flags=xa.TMJOIN | xa.TMRESUME), xa.XAER_INVAL)
    _is(rm.xa_start(xid), xa.XA_OK)
    bench.work(rm, xid, _mark())
    _is(rm.xa_end(xid, flags=xa.TMJOIN), xa.XAER_INVAL)
    _is(rm.xa_end(xid), xa.XA_OK)
    _is(rm.xa_commit(xid, flags=xa.TMJOIN), xa.XAER_INVAL)
    _is(rm.xa_rollback(xid), xa.XA_OK)


@_behaviour("read_only")
def what_changed_nothing_votes_read_only(bench: Bench, rm: Any) -> None:
    """XA_RDONLY ends the branch: it needs no second phase."""
    xid = _xid()
    _is(rm.xa_start(xid), xa.XA_OK)
    bench.read(rm, xid)
    _is(rm.xa_end(xid), xa.XA_OK)
    _is(rm.xa_prepare(xid), xa.XA_RDONLY)
    _is(rm.xa_commit(xid), xa.XAER_NOTA)
    assert xid not in set(scan(rm))


@_behaviour()
def another_process_finds_and_commits_a_prepared_branch(bench: Bench, rm: Any) -> None:
    """That is what recovery is made of."""
    xid, mark = _prepared(bench, rm)
    other = bench.open()
    assert xid in set(scan(other))
    rm.detach(xid)
    _is(_until_free(other.xa_commit, xid), xa.XA_OK)
    assert mark in bench.marks()
    assert xid not in set(scan(other))


@_behaviour()
def another_process_rolls_a_prepared_branch_back(bench: Bench, rm: Any) -> None:
    """Presumed abort: nobody decided for it."""
    xid, mark = _prepared(bench, rm)
    other = bench.open()
    rm.detach(xid)
    _is(_until_free(other.xa_rollback, xid), xa.XA_OK)
    assert mark not in bench.marks()
    _is(other.xa_rollback(xid), xa.XAER_NOTA)


def _until_free(act: Callable[[Xid], int], xid: Xid) -> int:
    """What a session leaves is free a moment later."""
    for _ in range(10_000):
        code = act(xid)
        if code != xa.XA_RETRY:
            break
    return code


@_behaviour()
def what_is_finished_is_not_known_any_more(bench: Bench, rm: Any) -> None:
    """A second order for the same branch changes nothing."""
    xid, mark = _prepared(bench, rm)
    _is(rm.xa_commit(xid), xa.XA_OK)
    _is(rm.xa_rollback(xid), xa.XAER_NOTA)
    assert mark in bench.marks()


@_behaviour()
def branches_of_one_transaction_have_outcomes_of_their_own(bench: Bench, rm: Any) -> None:
    """Gtrid and bqual together are the name."""
    first, one = _worked(bench, rm)
    second, two = _worked(bench, rm, first.branch(b"\x02"))
    _is(rm.xa_prepare(first), xa.XA_OK)
    _is(rm.xa_rollback(second), xa.XA_OK)
    _is(rm.xa_commit(first), xa.XA_OK)
    assert {one, two} & bench.marks() == {one}


@_behaviour()
def every_byte_of_a_name_comes_back(bench: Bench, rm: Any) -> None:
    """A name that came back changed would be an orphan for ever."""
    xids = [
        Xid(0, bytes(range(64)), bytes(range(192, 256))),
        Xid(2**31 - 1, b"'\\\"\x00%s--" + os.urandom(8), b""),
    ]
    for xid in xids:
        _worked(bench, rm, xid)
        _is(rm.xa_prepare(xid), xa.XA_OK)
    found = set(scan(bench.open()))
    for xid in xids:
        _is(rm.xa_rollback(xid), xa.XA_OK)
    assert set(xids) <= found


@_behaviour()
def a_recover_scan_comes_in_pages(bench: Bench, rm: Any) -> None:
    """Each branch once, whatever the page; fewer than asked for ends the scan."""
    wanted = [_prepared(bench, rm)[0] for _ in range(7)]
    for page in (1, 3, 7, 100):
        found = [xid for xid in _pages(rm, page) if xid in wanted]
        assert sorted(found) == sorted(wanted)
    for xid in wanted:
        _is(rm.xa_rollback(xid), xa.XA_OK)


def _pages(rm: ResourceManager, page: int) -> Iterator[Xid]:
    return scan(rm, page)


@_behaviour()
def a_scan_that_was_not_begun_does_not_go_on(bench: Bench, rm: Any) -> None:
    """XAER_PROTO, and XAER_INVAL for a count that asks for nothing."""
    del bench
    rm.xa_recover(10, flags=xa.TMSTARTRSCAN | xa.TMENDRSCAN)
    for count, flags, wanted in ((10, 0, xa.XAER_PROTO), (0, xa.TMSTARTRSCAN, xa.XAER_INVAL)):
        try:
            rm.xa_recover(count, flags=flags)
        except XaError as error:
            _is(error.xa_code, wanted)
        else:
            raise AssertionError(f"{xa.code_name(wanted)} is not raised")


@_behaviour()
def it_is_not_closed_while_work_is_going_on(bench: Bench, rm: Any) -> None:
    """XAER_PROTO; a prepared branch is no work that is going on."""
    xid, _ = _worked(bench, rm)
    _is(rm.xa_close(), xa.XAER_PROTO)
    _is(rm.xa_prepare(xid), xa.XA_OK)
    _is(rm.xa_close(), xa.XA_OK)
    other = bench.open()
    _is(_until_free(other.xa_rollback, xid), xa.XA_OK)


@_behaviour("heuristics")
def what_an_operator_committed_is_told_until_it_is_forgotten(bench: Bench, rm: Any) -> None:
    """XA_HEURCOM: the transaction manager must hear that its rollback did not happen."""
    xid, mark = _prepared(bench, rm)
    bench.complete(xid, is_commit=True)
    assert mark in bench.marks()
    assert xid in set(scan(rm))
    _is(rm.xa_rollback(xid), xa.XA_HEURCOM)
    _is(rm.xa_rollback(xid), xa.XA_HEURCOM)
    _is(rm.xa_forget(xid), xa.XA_OK)
    _is(rm.xa_rollback(xid), xa.XAER_NOTA)


@_behaviour("heuristics")
def what_an_operator_rolled_back_is_told_until_it_is_forgotten(bench: Bench, rm: Any) -> None:
    """XA_HEURRB: the transaction manager must hear that its commit did not happen."""
    xid, mark = _prepared(bench, rm)
    bench.complete(xid, is_commit=False)
    assert mark not in bench.marks()
    _is(rm.xa_commit(xid), xa.XA_HEURRB)
    _is(rm.xa_forget(xid), xa.XA_OK)
    _is(rm.xa_commit(xid), xa.XAER_NOTA)


@_behaviour()
def what_a_hand_finished_is_not_taken_for_an_error(bench: Bench, rm: Any) -> None:
    """A branch that another transaction manager, or a hand, finished answers XAER_NOTA."""
    xid, _ = _prepared(bench, rm)
    other = bench.open()
    rm.detach(xid)
    _is(_until_free(other.xa_rollback, xid), xa.XA_OK)
    _is(rm.xa_commit(xid), xa.XAER_NOTA)


BEHAVIOURS: tuple[Behaviour, ...] = tuple(_FOUND)
"""All of them."""
