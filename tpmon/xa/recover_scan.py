"""A recover scan: where it stands between two pages."""

from typing import Protocol

from hms.errors.catalogue import XaError
from hms.wire.xa_constants import (
    TMENDRSCAN,
    TMNOFLAGS,
    TMSTARTRSCAN,
    XAER_INVAL,
    code_name,
)
from hms.wire.xid import Xid

__all__ = ["Scan"]

_FLAGS = (TMNOFLAGS, TMSTARTRSCAN, TMENDRSCAN, TMSTARTRSCAN | TMENDRSCAN)


class _Paged(Protocol):
    """The resource manager that is scanned."""

    name: str

    def page(self, after: Xid | None, count: int) -> list[Xid]:
        """Prepared branches behind one, in order."""


class Scan:
    """The scan of one resource manager; TMSTARTRSCAN begins it anew, TMENDRSCAN ends it."""

    def __init__(self) -> None:
        self._is_open = False
        self._after: Xid | None = None

    def page(self, rm: _Paged, count: int, flags: int) -> list[Xid]:
        """The next page; XaError."""
        if flags not in _FLAGS or count < 1:
            raise _refused(rm, XAER_INVAL, f"count {count}, flags {flags:#x}")
        if not flags & TMSTARTRSCAN and not self._is_open:
            raise _refused(rm, XAER_INVAL, "no scan is open: begin it with TMSTARTRSCAN")
        after = None if flags & TMSTARTRSCAN else self._after
        found = rm.page(after, count)
        self._is_open = not flags & TMENDRSCAN and len(found) == count
        self._after = found[-1] if found else None
        return found


def _refused(rm: _Paged, code: int, reason: str) -> XaError:
    return XaError(
        operation="xa_recover",
        resource=rm.name,
        xid="",
        xa_code=code,
        answer=code_name(code),
        reason=reason,
    )
