"""Retained state: what the log's cleaning has to tell again of branches and decisions.

They are few and small beside messages, so all of them are told once in each turn of the ring, as
what was taken of producers is (see hms/engine/log/compaction.py).
"""

from hms.engine.effects import Effects
from hms.engine.state import State
from hms.engine.xa.branch_records import kept_record
from hms.records import Memory, decided, memory

XIDS_PER_RECORD = 64
AT_ONCE = 256

Key = tuple[str, bytes]


def kept(state: State) -> list[list[Key]]:
    """What the log has of branches and decisions, by kind and name; so much as should be told at
    once in each list."""
    branches = [[("branch", branch.xid)] for branch in state.branches.in_doubt()]
    rest = [("decision", gtrid) for gtrid in state.decisions.decided]
    rest += [("committed", xid) for xid in state.branches.committed]
    return [*branches, *(rest[at : at + AT_ONCE] for at in range(0, len(rest), AT_ONCE))]


def restate(state: State, keys: list[Key], fx: Effects) -> None:
    """Tell again what is still there of these."""
    committed: list[bytes] = []
    for kind, name in keys:
        if kind == "committed" and name in state.branches.committed:
            committed.append(name)
        elif kind == "decision" and name in state.decisions.decided:
            fx.records.append(decided(state.decisions.decided[name]))
        elif kind == "branch" and name in state.branches.by_xid:
            fx.records.append(kept_record(state.branches.by_xid[name]))
    for start in range(0, len(committed), XIDS_PER_RECORD):
        fx.records.append(memory(Memory(branches=committed[start : start + XIDS_PER_RECORD])))


def live_bytes(state: State) -> int:
    """What branches and decisions take in the log; a branch's messages once more at its commit."""
    return 2 * state.branches.held_bytes + state.decisions.size_bytes
