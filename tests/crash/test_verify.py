"""Verify over every kind of damage: it judges as the boot does."""

import random
from pathlib import Path

from hms.errors.catalogue import StoreCorrupt
from hms.store.journal.store_examination import examine
from tests.crash.cleaning import SHORT_HISTORY, busy
from tests.crash.damage import damages, three_boots
from tests.crash.program import STORE, Run, kept, no_fault, opened
from tests.crash.recording import RecordingDisk

SEED = 4


def test_verify_judges_as_the_boot_does():
    """A store that verify calls good must boot, and one that boots must not be called damaged."""
    files, seen = three_boots(), set()
    for damaged in damages(files, random.Random(SEED)):
        try:
            kept(opened(RecordingDisk(damaged)))
        except StoreCorrupt:
            boots = False
        else:
            boots = True
        verdict = examine(STORE, RecordingDisk(damaged)).verdict
        seen.add((boots, verdict))
    assert seen == {(True, "good"), (True, "torn"), (False, "damaged")}


def test_verify_tells_what_the_node_needs_from_what_only_the_history_does():
    """The same rule as the boot's, also for segments that a crash left behind under their names."""
    disk, seen = RecordingDisk(), set()
    run = Run(disk, SHORT_HISTORY)
    busy(30)(run)
    run.journal.maintain = lambda: None
    busy(20)(run)
    disk.end_process()
    names = {Path(name).suffix for name in disk.names}
    assert names >= {".log", ".history"}
    files = {
        n: d for n, d in disk.files().items() if not n.endswith(("LOCK", "spare.log", ".reserve"))
    }
    sound = kept(opened(RecordingDisk(files)))
    for damaged in damages(files, random.Random(SEED + 1)):
        try:
            found = kept(opened(RecordingDisk(damaged)))
        except StoreCorrupt:
            boots = False
        else:
            boots = True
            assert found == sound[: len(found)]
        told = examine(STORE, RecordingDisk(damaged))
        is_needed = any(damage.is_needed for damage in told.damages)
        assert boots is not is_needed, (told.damages, boots)
        seen.add((boots, bool(told.damages)))
    assert seen == {(True, False), (True, True), (False, True)}


def test_verify_beside_a_node_that_cleans_its_log_sees_no_damage():
    """Segments are renamed and removed between any two looks."""
    disk = RecordingDisk()
    run = Run(disk, SHORT_HISTORY)
    seen = []

    def work(call, _name):
        disk.before = no_fault
        if call in {"open", "list_dir", "pread"} and len(seen) < 400:
            seen.append(call)
            busy(1)(run)
        disk.before = work

    busy(30)(run)
    while len(seen) < 400:
        disk.before = work
        found = examine(STORE, disk)
        assert found.in_use_by is not None
        assert found.damages == []
