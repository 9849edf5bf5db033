"""What records tell of a message at one place: it waits there, or it is out.

Theory of operation. SENT and MOVED put a message at a place, ACKNOWLEDGED and DISCARDED take it
away; in between it is WAITING or OUT:

    record        WAITING                        OUT
    DELIVERED     OUT, its delay is over         OUT, one delivery more
    FAILED        -                              WAITING, one delivery and one attempt more
    RELEASED      -                              WAITING

What comes back with a time waits until then; a message has at most one such time.
A dash changes nothing: the log's beginning may have been retired, or the record speaks of a message
that left before. A delivery of what is out means that its consumer was lost in between, which no
record tells. What is out when the log ends is LOST in the same way. Offers to other nodes of a
cluster are out without having been delivered (OFFERED), and come back so.
"""

from collections.abc import Mapping
from typing import NamedTuple

from hms.records.kinds import RecordType

__all__ = ["LOST", "OFFERED", "RETURNED", "STEPS", "Step", "Steps"]


class Step(NamedTuple):
    """What becomes of a message; deliveries and attempts are added to what stands there."""

    is_out: bool
    deliveries: int = 0
    attempts: int = 0
    keeps_due: bool = True


Steps = tuple[Step, Step]
"""Of a message that waits, and of one that is out."""
_WAITS, _OUT = Step(is_out=False), Step(is_out=True)
_GOES_OUT = Step(is_out=True, keeps_due=False)

STEPS: Mapping[RecordType, Steps] = {
    RecordType.DELIVERED: (_GOES_OUT, Step(is_out=True, deliveries=1)),
    RecordType.FAILED: (_WAITS, Step(is_out=False, deliveries=1, attempts=1)),
    RecordType.RELEASED: (_WAITS, _WAITS),
}
OFFERED: Steps = (_GOES_OUT, _OUT)
RETURNED: Steps = (_WAITS, _WAITS)
LOST: Steps = (_WAITS, Step(is_out=False, deliveries=1))
