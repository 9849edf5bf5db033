"""The power goes at any moment, and leaves what file systems may leave (P1, P2; V04).

HMS_CRASH_STATES=10000 pytest tests/crash -k legal --timeout 3600      how many distinct states
HMS_CRASH_SEED=7                                                       other ones
"""

import os
import random
from collections import Counter

import pytest

from hms.store.journal import Journal
from tests.crash.enumeration import Enumeration, enumerate_states
from tests.crash.legal import Legal
from tests.crash.oracle import MOVED, PINNED
from tests.crash.planted import PLANTS
from tests.crash.program import NODE, SMALL, kept, opened
from tests.crash.programs import PROGRAMS, several_boots
from tests.crash.recording import Named, Noted, RecordingDisk, Synced
from tests.support.effort import tries

STATES = int(os.environ.get("HMS_CRASH_STATES", tries(400)))
SEED = int(os.environ.get("HMS_CRASH_SEED", "1"))
SHARES = (*[0.1] * 6, 1.0)
"""Of the crash points: most mistakes show at many of them, late ones as well as early ones."""


def test_every_legal_crash_state_holds_what_was_confirmed_and_nothing_else(capsys):
    """P1: whatever order the disk wrote in, and also when recovery itself is interrupted."""
    tally = enumerate_states(SEED, STATES)

    with capsys.disabled():
        print(
            f"\ncrash states: {tally.states} distinct at {tally.points} crash points, "
            f"{tally.nested} more during recovery, {len(tally.violations)} violations"
        )
    assert tally.violations == []
    assert tally.states >= STATES


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant, monkeypatch):
    """An enumeration that finds nothing must be one that could."""
    plant(monkeypatch)

    assert any(
        _is_found(PLANTS[plant], SEED + number, share) for number, share in enumerate(SHARES)
    )


def _is_found(program, seed, share):
    """Whether states of this share of a program's crash points show it."""
    try:
        return not Enumeration(seed).run(program, per_point=4, share=share)
    except AssertionError:
        return True  # a boot of the program itself met the loss


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_real_disk_recovers_a_crash_state_to_the_same_records(program, tmp_path):
    """The disk in memory must not be kinder than a real one."""
    chance, disk = random.Random(SEED), RecordingDisk()
    legal = Legal(disk)
    program(disk)
    for step in disk.steps[: chance.randrange(len(disk.steps) // 2, len(disk.steps))]:
        legal.apply(step)
    for n, files in enumerate(legal.states(chance, 4)):
        folder = tmp_path / str(n)
        for name, data in files.items():
            file = folder / name.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        journal = Journal.open(folder / "store", segment_bytes=SMALL, node_uid=NODE)
        found = kept(journal)
        journal.close()
        assert found == kept(opened(RecordingDisk(files)))


def test_one_seed_gives_the_same_trace_twice():
    """P3: a state that was found to be wrong can be built again."""
    traces = []
    for _ in range(2):
        disk = RecordingDisk()
        several_boots(disk)
        traces.append(disk.steps)
    assert traces[0] == traces[1]


def test_the_programs_meet_what_they_are_for():
    """A fault that never comes, or a boot that never happens, would make the states worthless."""
    ends, renames, failed, moved, pinned = Counter(), 0, 0, 0, 0
    for program in PROGRAMS:
        disk = RecordingDisk()
        program(disk)
        for step in disk.steps:
            if isinstance(step, Noted) and step.what == "ended":
                ends[step.value] += 1
            if isinstance(step, Noted) and step.what == "appended":
                moved += step.value[1] == MOVED
                pinned += step.value[1] == PINNED
            renames += isinstance(step, Named) and len(step.names) > 1
            failed += isinstance(step, Synced) and not step.is_good

    assert ends["closed"] >= 8
    assert ends["Killed"] >= 15
    assert ends["StoreFailed"] >= 4
    assert ends["StoreUnavailable"] >= 2
    assert renames >= 40
    assert moved >= 100
    assert pinned >= 60
    assert failed >= 4
