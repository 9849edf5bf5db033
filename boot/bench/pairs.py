"""Pairs: one system after the other, run after run, and the medians of what came.

The machine may be another from minute to minute, so that only figures of one run are compared: the
ratio is the median of the ratios, not the ratio of the medians.
"""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hms.boot.bench.client_pool import BenchFailed
from hms.boot.bench.measure import Figures, measure
from hms.boot.bench.systems import System
from hms.boot.bench.workloads import Workload

__all__ = ["Row", "compare", "medians", "rows_markdown", "rows_text"]


class Row(msgspec.Struct, kw_only=True):
    """The medians of one system in one workload; ratio: of the first system's rate to its own."""

    workload: str
    title: str
    system: str
    runs: int
    rate: float
    rate_min: float
    rate_max: float
    times_ms: dict[str, float]
    system_cpu_us: float
    clients_cpu_us: float
    system_rss_mib: float
    clients_rss_mib: float
    misordered: int
    ratio: float | None = None


def compare(
    systems: Sequence[System],
    workload: Workload,
    folder: Path,
    runs: int,
    said: Callable[[str], object] = lambda _: None,
) -> list[Row]:
    """Measure the systems in turn. The ratio of a row is that of the first system to this one."""
    found: dict[str, list[Figures]] = {system.name: [] for system in systems}
    for number in range(runs):
        for system in systems:
            one = workload.for_limit() if system.name == "limit" else workload
            figures = measure(system, one, folder)
            found[system.name].append(figures)
            said(
                f"{workload.name} {number + 1}/{runs} {system.name:18} {figures.rate:11,.0f}/s"
                f"  {figures.machine}"
            )
    first = found[systems[0].name]
    return [medians(workload, found[system.name], first) for system in systems]


def medians(workload: Workload, figures: Sequence[Figures], first: Sequence[Figures]) -> Row:
    """The row of one system's measurements."""
    if not figures:
        raise BenchFailed(f"{workload.name}: nothing was measured")
    ratios = [mine.rate / its.rate for mine, its in zip(first, figures, strict=True)]

    def middle(name: str) -> float:
        return statistics.median(float(getattr(one, name)) for one in figures)

    rates = [one.rate for one in figures]
    times = {q: statistics.median(one.times_ms[q] for one in figures) for q in figures[0].times_ms}
    return Row(
        workload=workload.name,
        title=workload.title,
        system=figures[0].system,
        runs=len(figures),
        rate_min=min(rates),
        rate_max=max(rates),
        times_ms=times,
        misordered=sum(one.misordered for one in figures),
        ratio=None if figures is first else statistics.median(ratios),
        **{name: middle(name) for name in _MIDDLES},
    )


_MIDDLES = ("rate", "system_cpu_us", "clients_cpu_us", "system_rss_mib", "clients_rss_mib")
_NAMES = 2
_HEAD = (
    "workload",
    "system",
    "msgs/s",
    "min",
    "max",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "system µs",
    "clients µs",
    "system MiB",
    "clients MiB",
    "ratio",
)


def rows_text(rows: Sequence[Row]) -> str:
    """A table, one line for each row; ratio: HMS to the system of the line."""
    lines = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(_HEAD))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < _NAMES else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def rows_markdown(rows: Sequence[Row]) -> str:
    """The same for a page of the documentation."""
    rule = ["---" if at < _NAMES else "--:" for at in range(len(_HEAD))]
    lines = [_HEAD, rule, *(_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    times = (f"{row.times_ms[q]:.3f}" if row.times_ms else "" for q in ("p50", "p99", "p99.9"))
    return (
        row.workload,
        row.system,
        f"{row.rate:,.0f}",
        f"{row.rate_min:,.0f}",
        f"{row.rate_max:,.0f}",
        *times,
        f"{row.system_cpu_us:.1f}",
        f"{row.clients_cpu_us:.1f}",
        f"{row.system_rss_mib:.0f}",
        f"{row.clients_rss_mib:.0f}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
    )
