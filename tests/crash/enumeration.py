"""Every crash point of a program's trace, its legal states, each recovered and judged."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from hms.errors.tree import HmsError
from hms.store.journal.reader import list_segments, read_segment
from tests.crash.cleaning import LIMITED
from tests.crash.legal import Files, Legal
from tests.crash.oracle import Kept, Oracle
from tests.crash.program import STORE, dictionary, kept, opened, without_dictionaries
from tests.crash.programs import PROGRAMS
from tests.crash.recording import Noted, RecordingDisk

STATES_OF_ALL_POINTS = 10000
"""About what one look at every crash point gives."""
FRESH = (b"after the crash", b"x" * 700)


Program = Callable[[RecordingDisk], None]


@dataclass
class Tally:
    """What was looked at, and the violations."""

    points: int = 0
    states: int = 0
    recoveries: int = 0
    nested: int = 0
    violations: list[str] = field(default_factory=list)


class Enumeration:
    """Judges the crash states of programs; a state that was seen is not recovered again."""

    def __init__(self, seed: int, nested_every: int = 10) -> None:
        self._chance = random.Random(seed)
        self._nested_every = nested_every
        self._seen: dict[bytes, list[Kept] | str] = {}
        self._keeps_history = True
        self.tally = Tally()

    def run(self, program: Program, per_point: int, share: float = 1.0) -> bool:
        """Judge up to per_point states of this share of a program's crash points, and those of a
        torn write; whether all was well."""
        disk = RecordingDisk()
        legal, oracle = Legal(disk), Oracle()
        program(disk)
        self._keeps_history = program not in LIMITED
        for at, step in enumerate(disk.steps):
            legal.apply(step)
            oracle.apply(step)
            if isinstance(step, Noted) or self._chance.random() >= share:
                continue
            self.tally.points += 1
            where = f"{program.__name__}, step {at} {step!r:.120}"
            for files in legal.states(self._chance, per_point):
                self._judge(files, oracle, where)
            if self.tally.violations:
                return False
        return True

    def _judge(self, files: Files, oracle: Oracle, where: str) -> None:
        found = self._outcome(files)
        fault = found if isinstance(found, str) else oracle.fault(found)
        if fault is not None:
            self.tally.violations.append(f"{where}: {fault}")

    def _outcome(self, files: Files) -> list[Kept] | str:
        """The records of a state, or what its recovery does wrong."""
        key = _fingerprint(files)
        if key not in self._seen:
            self.tally.states += 1
            self._seen[key] = self._recover(files)
        return self._seen[key]

    def _recover(self, files: Files) -> list[Kept] | str:
        self.tally.recoveries += 1
        try:
            found = self._recover_and_go_on(files)
            if self.tally.states % self._nested_every == 0:
                self._crash_while_recovering(files, found)
        except (HmsError, AssertionError) as error:
            return f"{type(error).__name__}: {error}"
        return found

    def _recover_and_go_on(self, files: Files) -> list[Kept]:
        """Recovered twice it is the same, and what is written then comes behind it."""
        disk = RecordingDisk(files)
        found = _read(disk)
        _check_history(disk, found, is_whole=self._keeps_history)
        journal = opened(disk)
        assert kept(journal) == found, "the second recovery differs from the first"
        journal.start(dictionary)
        fresh = []
        for body in FRESH:
            journal.append(3, 1, (body,))
            fresh.append((journal.last_lsn, 3, 1, body))
        journal.commit()
        journal.maintain()
        disk.end_process()
        again = _read(disk)
        _check_history(disk, again, is_whole=self._keeps_history)
        assert again == found + fresh, "what was written after the crash is not behind it"
        return found

    def _crash_while_recovering(self, files: Files, found: list[Kept]) -> None:
        """Each crash state of the recovery is recovered to the same again, and what it adds."""
        disk = RecordingDisk(files)
        legal = Legal(disk)
        journal = opened(disk)
        recovered = kept(journal)
        journal.start(dictionary)
        assert recovered == found
        for step in disk.steps:
            legal.apply(step)
            for again in legal.states(self._chance, 1):
                self.tally.nested += 1
                assert _read(RecordingDisk(again)) == found, "a crash while recovering changed it"


def _read(disk: RecordingDisk) -> list[Kept]:
    journal = opened(disk)
    try:
        return kept(journal)
    finally:
        journal.close()


def _check_history(disk: RecordingDisk, found: list[Kept], *, is_whole: bool) -> None:
    """A reader finds the log behind what the history keeps; where nothing is removed, all of it."""
    segments = list_segments(STORE, disk)
    records = [record for info in segments for record in read_segment(info.file, disk=disk)]
    lsns = [(record[0], record[0] + record[2]) for record in records]
    gaps = [one for one, other in pairwise(lsns) if one[1] != other[0]]
    assert not (gaps and is_whole), "the history has a gap"
    behind = without_dictionaries(records)
    assert behind[len(behind) - len(found) :] == found, "the history is not what was recovered"


def _fingerprint(files: Files) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(files):
        if not name.endswith("/LOCK"):
            digest.update(b"%s %d\n" % (name.encode(), len(files[name])))
            digest.update(files[name])
    return digest.digest()


def enumerate_states(seed: int, states: int) -> Tally:
    """Judge at least so many distinct crash states of all programs, or until one is wrong."""
    judged = Enumeration(seed)
    share, per_point = min(1.0, states / STATES_OF_ALL_POINTS), 1
    while judged.tally.states < states:
        for program in PROGRAMS:
            if not judged.run(program, per_point, share):
                return judged.tally
        per_point *= 2
    return judged.tally
