"""How fast Spark reads the history, as a ratio to reading the same rows from plain Parquet.

    python -m bench.spark_scan [--events N] [--folder DIR] [--rounds N] [--json]

Live segments and the archive, all columns and three, a whole day and one hour of it. The ways take
turns, and each one's best round counts. Bytes are what Spark and its workers asked the system for.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.spark_day import write_day
from hms.history import archive, read, session

HOUR = {"from": "2026-11-01T11:00Z", "to": "2026-11-01T12:00Z"}
FEW = ["offset", "event", "time"]


def main() -> None:
    """Write the day, archive it elsewhere, and read both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="hms-scan-"))
    spark = session("bench", is_long_lived=True)
    try:
        figures = measure(spark, folder, options.events, options.rounds)
    finally:
        spark.stop()
        if options.folder is None:
            shutil.rmtree(folder)
    print(json.dumps(figures) if options.json else table(figures))


def measure(spark: Any, folder: Path, events: int, rounds: int) -> dict[str, Any]:
    store, place, plain = folder / "store", folder / "archive", folder / "plain"
    if not store.exists():
        write_day(store, events)
    began = time.perf_counter()
    report = archive(spark, store, str(place))
    figures = {"archived_rows": report.rows, "archive_s": time.perf_counter() - began}
    rows = spark.read.format("hms").option("archive", str(place)).load(str(place))
    if not plain.exists():
        rows.write.parquet(str(plain))
    end = {"endingOffsets": str(report.until_offset)}
    ways = _ways(spark, str(store), str(place), str(plain), end)
    best: dict[str, tuple[float, int, int]] = {}
    for _ in range(rounds):
        for name, frame in ways.items():
            best[name] = min(best.get(name, (9e9, 0, 0)), _timed(frame))
    figures["ways"] = {
        name: {"seconds": seconds, "rows": count, "bytes": size}
        for name, (seconds, count, size) in best.items()
    }
    return figures


def _ways(
    spark: Any, store: str, place: str, plain: str, end: dict[str, str]
) -> dict[str, Callable[[], Any]]:
    def log(**more: str) -> Any:
        return read(spark, store, archive="none", **end, **more)

    def few_of_log(**more: str) -> Any:
        return read(spark, store, archive="none", columns=FEW, **end, **more)

    def parquet() -> Any:
        return spark.read.parquet(plain)

    hour = "time >= '2026-11-01T11:00:00Z' AND time < '2026-11-01T12:00:00Z'"
    return {
        "parquet, all columns": parquet,
        "log, all columns": log,
        "archive, all columns": lambda: read(spark, place),
        'archive, format("hms")': lambda: spark.read.format("hms").load(place),
        "parquet, 3 columns": lambda: parquet().select(*FEW),
        "log, 3 columns": few_of_log,
        "archive, 3 columns": lambda: read(spark, place, columns=FEW),
        "parquet, one hour": lambda: parquet().where(hour),
        "log, one hour": lambda: log(**HOUR),
        "archive, one hour": lambda: read(spark, place, **HOUR),
    }


def _timed(make: Callable[[], Any]) -> tuple[float, int, int]:
    """Seconds, rows and bytes of one reading, into nothing."""
    counted = make().count()
    before, began = _bytes_read(), time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began, counted, _bytes_read() - before


def _bytes_read() -> int:
    """What the processes below this one have read so far; those that ended count no more."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(file.parent.name)] = int(fields[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(_rchar(pid) for pid in found)


def _rchar(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/io").read_text().split()[1])
    except OSError:
        return 0


def table(figures: dict[str, Any]) -> str:
    ways = figures["ways"]
    rate = figures["archived_rows"] / figures["archive_s"]
    lines = [f"archived and compared {figures['archived_rows']:,} rows, {rate:,.0f} a second", ""]
    lines.append(f"{'':24} {'rows':>10} {'rows/s':>10} {'MB read':>8}  of Parquet's speed")
    for name, one in ways.items():
        base = ways["parquet, " + name.rpartition(", ")[2]] if not name.endswith('")') else None
        base = base or ways["parquet, all columns"]
        speed, theirs = (each["rows"] / each["seconds"] for each in (one, base))
        size = one["bytes"] / 1e6
        lines.append(
            f"{name:24} {one['rows']:>10,} {speed:>10,.0f} {size:>8.1f}  {speed / theirs:.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
