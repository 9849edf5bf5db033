"""How values are written in tables: on one line, and times as a person says them."""

import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from hms.boot.counts import counted

__all__ = ["ago", "bytes_cell", "cell", "time_cell", "timed", "written_time", "written_times"]

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024


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
    return written_time(at_ms)


def written_time(at_ms: float) -> str:
    """A time in ms since 1970 UTC as people and programs write it; nothing for none."""
    if not at_ms:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(at_ms)


def written_times(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The values with those times as texts."""
    return {
        name: written_time(value) if name in names and isinstance(value, int | float) else value
        for name, value in values.items()
    }


def timed(values: Mapping[str, Any], name: str, shown: str) -> dict[str, Any]:
    """The values with that time in ms, which is none of a program's, under another name as text."""
    written = {shown: written_time(values[name] or 0)}
    return written | {key: value for key, value in values.items() if key != name}


def bytes_cell(count: float) -> str:
    """A number of bytes in the largest unit that it fills."""
    size, unit = float(count), 0
    while abs(size) >= _STEP and unit < len(_SIZES) - 1:
        size, unit = size / _STEP, unit + 1
    return f"{size:.1f} {_SIZES[unit]}" if unit else counted(int(count), "byte")


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
