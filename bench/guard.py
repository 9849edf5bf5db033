"""The regression guard: short W1 to W6 whose ratios to the machine's limit must not fall.

`python -m bench.guard` compares with floors.toml and ends with 1 when one is missed;
`python -m bench.guard --raise` writes the floors anew where this run allows higher ones. Only
ratios of one run are compared, so that a slow machine fails no build; what falls below its floor is
measured twice more before it counts.
"""

import argparse
import statistics
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from bench.command import said
from hms.boot.bench.measure import measure
from hms.boot.bench.systems import HMS, NullSystem, System
from hms.boot.bench.workloads import WORKLOADS, Workload

__all__ = ["main"]

FLOORS = Path(__file__).with_name("floors.toml")
MARGIN = 0.5
"""A floor is so much of what was measured when it was set."""
RUNS = 3
_COUNTS = {"W1": 400, "W2": 30_000, "W3": 20_000, "W4": 20_000, "W5": 30_000, "W6": 4_000}


def _ratio(workload: Workload, folder: Path) -> float:
    """Of one pair: the node's rate to the limit's."""
    systems: tuple[System, ...] = (HMS, NullSystem())
    ours, limit = (
        measure(system, workload.for_limit() if system.name == "limit" else workload, folder)
        for system in systems
    )
    return ours.rate / limit.rate


def _measured(name: str, floor: float, folder: Path) -> float:
    """One pair when that is enough; the median of three when it is not."""
    workload = WORKLOADS[name].with_count(_COUNTS[name])
    ratios = [_ratio(workload, folder)]
    if ratios[0] < floor:
        ratios += [_ratio(workload, folder) for _ in range(RUNS - 1)]
    return statistics.median(ratios)


def _read() -> dict[str, float]:
    return tomllib.loads(FLOORS.read_text(encoding="utf-8"))["floors"] if FLOORS.exists() else {}


def _write(floors: dict[str, float]) -> None:
    head = "# Least ratios of HMS to the null broker (python -m bench.guard); they may only rise.\n"
    rows = "".join(f"{name} = {floor:.3f}\n" for name, floor in floors.items())
    FLOORS.write_text(f"{head}[floors]\n{rows}", encoding="utf-8")


def main() -> None:
    """Measure, compare, and tell."""
    made = argparse.ArgumentParser(description="Fail when HMS has become slower.")
    made.add_argument("--raise", action="store_true", dest="is_raising")
    made.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()))
    options = made.parse_args()
    floors, missed, begin = _read(), [], time.monotonic()
    for name in _COUNTS:
        floor = floors.get(name, 0.0)
        ratio = _measured(name, 1.0 if options.is_raising else floor, options.data)
        is_missed = ratio < floor and not options.is_raising
        missed += [name] if is_missed else []
        said(f"{name} {ratio:.3f} of the limit, floor {floor:.3f}{' MISSED' * is_missed}")
        floors[name] = max(floor, ratio * MARGIN) if options.is_raising else floor
    said(f"{time.monotonic() - begin:.0f} s")
    if options.is_raising:
        _write(floors)
    if missed:
        sys.exit(f"slower than recorded in {FLOORS.name}: {', '.join(missed)}")


if __name__ == "__main__":
    main()
