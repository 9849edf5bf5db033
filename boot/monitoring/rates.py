"""Rates: what changed between two answers to metrics.show, for hms top and the console."""

from collections.abc import Iterable
from typing import Any

from hms.boot.counts import counted

__all__ = ["COLUMNS", "Rates", "lines_of"]

COLUMNS = (
    *("destination", "kind", "messages", "in_flight", "consumers", "oldest_s"),
    *("sent_per_s", "acknowledged_per_s", "dead_lettered", "bytes"),
)
WIDTH = 80
WIDTHS = (19, 13, 9, 7, 5, 8, 7, 7, 5)
"""Together a terminal's 80 columns."""
_TITLES = ("destination", "kind", "waiting", "flight", "cons", "oldest", "in/s", "out/s", "dead")
_SHOWN = (
    *("destination", "kind", "messages", "in_flight", "consumers", "oldest_s"),
    *("sent_per_s", "acknowledged_per_s", "dead_lettered"),
)
MILLI = 1000


class Rates:
    """Keeps the last answer."""

    def __init__(self) -> None:
        self._last: dict[str, Any] | None = None

    def view(self, said: dict[str, Any]) -> dict[str, Any] | None:
        """What there is now and how fast it changes; None at the first answer."""
        last, self._last = self._last, said
        if last is None:
            return None
        spent_s = max((said["now_ms"] - last["now_ms"]) / MILLI, 0.001)
        counts, before = _counters(said), _counters(last)
        return {
            "node": said["node"],
            "now_ms": said["now_ms"],
            "messages": said["durable"]["messages"] + said["passing"]["messages"],
            "in_flight": said["durable"]["in_flight"] + said["passing"]["in_flight"],
            **{
                f"{name}_per_s": round(max(0, counts[name] - before.get(name, 0)) / spent_s, 1)
                for name in ("sent", "delivered", "acknowledged", "redelivered", "dead_lettered")
            },
            "commit_p50_ms": _percentile_ms(said["commit"], last["commit"], 0.5),
            "commit_p99_ms": _percentile_ms(said["commit"], last["commit"], 0.99),
            "connections": said["connections"],
            "memory_percent": round(100 * said["held_bytes"] / said["max_memory_bytes"]),
            "disk_free_bytes": said.get("disk_free_bytes", 0),
            "alerts": [name + (f" {at}" if at else "") for name, at in said.get("alerts", [])],
            "destinations": _destinations(said, last, spent_s),
        }


def _counters(said: dict[str, Any]) -> dict[str, int]:
    durable, passing = said["durable"]["counters"], said["passing"]["counters"]
    return {name: durable[name] + passing[name] for name in durable}


def _percentile_ms(said: dict[str, Any], last: dict[str, Any], share: float) -> float:
    """The upper bound of the bucket that so many of what came in between do not go beyond."""
    counts = [a - b for a, b in zip(said["counts"], last["counts"], strict=True)]
    left = share * sum(counts)
    for bound, count in zip((*said["bounds"], 2 * said["bounds"][-1]), counts, strict=True):
        left -= count
        if count and left <= 0:
            return float(bound * MILLI)
    return 0.0


def _destinations(
    said: dict[str, Any], last: dict[str, Any], spent_s: float
) -> list[dict[str, Any]]:
    at = {name: n for n, name in enumerate(said["columns"])}
    before = {(row[at["destination"]], row[at["kind"]]): row for row in last["rows"]}
    found = []
    for row in said["rows"]:
        one = {name: row[number] for name, number in at.items()}
        older = before.get((one["destination"], one["kind"]), row)
        oldest = one["oldest_ms"]
        one["oldest_s"] = max(0, said["now_ms"] - oldest) // MILLI if oldest else 0
        for name in ("sent", "acknowledged"):
            more = max(0, one[name] - older[at[name]])
            one[f"{name}_per_s"] = round(more / spent_s, 1)
        found.append({name: one[name] for name in COLUMNS})
    return found


def lines_of(view: dict[str, Any]) -> list[str]:
    """The view in 80 columns; no name moves the cursor."""
    free = view["disk_free_bytes"] >> 30
    head = (
        *(view["node"], f"{view['messages']} waiting", f"{view['in_flight']} in flight"),
        *(counted(view["connections"], "client"), f"memory {view['memory_percent']} %"),
        f"disk {free} GiB free",
    )
    rates = (
        *(f"in {view['sent_per_s']}/s", f"out {view['acknowledged_per_s']}/s"),
        *(f"again {view['redelivered_per_s']}/s", f"dead {view['dead_lettered_per_s']}/s"),
        f"commit 50 % {view['commit_p50_ms']:g} ms 99 % {view['commit_p99_ms']:g} ms",
    )
    alerts = [f"alert {one}" for one in view["alerts"]] or ["no alerts"]
    titles = _row(_TITLES)
    rows = [_row(tuple(str(row[name]) for name in _SHOWN)) for row in view["destinations"]]
    said = (*_filled(head), *_filled(rates), *_filled(alerts), "", titles, *rows)
    return [_plain(line)[:WIDTH] for line in said]


def _filled(parts: Iterable[str]) -> list[str]:
    """The parts on as many lines as they take; none is cut where another line has room."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) <= WIDTH:
            lines[-1] += f"  {part}"
        else:
            lines.append(part)
    return lines


def _row(cells: tuple[str, ...]) -> str:
    first, kind, *numbers = cells
    texts = [f"{first:{WIDTHS[0]}.{WIDTHS[0]}}", f"{kind:{WIDTHS[1]}.{WIDTHS[1]}}"]
    texts += [f"{cell:>{width}}" for cell, width in zip(numbers, WIDTHS[2:], strict=True)]
    return "".join(texts)


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
