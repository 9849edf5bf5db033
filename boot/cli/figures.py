"""Figures of a measurement: percentiles, and what the bare disk does with the same bytes."""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["QUANTILES", "measure_disk", "percentiles_ms"]

QUANTILES = {"p50": 0.50, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}

FILE_BYTES_MAX = 1 << 30
"""Behind this the bare script starts over at the file's beginning."""


def percentiles_ms(times_ns: Sequence[int]) -> dict[str, float]:
    """The quantiles of some times, in milliseconds; empty when nothing was timed."""
    ordered = sorted(times_ns)
    if not ordered:
        return {}
    last = len(ordered) - 1
    found = {name: ordered[min(int(last * q + 0.5), last)] for name, q in QUANTILES.items()}
    return {name: round(ns / 1e6, 3) for name, ns in {**found, "max": ordered[last]}.items()}


def measure_disk(folder: Path, *, message_bytes: int, count: int, batch: int) -> float:
    """Messages a second of a bare loop: append a batch with one write, fdatasync, and again.

    The file is given to the disk in advance, as the segments of the log are, and removed after.
    """
    folder.mkdir(parents=True, exist_ok=True)
    block = os.urandom(message_bytes) * batch
    with tempfile.TemporaryFile(dir=folder) as file:
        number = file.fileno()
        os.posix_fallocate(number, 0, min(message_bytes * count + len(block), FILE_BYTES_MAX))
        os.fsync(number)
        begin, at = time.perf_counter(), 0
        for done in range(0, count, batch):
            part = block[: message_bytes * min(batch, count - done)]
            at = 0 if at + len(part) > FILE_BYTES_MAX else at
            os.pwrite(number, part, at)
            os.fdatasync(number)
            at += len(part)
        return count / (time.perf_counter() - begin)
