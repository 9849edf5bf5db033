"""How values are written in tables: on one line, and times as a person says them."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = ["ago", "cell", "time_cell"]

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def cell(value: Any) -> str:
    """A value on one line, and without what a terminal would obey."""
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {cell(item)}" for name, item in value.items())
    text = "-" if value is None else str(value)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def time_cell(at_ms: Any, *, is_relative: bool, now_ms: float | None = None) -> str:
    """A time in ms since 1970 UTC, nothing for none; a text stays as it is."""
    if not at_ms or not isinstance(at_ms, int | float):
        return cell(at_ms) if at_ms else ""
    if is_relative:
        now_ms = time.time() * 1000 if now_ms is None else now_ms
        return ago((now_ms - at_ms) / 1000)
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def ago(seconds: float) -> str:
    """How long ago, or in how long: the two largest units."""
    left = round(abs(seconds))
    for size, unit in _UNITS:
        if left >= size:
            said = f"{left // size} {unit}"
            rest = left % size
            smaller = next(((s, u) for s, u in (*_UNITS, (1, "s")) if s < size), None)
            if smaller is not None and rest // smaller[0]:
                said += f" {rest // smaller[0]} {smaller[1]}"
            break
    else:
        said = f"{left} s"
    return f"{said} ago" if seconds >= 0 else f"in {said}"
