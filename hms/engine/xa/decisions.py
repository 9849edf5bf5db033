"""Decisions: what the coordinators among this node's clients have decided (presumed abort).

A global transaction is *active* while the connection that began it lives; that is known in memory
only. To decide is to write a record: from then on it is committed, whatever happens, until it is
forgotten because every participant has done its part. What is neither active nor decided was, or
will be, rolled back: nothing is ever written of that.
"""

from collections import OrderedDict
from typing import NamedTuple

from hms.records import Decided

IDENTITY = b"HMS identity"
"""The name of what stands among the decisions and is none: by what coordinators know this node."""
DECIDED_BYTES = 160
"""What a decision takes in the log beside its participants."""
GIVEN_UP_MAX = 10_000


class Active(NamedTuple):
    """A global transaction that has begun. deadline_ms 0: it has none."""

    connection: int
    since_ms: int
    deadline_ms: int
    name: str


class Decisions:
    """Global transactions of this node's clients."""

    def __init__(self) -> None:
        self.active: dict[bytes, Active] = {}
        self.decided: dict[bytes, Decided] = {}
        self.held: dict[bytes, int] = {}
        """Decisions that the connection which made them is still carrying out; in memory only."""
        self.given_up: OrderedDict[bytes, None] = OrderedDict()
        """The last that ended without a decision: a service that began late works for nobody."""
        self.next_serial = 1
        self.size_bytes = 0
        """What decisions take in the log."""

    def connection_ended(self, number: int) -> list[bytes]:
        """What a connection has not decided can only be rolled back now; which those are."""
        undecided = [g for g, one in self.active.items() if one.connection == number]
        for gtrid in undecided:
            self.give_up(gtrid)
        for gtrid in [g for g, holder in self.held.items() if holder == number]:
            del self.held[gtrid]
        return undecided

    def give_up(self, gtrid: bytes) -> None:
        """An active one ends without a decision."""
        del self.active[gtrid]
        self.given_up[gtrid] = None
        if len(self.given_up) > GIVEN_UP_MAX:
            self.given_up.popitem(last=False)

    def keep(self, content: Decided) -> None:
        """A decision was made, or read back."""
        self.active.pop(content.gtrid, None)
        holder = self.held.get(content.gtrid)
        self.drop(content.gtrid)
        if holder is not None:
            self.held[content.gtrid] = holder
        self.size_bytes += DECIDED_BYTES + len(content.participants)
        self.decided[content.gtrid] = content
        self.next_serial = max(self.next_serial, content.serial + 1)

    def drop(self, gtrid: bytes) -> bool:
        """A decision is not needed any more; whether there was one."""
        self.held.pop(gtrid, None)
        known = self.decided.pop(gtrid, None)
        if known is not None:
            self.size_bytes -= DECIDED_BYTES + len(known.participants)
        return known is not None
