"""Group view: what operators see of a queue's order and groups (F-M5)."""

from typing import Any

from hms.engine.queue.destinations import Queue


def is_gathering(queue: Queue) -> bool:
    """Whether its groups come as lists."""
    return queue.line.groups is not None and queue.line.groups.gathering is not None


def describe_ordering(queue: Queue) -> dict[str, Any]:
    """How the queue orders what waits, and its groups. held: what waits for its group, its global
    order or the rest of its list. lists_incomplete: those that became dead letters."""
    line = queue.line
    gathering = line.groups.gathering if line.groups is not None else None
    counts = line.groups.counts() if line.groups is not None else {}
    return {
        "sort": line.sort.text if line.sort is not None else "",
        "message_group": "GATHER" if gathering is not None else "PASS",
        "held": line.held_count,
        **counts,
        "lists_incomplete": gathering.incomplete_count if gathering is not None else 0,
    }
