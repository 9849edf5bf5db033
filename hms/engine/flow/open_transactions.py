"""Memory of open transactions: what they hold is not waiting yet, and has to be bounded as well.

Each is bounded by max_transaction_bytes, but a client may have as many as it has sessions. Together
with what waits in memory they stay within max_memory_bytes. They are counted anew whenever a
transaction grows past another step, so no exit of a transaction has to be remembered.
"""

from hms.engine.session.session_objects import Work
from hms.engine.state import State
from hms.errors.catalogue import NodeFull

__all__ = ["STEP_BYTES", "check_open_work", "open_bytes"]

STEP_BYTES = 64 << 10


def open_bytes(state: State) -> int:
    """Bytes that all open transactions hold, of sessions and of branches that are not prepared."""
    works = [s.work for c in state.connections.values() for s in c.sessions.values()]
    works += [branch.work for branch in state.branches.live.values()]
    return sum({id(work): work.size_bytes for work in works}.values())


def check_open_work(state: State, work: Work, size: int) -> None:
    """NodeFull when a transaction that grows by so many bytes would not fit with all the others."""
    if (work.size_bytes + size) // STEP_BYTES == work.size_bytes // STEP_BYTES:
        return
    state.open_work_bytes = open_bytes(state)
    used, limit = state.open_work_bytes + state.resident_bytes, state.settings.memory_bytes_max
    if used + size > limit:
        raise NodeFull(used=used, limit=limit, key="max_memory_bytes")
