"""Rates: what changed between two answers to metrics.show, for hms top and the console."""

from collections.abc import Iterable
from typing import Any

from hms.boot.counts import counted

__all__ = [
    "COLUMNS",
    "TITLES",
    "WIDTH",
    "WIDTHS",
    "Rates",
    "cells_of",
    "filled",
    "head_of",
    "lines_of",
    "plain",
]

COLUMNS = (
    *("destination", "kind", "messages", "in_flight", "consumers", "oldest_s"),
    *("sent_per_s", "acknowledged_per_s", "dead_lettered", "bytes", "paused"),
)
WIDTH = 80
WIDTHS = (19, 13, 9, 7, 5, 8, 7, 7, 5)
"""Together a terminal's 80 columns."""
TITLES = ("destination", "kind", "waiting", "flight", "cons", "oldest", "in/s", "out/s", "dead")
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
            **_latencies(said, last),
            "connections": said["connections"],
            "memory_percent": round(100 * said["held_bytes"] / said["max_memory_bytes"]),
            "disk_free_bytes": said.get("disk_free_bytes", 0),
            "alerts": [name + (f" {at}" if at else "") for name, at in said.get("alerts", [])],
            "destinations": _destinations(said, last, spent_s),
            "services": [dict(one) for one in said.get("services", ())],
            "links": [dict(one) for one in said.get("links", ())],
        }


def _counters(said: dict[str, Any]) -> dict[str, int]:
    durable, passing = said["durable"]["counters"], said["passing"]["counters"]
    return {name: durable[name] + passing[name] for name in durable}


def _latencies(said: dict[str, Any], last: dict[str, Any]) -> dict[str, float]:
    """How long messages waited and were held, of durable places and others together."""
    found = {}
    for word, name in (("wait", "delivery_latency"), ("held", "ack_latency")):
        now, before = _summed(said.get(name)), _summed(last.get(name))
        for share in (50, 99):
            known = (
                0.0 if now is None or before is None else _percentile_ms(now, before, share / 100)
            )
            found[f"{word}_p{share}_ms"] = known
    return found


def _summed(kinds: list[tuple[str, dict[str, Any]]] | None) -> dict[str, Any] | None:
    if not kinds:
        return None  # recorded by a version that did not tell
    counts = [sum(each) for each in zip(*(one["counts"] for _, one in kinds), strict=True)]
    return {"bounds": kinds[0][1]["bounds"], "counts": counts}


def _percentile_ms(said: dict[str, Any], last: dict[str, Any], share: float) -> float:
    """The upper bound of the bucket that so many of what came in between do not go beyond."""
    counts = [max(0, a - b) for a, b in zip(said["counts"], last["counts"], strict=True)]
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
        one["paused"] = one.get("paused") or ""  # temporary ones together tell False
        found.append({name: one[name] for name in COLUMNS})
    return found


def lines_of(view: dict[str, Any]) -> list[str]:
    """The view in 80 columns; no name moves the cursor."""
    rows = [_row(cells_of(row)) for row in view["destinations"]]
    return [plain(line)[:WIDTH] for line in (*head_of(view), "", _row(TITLES), *rows)]


def cells_of(row: dict[str, Any]) -> tuple[str, ...]:
    """What a destination's row shows."""
    kind = f"{row['kind']} paused" if row["paused"] else row["kind"]
    return tuple(str({**row, "kind": kind}[name]) for name in _SHOWN)


def head_of(view: dict[str, Any]) -> list[str]:
    """The lines above the rows."""
    free = view["disk_free_bytes"] >> 30
    head = (
        *(view["node"], f"{view['messages']} waiting", f"{view['in_flight']} in flight"),
        *(counted(view["connections"], "client"), f"memory {view['memory_percent']} %"),
        f"disk {free} GiB free",
    )
    rates = (
        *(f"in {view['sent_per_s']}/s", f"out {view['acknowledged_per_s']}/s"),
        *(f"again {view['redelivered_per_s']}/s", f"dead {view['dead_lettered_per_s']}/s"),
        *(
            f"{word} 50 % {view[f'{name}_p50_ms']:g} ms 99 % {view[f'{name}_p99_ms']:g} ms"
            for word, name in (("commit", "commit"), ("waited", "wait"), ("held", "held"))
        ),
    )
    alerts = [f"alert {one}" for one in view["alerts"]] or ["no alerts"]
    said = (*filled(head), *filled(rates), *filled(alerts))
    return [plain(line)[:WIDTH] for line in said]


def filled(parts: Iterable[str]) -> list[str]:
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


def plain(text: str) -> str:
    """The text, without what moves a cursor or colours a screen."""
    return "".join(char if char.isprintable() else "?" for char in text)
