"""Refused connections: what reaches a listener and is not let in, or is cut there for what it does.

The main thread and the lanes note it here, which takes some microseconds and waits for nothing. The
audit takes it within a second. Until then equal ones are counted together, and from KEYS_MAX
different ones on they are `others`, so a flood takes bounded memory.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from hms.errors.tree import HmsError
from hms.server.logins.callers import Caller
from hms.server.rare_lines import RareLines

__all__ = ["OTHERS", "Refused", "RefusedConnections", "why_of"]

log = logging.getLogger("hms.security")

KEYS_MAX = 10_000
SLICE = 500
OTHERS = "others"


class Refused(msgspec.Struct):
    """source: an address, or `uid N`; resource: what it wanted to reach, a listener; error: the
    number of what it was told; why, key: of the first of them; count: of equal ones."""

    user: str
    source: str
    resource: str
    error: int
    why: str = ""
    key: str = ""
    count: int = 0


def why_of(fault: HmsError) -> str:
    """What was wrong, without what its client is told to do."""
    known = defaultdict(lambda: "?", fault.fields)
    return str(known.get("detail") or fault.text.format_map(known))


class RefusedConnections:
    """From any thread. is_audited: somebody takes what is kept; an open node only logs it."""

    def __init__(self, *, is_audited: bool = False) -> None:
        self._is_audited = is_audited
        self._lines = RareLines(log.warning)
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str, str, int], Refused] = {}
        self.total = 0
        """So many were refused or cut."""

    def note(self, caller: Caller, why: str, error: int = 0, user: str = "") -> None:
        """One more; error 0: it is no failed login, and only logged and counted."""
        by = f" with the key {caller.key}" if caller.key else ""
        self._lines.say("a connection from %s%s is refused: %s", caller, by, why)
        with self._lock:
            self.total += 1
            if not (error and self._is_audited):
                return
            about = user, caller.source, f"listener:{caller.listener}", error
            found = self._kept.get(about)
            if found is None and len(self._kept) < KEYS_MAX:
                found = self._kept[about] = Refused(*about, why, caller.key)
            if found is None:
                about = OTHERS, "", "", error
                found = self._kept.setdefault(about, Refused(*about))
            found.count += 1

    def take(self) -> Iterator[list[Refused]]:
        """What came since this was asked last, some at a time."""
        with self._lock:
            kept, self._kept = list(self._kept.values()), {}
        for at in range(0, len(kept), SLICE):
            yield kept[at : at + SLICE]
