"""What the behaviours of resource managers are made of: a bench to try them on, and their parts."""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hms.wire import xa_constants as xa
from hms.wire.xid import Xid
from tpmon.xa.resource import ResourceManager

__all__ = [
    "ABILITIES",
    "FOUND",
    "Behaviour",
    "Bench",
    "behaviour",
    "expect",
    "new_mark",
    "new_xid",
    "prepared",
    "until_free",
    "worked",
]

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


FOUND: list[Behaviour] = []


def behaviour(needs: str = "") -> Callable[[Any], Any]:
    """Make a function one of the behaviours; needs: the ability without which it does not apply."""

    def keep(check: Callable[[Bench, ResourceManager], None]) -> Any:
        FOUND.append(Behaviour(check, needs))
        return check

    return keep


def new_xid(bqual: bytes = b"\x01") -> Xid:
    """A name that no other branch has."""
    return Xid(FORMAT_ID, os.urandom(16), bqual)


def new_mark() -> int:
    """A mark that nobody else leaves."""
    return next(_numbers) * 1_000_003 + os.getpid()


def expect(code: int, wanted: int) -> None:
    """AssertionError that names both codes."""
    assert code == wanted, f"{xa.code_name(code)} instead of {xa.code_name(wanted)}"


def worked(bench: Bench, rm: ResourceManager, xid: Xid | None = None) -> tuple[Xid, int]:
    """A branch with one mark, ended."""
    xid, mark = xid or new_xid(), new_mark()
    expect(rm.xa_start(xid), xa.XA_OK)
    bench.work(rm, xid, mark)
    expect(rm.xa_end(xid), xa.XA_OK)
    return xid, mark


def prepared(bench: Bench, rm: ResourceManager) -> tuple[Xid, int]:
    """A branch with one mark, prepared."""
    xid, mark = worked(bench, rm)
    expect(rm.xa_prepare(xid), xa.XA_OK)
    return xid, mark


def until_free(act: Callable[[Xid], int], xid: Xid) -> int:
    """What a session leaves is free a moment later."""
    for _ in range(10_000):
        code = act(xid)
        if code != xa.XA_RETRY:
            break
    return code
