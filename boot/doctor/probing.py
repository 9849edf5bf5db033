"""hms store probe: the tests of a disk that its makers would rather not be asked."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hms.boot.doctor.disk_probe import (
    Sync,
    batch_curve,
    folder_of,
    is_lock_held,
    measure,
    percentile,
)
from hms.boot.doctor.machine import Machine

__all__ = ["MODES", "honesty", "latency", "locks"]

UNKNOWN, DISHONEST = 3, 4
Outcome = tuple[dict[str, Any], int]
"""What is told, and the exit code."""


def latency(path: Path, count: int, sync: Sync = os.fdatasync) -> Outcome:
    """How long it takes, and what that lets one connection that waits for each send do."""
    with folder_of(path) as folder:
        found = measure(folder, count, sync)
        curve = batch_curve(folder, max(10, count // 10), sync)
    said: dict[str, Any] = {}
    for one in found:
        name = one.name.replace(" ", "_")
        said |= {f"{name}_{key}": value for key, value in one.describe().items() if key != "call"}
    said |= {f"batch_of_{size}_bytes_ms": median for size, median in curve}
    said["sends_one_by_one_per_s"] = round(1000 / max(percentile(found[1].values, 0.5), 0.001))
    return said, 0


def locks(path: Path, _count: int) -> Outcome:
    """The sequence that a store's lock goes through."""
    with folder_of(path) as folder:
        fault = is_lock_held(folder)
    return {"locks": fault or "hold"}, DISHONEST if fault else 0


def honesty(
    path: Path, count: int, sync: Sync = os.fdatasync, machine: Machine | None = None
) -> Outcome:
    """Whether the device has seen the syncs. What it keeps through a power cut no program can tell
    that runs on it."""
    asked = machine or Machine()
    mount = asked.mount_of(path)
    device = "" if mount is None else mount.device
    before = asked.block_counts(device)
    with folder_of(path) as folder:
        values = measure(folder, count, sync)[0].values
    after = asked.block_counts(device)
    median = percentile(values, 0.5)
    said: dict[str, Any] = {"syncs": count, "p50_ms": round(median, 3), "device": device}
    if before is None or after is None:
        return said | {"verdict": "the device has no counters"}, UNKNOWN
    writes, flushes = after[0] - before[0], after[1] - before[1]
    said |= {"device_writes": writes, "device_flushes": flushes}
    if writes < count:  # measure() syncs more than twice as often
        return said | {"verdict": "the device has not seen what was synced"}, DISHONEST
    return said | {"verdict": "the device has seen the syncs"}, 0


MODES: Mapping[str, Callable[[Path, int], Outcome]] = {
    "latency": latency,
    "locks": locks,
    "honesty": honesty,
}
