"""Counters of destinations as operators see them (F-M5), and who holds what their sums are."""

from collections.abc import Iterable
from typing import Any

from hms.engine.admin.destination_attributes import said_of
from hms.engine.queue.destinations import Queue, Topic
from hms.engine.queue.pending_list import PendingList
from hms.engine.state import State


def counters_of(lines: Iterable[PendingList]) -> dict[str, int]:
    """What happened since the node booted, and what is there now.

    processed: acknowledged; remaining: all that is there; pending: of that what waits; dispatched:
    of that what is out; poisoned: became a dead letter; memory: in bytes, bodies that are in the
    log only included. The high ones are the most there was at once.
    """
    sums = dict.fromkeys(_COUNTERS, 0)
    for line in lines:
        count_line(line, sums)
    return sums


def count_line(line: PendingList, sums: dict[str, int]) -> None:
    """What counters_of() tells of one more line is added."""
    for name, value in _of_line(line).items():
        sums[name] += value


_COUNTERS = (
    "processed",
    "remaining",
    "remaining_high",
    "pending",
    "dispatched",
    "delivered",
    "expired",
    "moved",
    "removed",
    "poisoned",
    "memory",
    "memory_high",
)


def _of_line(line: PendingList) -> dict[str, int]:
    counters = line.counters
    pending = line.waiting_count + line.delayed_count
    return {
        "processed": counters.acknowledged,
        "remaining": pending + line.out_count,
        "remaining_high": counters.count_high,
        "pending": pending,
        "dispatched": line.out_count,
        "delivered": counters.delivered,
        "expired": counters.expired,
        "moved": counters.moved_in + counters.moved_out,
        "removed": counters.removed,
        "poisoned": counters.dead_lettered,
        "memory": line.size_bytes,
        "memory_high": counters.bytes_high,
    }


def describe_limits(state: State, target: Queue | Topic) -> dict[str, Any]:
    """The attributes of a destination, and how many sends wait for room in it."""
    key = (target.kind, target.name if isinstance(target, Queue) else target.string)
    return said_of(target.control) | {"blocked_sends": state.blocked.count(key)}
