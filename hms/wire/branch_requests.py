"""Requests on distributed transactions: branches of this node, and decisions of coordinators.

A request on a branch is answered with {"code": …, "reason": …}: a return code of X/Open XA, and in
words why it is not XA_OK. Xids are packed as tpmon.xa.Xid has them; a gtrid is bytes. Only
xa_start and xa_end belong to a session; any connection may ask the others.
"""

from typing import Annotated

import msgspec

from hms.wire.structure_base import U32, U64, Name, Tagged

Packed = Annotated[bytes, msgspec.Meta(max_length=134)]
Gtrid = Annotated[bytes, msgspec.Meta(min_length=1, max_length=64)]
Participants = Annotated[bytes, msgspec.Meta(max_length=48 << 10)]


class XaStart(Tagged, frozen=True):
    """What the session sends and receives from now on is the branch's. flags: 0 for a new branch,
    TMJOIN, TMRESUME; timeout_ms: when a branch that is not prepared is rolled back, 0 never."""

    session: U32
    xid: Packed
    flags: U32 = 0
    timeout_ms: U64 = 0


class XaEnd(Tagged, frozen=True):
    """It is so no longer. flags: TMSUCCESS, TMFAIL or TMSUSPEND."""

    session: U32
    xid: Packed
    flags: U32 = 0


class XaTake(Tagged, frozen=True):
    """From a server that runs a listener's call, with the number that its INVOKE had: the message
    is received by the branch in which the session works."""

    session: U32
    call: U64


class XaPrepare(Tagged, frozen=True):
    """Vote: a branch that answers XA_OK outlives this connection and the node. is_again: the answer
    to the first one was lost."""

    xid: Packed
    is_again: bool = False


class XaCommit(Tagged, frozen=True):
    """is_one_phase: without a vote; is_again: the answer to the first one was lost."""

    xid: Packed
    is_one_phase: bool = False
    is_again: bool = False


class XaRollback(Tagged, frozen=True):
    """Undo what the branch did."""

    xid: Packed


class XaForget(Tagged, frozen=True):
    """The outcome that an operator has chosen is known to the transaction manager."""

    xid: Packed


class XaRecover(Tagged, frozen=True):
    """Branches in doubt and heuristic outcomes behind that position: {"xids", "position",
    "has_more"}. after 0: from the beginning."""

    after: U64 = 0
    count_max: U32 = 1000


class BeginGlobal(Tagged, frozen=True):
    """A global transaction is active while this connection lives, and no longer than timeout_ms."""

    gtrid: Gtrid
    timeout_ms: U64 = 0
    name: Name = ""


class Decide(Tagged, frozen=True):
    """It is committed: {"at_ms"}, when that is durable. branches: packed xids of this node, ended
    or prepared, that are committed by the same record. An ERROR: nothing was done, roll it back."""

    gtrid: Gtrid
    participants: Participants = b""
    branches: list[Packed] = msgspec.field(default_factory=list)


class EndGlobal(Tagged, frozen=True):
    """It is over without a decision, or others are to carry the decision out."""

    gtrid: Gtrid


class AskDecision(Tagged, frozen=True):
    """{"state": "active", "committing" (the one who decided carries it out), "committed" or
    "unknown" (roll it back), "participants", "decided_at_ms"}."""

    gtrid: Gtrid


class NoteDecision(Tagged, frozen=True):
    """What the decision says of its participants from now on."""

    gtrid: Gtrid
    participants: Participants = b""


class ForgetDecision(Tagged, frozen=True):
    """Every participant has done its part."""

    gtrid: Gtrid


class ListDecisions(Tagged, frozen=True):
    """{"decisions": [[gtrid, participants, at_ms, is_held], …], "position", "has_more"}; is_held:
    the one who decided carries it out; after 0: from the first."""

    after: U64 = 0
    count_max: U32 = 100


class ListActive(Tagged, frozen=True):
    """[[gtrid, connection, since_ms, name], …]."""


TransactionRequest = (
    XaStart
    | XaEnd
    | XaTake
    | XaPrepare
    | XaCommit
    | XaRollback
    | XaForget
    | XaRecover
    | BeginGlobal
    | Decide
    | EndGlobal
    | AskDecision
    | NoteDecision
    | ForgetDecision
    | ListDecisions
    | ListActive
)
