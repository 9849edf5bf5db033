"""The mixed load in words: a row a minute, every pause with its causes, what it comes to."""

import os
import statistics
from collections.abc import Iterator, Sequence

from bench.mixed_figures import Minute, Outcome, Summary
from bench.mixed_pauses import Pause
from bench.mixed_words import KINDS
from bench.plot import plot

__all__ = ["HEAD", "outcome_lines", "pause_line", "picture", "row"]

_PLOTTED = ("queue", "topic", "move", "call")
HEAD = (
    "min  msgs/s arrived  node MiB  clients MiB  log MiB  waiting  cores: node clients others"
    "  ms p50/p99/p99.9/max"
)


def row(minute: Minute) -> str:
    """One minute."""
    cores = minute.cores
    times = "  ".join(f"{name} {_times(minute.times_ms[name])}" for name in KINDS)
    return (
        f"{minute.number:3}  {sum(minute.rates.values()):14,.0f}  {minute.node_rss_mib:8.1f}"
        f"  {minute.clients_rss_mib:11.1f}  {minute.log_mib:7,.0f}  {minute.waiting:7,}"
        f"  {cores['node']:11.2f} {cores['clients']:7.2f} {cores['others']:6.2f}  {times}"
    )


def _times(times: dict[str, float]) -> str:
    return "/".join(f"{value:.1f}" if value < 100 else f"{value:.0f}" for value in times.values())


def pause_line(pause: Pause, begin_ns: int) -> str:
    """When it was, whom it met, and what the probes saw in it."""
    seen = ", ".join(f"{cause} {ms:.0f} ms" for cause, ms in sorted(pause.lost_ms.items()))
    who = f" (thread {pause.who})" if pause.who else ""
    verdict = "" if pause.is_explained else "; UNEXPLAINED"
    return (
        f"pause at {(pause.begin_ns - begin_ns) / 1e9:.1f} s, worst {pause.worst_ms:.0f} ms, of"
        f" {', '.join(sorted(pause.kinds))}: {seen or 'the probes saw nothing'}{who}{verdict}"
    )


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """What it all comes to."""
    if outcome.summary is not None:
        yield from _summary_lines(outcome.summary)
        others = statistics.mean(minute.cores["others"] for minute in outcome.minutes)
        yield f"others on this machine had {others:.2f} of its {os.cpu_count()} processors"
    yield _pauses_line(outcome.pauses)
    for name, books in outcome.books.items():
        yield f"{name:6} {books.sent:,} sent, {books.received:,} arrived"
    yield from (f"FAULT: {fault}" for fault in outcome.faults)


def _summary_lines(summary: Summary) -> Iterator[str]:
    yield "medians of the first and of the last third:"
    for name, (first, last) in summary.p999_ms.items():
        yield f"  {name:6} p99.9 {first:8.2f} ms, {last:8.2f} ms, ratio {_ratio(first, last)}"
    for who, (first, last) in (
        ("node", summary.rss_mib),
        ("clients", summary.clients_rss_mib),
    ):
        yield f"  {who} RSS {first:.1f} MiB, {last:.1f} MiB, ratio {_ratio(first, last)}"
    yield f"  node RSS grew by {summary.slope_kib:.1f} KiB a minute"


def _ratio(first: float, last: float) -> str:
    return f"{last / first:.2f}" if first else "-"


def _pauses_line(pauses: Sequence[Pause]) -> str:
    by_cause: dict[str, int] = {}
    for pause in pauses:
        cause = max(pause.lost_ms, key=lambda one: pause.lost_ms[one], default="")
        cause = cause if pause.is_explained else "unexplained"
        by_cause[cause] = by_cause.get(cause, 0) + 1
    told = ", ".join(f"{count} {cause}" for cause, count in sorted(by_cause.items()))
    return f"{len(pauses)} pauses above 100 ms" + (f": {told}" if told else "")


def picture(minutes: Sequence[Minute]) -> str:
    """p99.9 of each kind and the node's memory, minute by minute, relative to the first third."""
    third = max(1, len(minutes) // 3)
    found = {f"p99.9 {n}": [one.times_ms[n]["p99.9"] for one in minutes] for n in _PLOTTED}
    found["node RSS"] = [one.node_rss_mib for one in minutes]
    lines = {}
    for name, values in found.items():
        base = sorted(values[:third])[third // 2] or 1.0
        lines[name] = [(float(at), value / base) for at, value in enumerate(values, 1)]
    title = "Mixed load, by minute, relative to the median of the first third"
    return plot(lines, title, is_even=True)
