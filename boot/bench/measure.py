"""One measurement: a system with an empty store, its clients, and what came of it."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hms.boot.bench.client import Report
from hms.boot.bench.client_pool import BenchFailed, client_pool
from hms.boot.bench.machine import Usage, probe, usage
from hms.boot.bench.systems import Running, System
from hms.boot.bench.workloads import Workload
from hms.boot.cli.figures import percentiles_ms

__all__ = ["Figures", "measure"]

RUN_S = 300.0


class Figures(msgspec.Struct, kw_only=True):
    """What was measured. CPU in microseconds for each message; memory at its peak, in MiB."""

    system: str
    workload: str
    messages: int
    seconds: float
    rate: float
    times_ms: dict[str, float]
    system_cpu_us: float
    clients_cpu_us: float
    system_rss_mib: float
    clients_rss_mib: float
    misordered: int
    machine: dict[str, float]


def measure(system: System, workload: Workload, folder: Path) -> Figures:
    """Start the system, run the workload, end the system; folder: on the disk to be measured."""
    machine = probe(folder)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as place,
        system.run(Path(place), workload.needs()) as running,
    ):
        if workload.is_filled and system.name != "limit":
            with client_pool([workload.fill(system, running)]) as filling:
                filling.go()
                filling.reports(RUN_S)
        return _measured(system, workload, running, machine)


def _measured(
    system: System, workload: Workload, running: Running, machine: dict[str, float]
) -> Figures:
    with client_pool(workload.tasks(system, running)) as clients:
        before, _ = usage(running.pids)
        clients.go()
        reports = clients.reports(RUN_S)
        after, peak = usage(running.pids)
    _check(workload, reports)
    return _figures((system.name, workload.name), reports, (after - before, peak), machine)


def _figures(
    names: tuple[str, str], reports: Sequence[Report], used: Usage, machine: dict[str, float]
) -> Figures:
    """What was received counts, or sent when nobody receives."""
    counted = [r for r in reports if r.role == "receive"] or reports
    begin_ns = min(r.begin_ns for r in reports)
    seconds = (max(r.end_ns for r in counted) - begin_ns) / 1e9
    messages = sum(r.received or r.sent for r in counted)
    return Figures(
        system=names[0],
        workload=names[1],
        messages=messages,
        seconds=round(seconds, 4),
        rate=messages / seconds,
        times_ms=percentiles_ms([t for r in counted for t in r.times_ns]),
        system_cpu_us=round(used[0] / messages * 1e6, 2),
        clients_cpu_us=round(sum(r.cpu_s for r in reports) / messages * 1e6, 2),
        system_rss_mib=_mib(used[1]),
        clients_rss_mib=_mib(sum(r.peak_rss_bytes for r in reports)),
        misordered=sum(r.misordered for r in reports),
        machine=machine,
    )


def _mib(size_bytes: int) -> float:
    return round(size_bytes / (1 << 20), 1)


def _check(workload: Workload, reports: Sequence[Report]) -> None:
    """A figure over messages that were lost would be worth nothing."""
    wanted = workload.count * (1 if workload.selector else workload.fan)
    wanted *= workload.roles.count("receive") if workload.is_topic else 1
    came = sum(r.received for r in reports)
    if workload.has_receivers and came < wanted:
        raise BenchFailed(f"{workload.name}: only {came} of {wanted} messages came")
