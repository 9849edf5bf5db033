"""The runs whose crash points are enumerated: boots, segment changes, kills, full disks, failed
syncs. Those that clean the log are in tests.crash.cleaning.
"""

import errno
import os
from collections.abc import Callable

from tests.crash.cleaning import CLEANING
from tests.crash.program import (
    LARGE,
    PLAIN,
    Run,
    Setting,
    batches,
    fail_at,
    io_error,
    live,
    no_fault,
)
from tests.crash.recording import Killed, RecordingDisk


def several_boots(disk: RecordingDisk) -> None:
    """Batches of several records, spares made ahead, segment changes, four boots."""
    for boot in range(4):
        sizes = [tuple(40 + 97 * (n + boot + k) % 700 for k in range(n % 4 + 1)) for n in range(7)]
        live(disk, batches(*sizes))


def batches_over_segments(disk: RecordingDisk) -> None:
    """No spare is ready, and single batches fill more than one segment."""

    def work(run: Run) -> None:
        for n in range(3):
            run.batch(*[900 + n * 50] * 6)

    live(disk, work)
    live(disk, work)


def larger_segments(disk: RecordingDisk) -> None:
    """Records over sectors and pages, in segments of four pages."""
    sizes = ((5000,), (100, 9000, 100), (12000,), (3000, 3000), (20, 20, 20))
    for _ in range(2):
        live(disk, batches(*sizes), Setting(LARGE, PLAIN.limits))


def sealed_by_hand(disk: RecordingDisk) -> None:
    """An operator has a segment sealed: behind little, twice in a row, and without a spare."""

    def work(run: Run) -> None:
        for sizes in ((100,), (40, 900), (60,)):
            run.seal()
            run.batch(*sizes)
            run.seal()
            run.seal()
            run.journal.maintain()

    for _ in range(3):
        live(disk, work)


def killed_in_between(disk: RecordingDisk) -> None:
    """The process dies at a call, the cache stays, the next boot goes on from what it sees."""
    for call in ("fdatasync", "pwritev", "rename", "fsync_dir"):
        for nth in (1, 3):
            live(disk, _until_fault(call, nth, Killed()))


def _until_fault(call: str, nth: int, fault: BaseException) -> Callable[[Run], None]:
    def work(run: Run) -> None:
        run.batch(300, 500)
        run.disk.before = fail_at(nth, call, fault)
        for n in range(6):
            run.batch(700, 40 + n, 900)

    return work


def killed_while_booting(disk: RecordingDisk) -> None:
    """Recovery itself dies at each of its calls; the next one begins with what that left."""
    for call in ("ftruncate", "pwritev", "fsync", "fdatasync", "rename", "fsync_dir"):
        for nth in (1, 2):
            live(disk, _leave_unconfirmed)
            disk.before = fail_at(nth, call, Killed())
            live(disk, batches((50,)))


def _leave_unconfirmed(run: Run) -> None:
    """The last record is written, and its sync does not come."""
    run.batch(100, 1200)
    run.disk.before = fail_at(1, "fdatasync", Killed())
    run.batch(900)


def full_disk(disk: RecordingDisk) -> None:
    """No space for the spare for a while; what is begun goes on, and all when space returns."""
    live(disk, _work_through_a_full_disk)
    live(disk, _work_until_it_is_full)
    live(disk, batches((100,)))


def _work_through_a_full_disk(run: Run) -> None:
    batches((600,), (600, 1500))(run)
    run.disk.before = no_space
    for sizes in ((500, 900), (700,)):
        run.disk.now_s += 5
        batches(sizes)(run)
    run.disk.before = no_fault
    run.disk.now_s += 5
    batches((1500, 1500), (1500, 1500))(run)


def _work_until_it_is_full(run: Run) -> None:
    run.disk.before = no_space
    for _ in range(9):
        run.batch(900)


def no_space(call: str, name: str) -> None:
    """Nothing that needs space is written."""
    if call == "allocate" and name.endswith(("spare.log", ".reserve")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def failed_syncs(disk: RecordingDisk) -> None:
    """A sync fails, the node stops; the cache shows its successor what the disk may never get."""
    for call, nth in (("fdatasync", 1), ("fdatasync", 2), ("fdatasync", 5), ("pwritev", 2)):
        live(disk, _until_fault(call, nth, io_error()))
        live(disk, batches((60,)))
    for call in ("fsync", "fdatasync"):
        live(disk, _leave_unconfirmed)
        disk.before = fail_at(1, call, io_error())
        live(disk, batches((10,)))
    live(disk, batches((10,)))


PROGRAMS: tuple[Callable[[RecordingDisk], None], ...] = (
    several_boots,
    batches_over_segments,
    larger_segments,
    sealed_by_hand,
    killed_in_between,
    killed_while_booting,
    full_disk,
    failed_syncs,
    *CLEANING,
)
