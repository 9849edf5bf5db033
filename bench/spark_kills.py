"""An archive that is killed again and again: nothing lost, nothing twice, resumed by one command.

    python -m bench.spark_kills [--kills N] [--seed N] [--folder DIR] [--in-one-session]

A log grows while `hms history archive` runs over it and is killed, with its JVM, after a random
time, at the latest a little after an undisturbed run would end. At last it runs to its end, and the
archive is compared with the log, row by row. What is archived is let go from time to time, as a
node with a short history would.

With --in-one-session the run dies at a random instruction of its driver instead, and the session
lives on: far more deaths a minute, and Spark's tasks go on writing for a run that is no more.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.spark_day import START_MS, append_batches, open_journal
from hms.history import archive, archived_until, session
from hms.history.archive_mark import read_mark
from hms.history.archive_place import LocalPlace
from hms.history.manifest import load_manifest
from hms.history.scan import plan, read_part
from hms.history.scope import Scope
from hms.history.segments import sealed

SEGMENT_BYTES = 1 << 19
BATCHES_EACH = 60
"""Of 128 messages, so many are written before each run: a few segments."""


def main() -> None:
    """Kill, write, kill …, then compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--in-one-session", action="store_true")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="hms-kills-"))
    print(f"seed {options.seed}", flush=True)
    try:
        run = _archive_inside(session("bench")) if options.in_one_session else _archive
        _run(folder, options.kills, random.Random(options.seed), run)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


Archive = Callable[[Path, Path, float | None], tuple[float, int]]


def _run(folder: Path, kills: int, rng: random.Random, run: Archive) -> None:
    store, where = folder / "store", folder / "archive"
    journal = open_journal(store, SEGMENT_BYTES)
    written: dict[int, tuple[str, str]] = {}
    whole = 0.0
    for number in range(kills + 2):
        append_batches(journal, number * BATCHES_EACH, BATCHES_EACH, START_MS)
        _remember(store, written)
        is_whole = number in {0, kills + 1}
        before = archived_until(store)
        took, code = run(store, where, None if is_whole else whole * rng.uniform(0.1, 1.2))
        if code == 0:
            whole = took
        elif archived_until(store) == before:
            whole *= 1.1  # there is more to do by now, or the machine is busier
        _let_go(store)
        mark = read_mark(store)
        print(
            f"{number + 1:3} {took:5.1f} s exit {code}: {mark.until_offset if mark else 0}",
            flush=True,
        )
    journal.close()
    _compare(where, written, archived_until(store))


def _archive(store: Path, where: Path, kill_after_s: float | None) -> tuple[float, int]:
    began = time.monotonic()
    command = [sys.executable, "-m", "boot", "history", "archive"]
    process = subprocess.Popen(
        [*command, "--path", str(store), "--where", str(where)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(kill_after_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return time.monotonic() - began, process.returncode


class Died(BaseException):
    """The run ends here."""


def _archive_inside(spark: Any) -> Archive:
    def die(_signal: int, _frame: object) -> None:
        raise Died

    def run(store: Path, where: Path, kill_after_s: float | None) -> tuple[float, int]:
        began, code = time.monotonic(), 0
        signal.signal(signal.SIGALRM, die)
        signal.setitimer(signal.ITIMER_REAL, kill_after_s or 0)
        try:
            archive(spark, store, str(where))
        except Died:
            code = -9
            spark.sparkContext._gateway.close()  # noqa: SLF001 - an answer may be half read
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return time.monotonic() - began, code

    return run


def _remember(store: Path, written: dict[int, tuple[str, str]]) -> None:
    scope = Scope(archive="none", first_offset=max(written, default=0), fails_on_loss=False)
    for part in plan(store, scope):
        for batch in read_part(part, scope, ()):
            written.update((e.offset, (e.event, e.message_id)) for e in batch)


def _let_go(store: Path) -> None:
    """As the node does with what the mark says."""
    mark = read_mark(store)
    for segment in sealed(store):
        if mark is not None and segment.number < mark.until_segment:
            Path(segment.file).unlink()


def _compare(where: Path, written: dict[int, tuple[str, str]], until: int) -> None:
    seen: dict[int, tuple[str, str]] = {}
    doubled = 0
    for part in plan(where, Scope()):
        for batch in read_part(part, Scope(), ()):
            doubled += sum(event.offset in seen for event in batch)
            seen.update((e.offset, (e.event, e.message_id)) for e in batch)
    wanted = {offset: told for offset, told in written.items() if offset < until}
    place = LocalPlace(str(where), where)
    manifest = load_manifest(place)
    assert manifest is not None
    left = set(place.files("data")) - {file.name for file in manifest.files}
    left -= {name for name, _ in manifest.dropped}
    named = f"{len(left)} files that nobody names"
    lost = sum(offset not in seen for offset in wanted)
    differ = sum(seen.get(offset, told) != told for offset, told in wanted.items())
    print(f"{len(wanted):,} rows below offset {until} were to be archived:")
    print(f"{lost} lost, {doubled} twice, {differ} differ, {len(seen) - len(wanted)} more; {named}")
    if lost or doubled or differ or len(seen) != len(wanted) or left:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
