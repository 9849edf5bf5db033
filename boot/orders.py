"""What the configuration says of the order of messages, for the engine."""

from typing import Any

from hms.boot.entries import Queue, Subscription
from hms.engine.groups.message_sort import SortSettings


def sort_settings(place: Queue | Subscription) -> SortSettings | None:
    """By what it is sorted; None: by nothing but arrival."""
    if not place.sort_key:
        return None
    is_descending = place.sort_direction == "DESCENDING"
    return SortSettings(place.sort_key, place.sort_type, is_descending)


def order_of(queue: Queue) -> dict[str, Any]:
    """The fields of DestinationSettings that tell it."""
    expiry_s = queue.group_expiry_s
    return {
        "sort": sort_settings(queue),
        "is_gathering": queue.message_group == "GATHER",
        "group_life_ms": round(expiry_s * 1000) if expiry_s >= 0 else -1,
    }
