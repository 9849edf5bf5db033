"""An archive that is killed again and again: nothing lost, nothing twice, resumed by one command.

    python -m bench.spark_kills [--kills N] [--seed N] [--folder DIR] [--in-one-session]

A log grows while `hms history archive` runs over it and is killed, with its JVM, until so many runs
have died of our signal: in every phase as often as in the others, at a random moment of it (see
spark_phases). A run that ends before its kill is counted apart, and another one is killed for it.
At last one runs to its end, and the archive is compared with the log, row by row. What is archived
is let go from time to time, as a node with a short history would.

With --in-one-session the run dies at a random instruction of its driver instead, and the session
lives on: far more deaths a minute, and Spark's tasks go on writing for a run that is no more.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.spark_day import START_MS, append_batches, open_journal
from bench.spark_phases import PHASES, Killer, Left, phase_of
from hms.history import archive, archived_until, session
from hms.history.archive_mark import read_mark
from hms.history.archive_place import LocalPlace
from hms.history.manifest import load_manifest
from hms.history.scan import plan, read_part
from hms.history.scope import Scope
from hms.history.segments import sealed
from hms.store.journal import Journal

SEGMENT_BYTES = 1 << 19
BATCHES_EACH = 60
"""Of 128 messages, so many are written before each run: a few segments."""


TRIES_PER_KILL = 4


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
    rng = random.Random(options.seed)
    try:
        run = _inside(session("bench"), rng) if options.in_one_session else _outside(rng)
        _Trial(folder, run).kill(options.kills)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


class Ended(NamedTuple):
    """How a run ended, and in which phase it was then."""

    is_killed: bool
    phase: str
    seconds: float


Run = Callable[[Path, Path, bool], Ended]
"""Runs the archive of a store into a place; True: kills it."""


class _Trial:
    """One log, its archive, and what was written."""

    def __init__(self, folder: Path, run: Run) -> None:
        self._store, self._where, self._run = folder / "store", folder / "archive", run
        self._journal: Journal = open_journal(self._store, SEGMENT_BYTES)
        self._written: dict[int, tuple[str, str]] = {}
        self._runs = 0

    def kill(self, kills: int) -> None:
        """So many kills, then a run that ends; compare."""
        hit, ended = Counter[str](), 0
        self._once(is_to_die=False)
        while hit.total() < kills:
            assert ended < TRIES_PER_KILL * kills, "the runs end before they can be killed"
            done = self._once(is_to_die=True)
            hit.update([done.phase] if done.is_killed else [])
            ended += not done.is_killed
        self._once(is_to_die=False)
        self._journal.close()
        phases = ", ".join(f"{hit[phase]} {phase}" for phase in PHASES)
        print(f"{hit.total()} runs were killed ({phases}), {ended} ended before their kill")
        _compare(self._where, self._written, archived_until(self._store))

    def _once(self, *, is_to_die: bool) -> Ended:
        append_batches(self._journal, self._runs * BATCHES_EACH, BATCHES_EACH, START_MS)
        _remember(self._store, self._written)
        self._runs += 1
        done = self._run(self._store, self._where, is_to_die)
        _let_go(self._store)
        how = "killed" if done.is_killed else "ended"
        until = archived_until(self._store)
        print(f"{self._runs:3} {done.seconds:5.1f} s {how} {done.phase}: {until}", flush=True)
        return done


def _outside(rng: random.Random) -> Run:
    """Runs in processes of their own, which are killed with their JVM."""
    killer = Killer(rng)

    def run(store: Path, where: Path, is_to_die: bool) -> Ended:
        began, aimed = time.monotonic(), killer.aim() if is_to_die else None
        with tempfile.TemporaryFile() as said:
            process = _start(store, where, said)
            phase = killer.follow(process, store, where, aimed)
            is_killed = process.returncode == -signal.SIGKILL
            if not is_killed and process.returncode:
                said.seek(0)
                raise SystemExit(f"a run ended with {process.returncode}:\n{said.read().decode()}")
        if aimed and not is_killed:
            killer.missed(aimed)
        return Ended(is_killed, phase, time.monotonic() - began)

    return run


def _start(store: Path, where: Path, said: Any) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "hms.boot", "history", "archive"]
    return subprocess.Popen(
        [*command, "--path", str(store), "--where", str(where)],
        stdout=subprocess.DEVNULL,
        stderr=said,
        start_new_session=True,
    )


class Died(BaseException):
    """The run ends here."""


def _inside(spark: Any, rng: random.Random) -> Run:
    """Runs in this process, at the latest killed a little after an undisturbed one would end."""
    whole_s = [0.0]

    def die(_signal: int, _frame: object) -> None:
        raise Died

    def run(store: Path, where: Path, is_to_die: bool) -> Ended:
        before, began, is_killed = Left.at(store, where), time.monotonic(), False
        signal.signal(signal.SIGALRM, die)
        after_s = max(0.001, whole_s[0] * rng.uniform(0, 1.1)) if is_to_die else 0
        signal.setitimer(signal.ITIMER_REAL, after_s)
        try:
            archive(spark, store, str(where))
        except Died:
            is_killed = True
            spark.sparkContext._gateway.close()  # noqa: SLF001 - an answer may be half read
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        seconds = time.monotonic() - began
        whole_s[0] = whole_s[0] if is_killed else seconds
        return Ended(is_killed, phase_of(store, where, before), seconds)

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
