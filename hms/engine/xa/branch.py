"""A branch: what one resource manager, this node, does for one distributed transaction.

Theory of operation. A session that calls xa_start works in a branch until xa_end; others may join
it. Once no session works in it, it is prepared, and from then on it is in the log and belongs to
nobody's connection: only its transaction manager, or an operator in its stead, ends it. A branch
that is not prepared is gone with the connection that began it, and with the node (F-H4).

    state           xa_start(JOIN)  xa_end  xa_prepare  xa_commit  one phase  xa_rollback  xa_forget
    ACTIVE          ok              ok      -           -          -          -            -
    IDLE            ok              -       PREPARED    -          gone       gone         -
    ROLLBACK_ONLY   XA_RB           ok      gone XA_RB  -          gone XA_RB gone         -
    PREPARED        -               -       -           gone       -          gone         -
    COMMITTED       -               -       -           HEURCOM    HEURCOM    HEURCOM      gone
    ROLLED_BACK     -               -       -           HEURRB     HEURRB     HEURRB       gone

A dash is XAER_PROTO; a branch that is gone is XAER_NOTA. COMMITTED and ROLLED_BACK are what an
operator made of a PREPARED one. While a session works in it, or has suspended its work there, none
but xa_start and xa_end is allowed.
"""

import enum
from collections import OrderedDict

from hms.engine.session.session_objects import Session, Work
from hms.engine.xa.xa_codes import Code

BRANCHES_MAX = 100_000
"""A node refuses to begin more."""
XID_HEAD_BYTES = 6
"""A format id and two lengths come first; then gtrid and bqual."""


def gtrid_of(xid: bytes) -> bytes:
    """The global transaction that a well formed xid is of."""
    return xid[XID_HEAD_BYTES : XID_HEAD_BYTES + xid[4]]


class BranchState(enum.Enum):
    """See the module."""

    ACTIVE = "active"
    IDLE = "idle"
    ROLLBACK_ONLY = "rollback only"
    PREPARED = "prepared"
    COMMITTED = "heuristically committed"
    ROLLED_BACK = "heuristically rolled back"


class Ending(enum.StrEnum):
    """How a branch ended, for those who count; a heuristic outcome counts when it is decided."""

    COMMITTED = "committed"
    READ_ONLY = "read only"
    ROLLED_BACK = "rolled back"
    HEURISTICALLY_COMMITTED = "heuristically committed"
    HEURISTICALLY_ROLLED_BACK = "heuristically rolled back"


class Call(enum.Enum):
    """What a transaction manager asks of a branch that exists."""

    JOIN = enum.auto()
    END = enum.auto()
    PREPARE = enum.auto()
    COMMIT = enum.auto()
    ONE_PHASE = enum.auto()
    ROLLBACK = enum.auto()
    FORGET = enum.auto()


_OUTCOMES = (Call.COMMIT, Call.ONE_PHASE, Call.ROLLBACK)
_TABLE: dict[BranchState, dict[Call, Code]] = {
    BranchState.ACTIVE: dict.fromkeys((Call.JOIN, Call.END), Code.OK),
    BranchState.IDLE: dict.fromkeys(
        (Call.JOIN, Call.PREPARE, Call.ONE_PHASE, Call.ROLLBACK), Code.OK
    ),
    BranchState.ROLLBACK_ONLY: dict.fromkeys(
        (Call.JOIN, Call.END, Call.PREPARE, Call.ONE_PHASE, Call.ROLLBACK), Code.OK
    ),
    BranchState.PREPARED: dict.fromkeys((Call.COMMIT, Call.ROLLBACK), Code.OK),
    BranchState.COMMITTED: dict.fromkeys(_OUTCOMES, Code.HEURCOM) | {Call.FORGET: Code.OK},
    BranchState.ROLLED_BACK: dict.fromkeys(_OUTCOMES, Code.HEURRB) | {Call.FORGET: Code.OK},
}


class Branch:
    """See the module. owner: the connection that began it; why: what it answers once it can only be
    rolled back; serial: its place among all that were prepared; uids: the clients that have worked
    in it, who alone may prepare or end it until it is prepared."""

    __slots__ = (
        "began_ms",
        "deadline_ms",
        "owner",
        "prepared_at_ms",
        "serial",
        "sessions",
        "size_bytes",
        "state",
        "suspended",
        "uids",
        "why",
        "work",
        "xid",
    )

    def __init__(self, xid: bytes, owner: int, began_ms: int, deadline_ms: int = 0) -> None:
        self.xid = xid
        self.owner = owner
        self.began_ms = began_ms
        self.deadline_ms = deadline_ms
        self.state = BranchState.ACTIVE
        self.work = Work()
        self.sessions: dict[Session, None] = {}
        self.suspended: dict[Session, None] = {}
        self.uids: set[int] = set()
        self.why = Code.RBROLLBACK
        self.serial = 0
        self.prepared_at_ms = 0
        self.size_bytes = 0

    @property
    def gtrid(self) -> bytes:
        """The global transaction that it is named after."""
        return gtrid_of(self.xid)

    @property
    def is_attached(self) -> bool:
        """Whether a session works in it, or has suspended its work there."""
        return bool(self.sessions or self.suspended)

    @property
    def may_end(self) -> bool:
        """Whether it may vote or be committed now."""
        return self.state in (BranchState.IDLE, BranchState.PREPARED) and not self.is_attached

    @property
    def is_recorded(self) -> bool:
        """Whether the log has it."""
        return bool(self.serial)

    def is_hidden_from(self, uid: int) -> bool:
        """Whether that client has no part in it, and it is not in doubt."""
        return not self.is_recorded and uid not in self.uids

    def may(self, call: Call) -> Code:
        """OK when the call is allowed now, else what it is answered."""
        code = _TABLE[self.state].get(call, Code.PROTO)
        if code is Code.OK and self.is_attached and call not in (Call.JOIN, Call.END):
            return Code.PROTO
        if code is Code.OK and call is Call.JOIN and self.state is BranchState.ROLLBACK_ONLY:
            return self.why
        return code


class Branches:
    """All branches of a node. live: those that are not in the log; live_of: the same by global
    transaction; held_bytes: what prepared ones
    take in memory and in the log; soonest_ms: when the next one is over; committed: the last that
    were, so that who got no answer can ask again."""

    def __init__(self, remembered_max: int) -> None:
        self.by_xid: dict[bytes, Branch] = {}
        self.live: dict[bytes, Branch] = {}
        self.live_of: dict[bytes, dict[bytes, Branch]] = {}
        self.next_serial = 1
        self.held_bytes = 0
        self.soonest_ms: int | None = None
        self.committed: OrderedDict[bytes, None] = OrderedDict()
        self._remembered_max = remembered_max
        self.endings = dict.fromkeys(Ending, 0)
        """How many ended how since the boot."""

    def begin(self, branch: Branch) -> None:
        """A branch begins to exist."""
        self.by_xid[branch.xid] = self.live[branch.xid] = branch
        self.live_of.setdefault(branch.gtrid, {})[branch.xid] = branch
        if branch.deadline_ms:
            soonest = self.soonest_ms
            is_sooner = soonest is None or branch.deadline_ms < soonest
            self.soonest_ms = branch.deadline_ms if is_sooner else soonest

    def hold(self, branch: Branch, size_bytes: int) -> None:
        """A branch is in the log now."""
        self._live_no_more(branch)
        self.by_xid[branch.xid] = branch
        self.next_serial = max(self.next_serial, branch.serial + 1)
        branch.size_bytes = size_bytes
        self.held_bytes += size_bytes

    def let_go(self, branch: Branch) -> None:
        """What it held takes no room any more."""
        self.held_bytes -= branch.size_bytes
        branch.size_bytes = 0

    def forget(self, branch: Branch, ending: Ending | None = None) -> None:
        """A branch is gone. ending: None when it was counted before."""
        if ending is not None:
            self.endings[ending] += 1
        self.let_go(branch)
        self.by_xid.pop(branch.xid, None)
        self._live_no_more(branch)

    def _live_no_more(self, branch: Branch) -> None:
        if self.live.pop(branch.xid, None) is None:
            return
        together = self.live_of[branch.gtrid]
        del together[branch.xid]
        if not together:
            del self.live_of[branch.gtrid]

    def remember(self, xid: bytes) -> None:
        """A branch was committed; the oldest memory goes when there are too many."""
        self.committed[xid] = None
        self.committed.move_to_end(xid)
        if len(self.committed) > self._remembered_max:
            self.committed.popitem(last=False)

    def in_doubt(self) -> list[Branch]:
        """Prepared branches and those with a heuristic outcome, in the order of their votes."""
        return sorted(
            (b for b in self.by_xid.values() if b.is_recorded), key=lambda branch: branch.serial
        )
