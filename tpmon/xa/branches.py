"""The states of a branch in a resource manager, as one transition table (X/Open XA §6).

    ACTIVE     work is going on                   IDLE       the work has ended
    SUSPENDED  ended for a while                  DOOMED     it can only be rolled back
    PREPARED   it has promised to commit          GONE       it is no more

An event that the table does not have is XAER_PROTO and changes nothing.
"""

import enum
from dataclasses import dataclass, field
from typing import Any

from hms.wire.xa_constants import TMFAIL, TMJOIN, TMNOFLAGS, TMRESUME, TMSUCCESS, TMSUSPEND

__all__ = ["END_EVENTS", "START_EVENTS", "Branch", "Event", "State", "next_state"]


class State(enum.Enum):
    """Where a branch is."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    IDLE = "idle"
    DOOMED = "rollback only"
    PREPARED = "prepared"
    GONE = "gone"


class Event(enum.Enum):
    """What is asked of it."""

    JOIN = "xa_start(TMJOIN)"
    RESUME = "xa_start(TMRESUME)"
    END = "xa_end(TMSUCCESS)"
    FAIL = "xa_end(TMFAIL)"
    SUSPEND = "xa_end(TMSUSPEND)"
    PREPARE = "xa_prepare()"
    COMMIT_ONE_PHASE = "xa_commit(TMONEPHASE)"
    COMMIT = "xa_commit()"
    ROLLBACK = "xa_rollback()"


START_EVENTS = {TMNOFLAGS: None, TMJOIN: Event.JOIN, TMRESUME: Event.RESUME}
END_EVENTS = {TMSUCCESS: Event.END, TMFAIL: Event.FAIL, TMSUSPEND: Event.SUSPEND}

_TABLE = {
    (State.IDLE, Event.JOIN): State.ACTIVE,
    (State.SUSPENDED, Event.RESUME): State.ACTIVE,
    (State.ACTIVE, Event.END): State.IDLE,
    (State.SUSPENDED, Event.END): State.IDLE,
    (State.ACTIVE, Event.FAIL): State.DOOMED,
    (State.SUSPENDED, Event.FAIL): State.DOOMED,
    (State.ACTIVE, Event.SUSPEND): State.SUSPENDED,
    (State.IDLE, Event.PREPARE): State.PREPARED,
    (State.IDLE, Event.COMMIT_ONE_PHASE): State.GONE,
    (State.PREPARED, Event.COMMIT): State.GONE,
    (State.IDLE, Event.ROLLBACK): State.GONE,
    (State.DOOMED, Event.ROLLBACK): State.GONE,
    (State.PREPARED, Event.ROLLBACK): State.GONE,
}


@dataclass(slots=True)
class Branch:
    """A branch that this process knows: the session that works for it, and how far it is.

    handles: what applications hold of the session.
    """

    session: Any
    state: State = State.ACTIVE
    handles: list[Any] = field(default_factory=list)


def next_state(state: State, event: Event) -> State | None:
    """Where an event leads, None when it may not happen."""
    return _TABLE.get((state, event))
