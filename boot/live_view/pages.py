"""The pages of the view, as plain text in 80 columns, out of what was said."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hms.boot.cli.cells import ago, bytes_cell, written_time
from hms.boot.monitoring.rates import (
    COLUMNS,
    TITLES,
    WIDTHS,
    cells_of,
    filled,
    plain,
)

__all__ = ["PAGES", "Page", "Row", "destination_lines", "in_order", "place_of"]

_TEXTS = ("destination", "kind")
_NO_COUNTS = ("destination", "kind", "paused", "oldest_ms", "delivered_ms", "bytes")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a page; key: what stays its own from look to look."""

    key: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """title: as it is named to the user; columns: title and width of each, 80 together; verb: what
    is asked for it beside the figures, "" for nothing; rows: out of the view and that answer."""

    title: str
    columns: tuple[tuple[str, int], ...]
    rows: Callable[[Mapping[str, Any], Any], list[Row]]
    empty: str
    verb: str = ""


def place_of(said: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """All figures of a destination, by the key of its row."""
    for values in said["rows"]:
        row = dict(zip(said["columns"], values, strict=True))
        if _key(row) == key:
            return row
    return None


def in_order(rows: Sequence[dict[str, Any]], sort: str, *, is_turned: bool) -> list[dict[str, Any]]:
    """Names from the first on, figures from the largest on; turned the other way round."""
    assert sort in COLUMNS
    return sorted(rows, key=lambda row: row[sort], reverse=(sort not in _TEXTS) != is_turned)


def destination_lines(row: Mapping[str, Any], now_ms: int) -> list[str]:
    """What there is to one destination: state first, then every counter since the boot."""
    oldest = f"oldest sent {ago((now_ms - row['oldest_ms']) / 1000)}" if row["oldest_ms"] else ""
    last = f"delivered {ago((now_ms - row['delivered_ms']) / 1000)}"
    state = (
        *(plain(row["destination"])[:60], row["kind"]),
        f"paused: {row['paused']}" if row["paused"] else "not paused",
        *(part for part in (bytes_cell(row["bytes"]), oldest) if part),
        last if row["delivered_ms"] else "nothing delivered yet",
    )
    counts = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in row.items()
        if name not in _NO_COUNTS and isinstance(value, int)
    ]
    return [*filled(state), *filled(counts)]


def _key(row: Mapping[str, Any]) -> str:
    return f"{row['kind']}:{row['destination']}"


def _destinations(view: Mapping[str, Any], _said: Any) -> list[Row]:
    return [Row(_key(row), cells_of(row)) for row in view["destinations"]]


def _consumers(_view: Mapping[str, Any], said: Any) -> list[Row]:
    return [
        Row(
            str(number),
            (
                *(str(one["client"]), one["client_id"] or "-", one["user"] or "-"),
                *(str(one["session"]), one["name"] or "-", str(one["credit"])),
                *(str(one["in_flight"]), one["oldest_in_flight"] or "-"),
            ),
        )
        for number, one in enumerate(said or ())
    ]


def _services(view: Mapping[str, Any], _said: Any) -> list[Row]:
    names = ("servers", "idle", "waiting", "per_s", "p50_ms", "p95_ms", "p99_ms", "calls", "failed")
    return [
        Row(one["name"], (one["name"], *(_figure(one[name]) for name in names)))
        for one in view["services"]
    ]


def _links(view: Mapping[str, Any], _said: Any) -> list[Row]:
    rows = []
    for one in view["links"]:
        silent_s = one["heard_s_ago"]
        rows.append(
            Row(
                one["node"],
                (
                    *(one["node"], one["presence"]),
                    "never" if silent_s is None else f"{silent_s:.1f} s ago",
                    bytes_cell(one["pending_bytes"]),
                    *(str(one.get(name, 0)) for name in ("moved_in", "moved_out", "unconfirmed")),
                    f"{one.get('lag_s', 0):.1f} s",
                ),
            )
        )
    return rows


def _alerts(_view: Mapping[str, Any], said: Any) -> list[Row]:
    found = [*said["active"], *said["ended"]] if said else []
    return [
        Row(
            str(number),
            (
                *(one["alert"], one["destination"] or "-", written_time(one["since_ms"])),
                written_time(one["until_ms"]) if one.get("until_ms") else "now",
                one["text"],
            ),
        )
        for number, one in enumerate(found)
    ]


def _figure(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


PAGES: dict[str, Page] = {
    "destinations": Page(
        "destinations",
        tuple(zip(TITLES, WIDTHS, strict=True)),
        _destinations,
        "no destination has such a name",
    ),
    "destination": Page(
        "one destination",
        (
            *(("client", 7), ("client id", 15), ("user", 12), ("session", 8), ("name", 12)),
            *(("credit", 7), ("flight", 7), ("oldest", 12)),
        ),
        _consumers,
        "nobody receives from it",
        verb="consumer.list",
    ),
    "services": Page(
        "services",
        (
            *(("service", 18), ("servers", 8), ("idle", 5), ("waits", 6), ("per s", 7)),
            *(("p50 ms", 7), ("p95 ms", 7), ("p99 ms", 7), ("calls", 9), ("fail", 6)),
        ),
        _services,
        "no service is offered",
    ),
    "cluster": Page(
        "cluster",
        (
            *(("node", 16), ("is", 8), ("heard", 12), ("on its way", 12), ("in", 8)),
            *(("out", 8), ("open", 7), ("lag", 9)),
        ),
        _links,
        "this node is in no cluster",
    ),
    "alerts": Page(
        "alerts",
        (("alert", 18), ("destination", 14), ("since", 10), ("until", 10), ("text", 28)),
        _alerts,
        "no alerts, and none that ended",
        verb="alert.list",
    ),
}
