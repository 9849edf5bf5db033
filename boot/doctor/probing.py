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

__all__ = ["MODES", "honesty", "latency", "locks", "peer", "witnessed"]

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


def kill(path: Path, runs: int) -> Outcome:
    """A node there is killed so many times."""
    from hms.boot.doctor.kill_probe import kill as killed  # noqa: PLC0415 - boots a node

    said, is_good = killed(path, runs)
    return said, 0 if is_good else DISHONEST


def damage(path: Path, count: int) -> Outcome:
    """Bits of a copy of a store are flipped."""
    from hms.boot.doctor.damage_probe import damage as damaged  # noqa: PLC0415 - loads the store

    said, is_good = damaged(path, count)
    return said, 0 if is_good else DISHONEST


def peer(path: Path, rounds: int, wait_s: float) -> Outcome:
    """What the folder does between two machines that both run this."""
    from hms.boot.doctor.peer_probe import probe  # noqa: PLC0415 - loads the store

    said = probe(path, rounds, wait_s)
    if said["faults"]:
        return said | {"verdict": "two machines cannot share it"}, DISHONEST
    if said["is_same_machine"]:
        return said | {"verdict": "all holds, but both ran on one machine"}, UNKNOWN
    return said | {"verdict": "two machines can share it"}, 0


def witnessed(path: Path, mode: str, count: int, address: tuple[str, int]) -> Outcome:
    """honesty: write and tell so many numbers; check: all runs that are found there."""
    from hms.boot.doctor import witness  # noqa: PLC0415 - loads the store

    if mode == "honesty":
        return witness.tell(address, path, count), 0
    runs = witness.runs_in(path)
    rows = [
        witness.examined(folder, run, witness.ask(address, run)) for run, folder in runs.items()
    ]
    bad = [row for row in rows if not row["is_good"]]
    unknown = [row for row in rows if not row["confirmed"]]
    said = {"runs": len(rows), "lost": sum(row["lost"] for row in rows), "details": rows}
    if bad:
        return said | {"verdict": bad[0]["verdict"]}, DISHONEST
    if not rows or unknown:
        why = "the witness has not heard of it" if rows else "there is no run"
        return said | {"verdict": why}, UNKNOWN
    return said | {"verdict": witness.KEPT}, 0


MODES: Mapping[str, Callable[[Path, int], Outcome]] = {
    "latency": latency,
    "locks": locks,
    "honesty": honesty,
    "kill": kill,
    "damage": damage,
}
