"""Schedules: messages that are sent again and again, by interval or cron expression (F-D4).

Theory of operation. A schedule is a message that waits at a place of its own, which nobody consumes
from, until its next occurrence; so recovery, quotas and the moving of old segments treat it like
any message with a delay. Its head carries the plan. When it is due, a message like it is sent to
its destination and it is told again with its next time; both are one record, so after a crash the
occurrence has been sent and is over, or neither: each is sent exactly once. An occurrence for which
there is no room is kept and tried again; those behind it wait for it.

What was due while the node was down is *missed*: plans say what becomes of it. What was due while
the node was up is never missed, however late it is.

Where logins are checked a schedule belongs to the user who made it, and each occurrence is judged
by what its owner may do then. One that is refused is not sent, and not made up for: its schedule
waits for its next time, when the owner may again, or not.
"""

import heapq
from collections.abc import Iterator

import msgspec

from hms.engine.messages import StoredMessage
from hms.engine.queue.destinations import Scheduled
from hms.engine.schedule.schedule_plans import Plan
from hms.wire.packed_messages import decode_head

NODE_PLAN = "$Plan"
"""What the head of the waiting message says: its plan."""
RETRY_MS = 1000
_decode = msgspec.msgpack.Decoder(Plan).decode


class Schedule:
    """A plan with the message that waits for its next occurrence. error: why it could not be sent
    the last time; refused: so many occurrences its owner was not permitted, since the boot."""

    __slots__ = ("due_ms", "error", "message", "plan", "refused")

    def __init__(self, plan: Plan, message: StoredMessage, due_ms: int) -> None:
        self.plan = plan
        self.message = message
        self.due_ms = due_ms
        self.error = ""
        self.refused = 0


class Schedules:
    """All schedules of a node, the next one due first."""

    def __init__(self, place: Scheduled) -> None:
        self.place = place
        self.by_name: dict[str, Schedule] = {}
        self.booted_ms = 0
        self._heap: list[tuple[int, int, str]] = []
        self._stuck: list[Schedule] = []
        self._retry_ms = 0

    def due_ms(self) -> int | None:
        """When the next one is to be looked at."""
        while self._heap and self._current(self._heap[0]) is None:
            heapq.heappop(self._heap)
        times = [self._heap[0][0]] if self._heap else []
        return min([*times, self._retry_ms] if self._stuck else times, default=None)

    def push(self, schedule: Schedule) -> None:
        """A schedule waits for its time."""
        entry = schedule.due_ms, schedule.message.seq, schedule.plan.name
        heapq.heappush(self._heap, entry)

    def pop_due(self, now_ms: int) -> Iterator[Schedule]:
        """Schedules that are due, soonest first."""
        if self._stuck and self._retry_ms <= now_ms:
            for schedule in self._stuck:
                self.push(schedule)
            self._stuck = []
        while self._heap and self._heap[0][0] <= now_ms:
            found = self._current(heapq.heappop(self._heap))
            if found is not None:
                yield found

    def retry(self, schedule: Schedule, now_ms: int, error: str) -> None:
        """It could not be sent now."""
        schedule.error = error
        if not self._stuck:
            self._retry_ms = now_ms + RETRY_MS
        self._stuck.append(schedule)

    def _current(self, entry: tuple[int, int, str]) -> Schedule | None:
        due_ms, seq, name = entry
        found = self.by_name.get(name)
        if found is None or (found.due_ms, found.message.seq) != (due_ms, seq):
            return None
        return found


def sent_count(schedules: Schedules, schedule: Schedule) -> int:
    """How many messages of it were sent."""
    return schedules.place.line.deliveries(schedule.message)


def plan_of(message: StoredMessage) -> Plan:
    """The plan that the head of a waiting message carries."""
    head = decode_head(message.payload[: message.head_bytes])
    plan: Plan = _decode(head.node[NODE_PLAN])
    return plan
