"""Ranges of message ids: how settlements and records name many of them."""

from collections.abc import Iterable

__all__ = ["as_ranges"]


def as_ranges(message_ids: Iterable[int]) -> list[tuple[int, int]]:
    """Message ids, in the order given, as ranges of consecutive ones."""
    ranges: list[tuple[int, int]] = []
    first = last = -2
    for message_id in message_ids:
        if message_id == last + 1:
            last = message_id
            continue
        if first >= 0:
            ranges.append((first, last))
        first = last = message_id
    if first >= 0:
        ranges.append((first, last))
    return ranges
