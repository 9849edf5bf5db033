"""Programs that clean the log: what waits in the oldest segment moves, then it is let go."""

from collections.abc import Callable

from hms.store.journal.segment_manager import LogLimits
from tests.crash.program import SMALL, Run, Setting, fail_at, io_error, live
from tests.crash.recording import Killed, RecordingDisk

ALL_HISTORY = Setting(SMALL, LogLimits())
SHORT_HISTORY = Setting(SMALL, LogLimits(history_bytes_max=2 * SMALL))
NO_HISTORY = Setting(SMALL, LogLimits(history_bytes_max=0))


def busy(rounds: int, *, spare: bool = True) -> Callable[[Run], None]:
    """Work: messages come and go, one in five stays long, and the log is cleaned."""

    def work(run: Run) -> None:
        for n in range(rounds):
            run.append(500 + 60 * (n % 4))
            run.append(300)
            run.take(2 if n % 3 else 1)
            run.clean()
            run.commit()
            if spare or n % 3 == 0:
                run.journal.maintain()

    return work


def cleaning_with_a_history(disk: RecordingDisk) -> None:
    """Segments get the history's name."""
    for _ in range(2):
        live(disk, busy(30), ALL_HISTORY)


def sealed_and_let_go(disk: RecordingDisk) -> None:
    """An operator has segments sealed behind little, and they leave the log, cut behind their ends;
    the process is killed at the calls that do so."""
    live(disk, _seal_often, ALL_HISTORY)
    for call, nth in (
        ("ftruncate", 2),
        ("fsync", 1),
        ("fsync", 2),
        ("rename", 3),
        ("fsync_dir", 3),
    ):
        live(disk, _until_sealed(call, nth), ALL_HISTORY)


def _seal_often(run: Run) -> None:
    for n in range(14):
        run.append(60 + 90 * (n % 3))
        run.take(2 if n % 3 else 1)
        run.clean()
        run.commit()
        run.seal()
        run.journal.maintain()


def _until_sealed(call: str, nth: int) -> Callable[[Run], None]:
    def work(run: Run) -> None:
        run.disk.before = fail_at(nth, call, Killed())
        _seal_often(run)

    return work


def cleaning_with_a_short_history(disk: RecordingDisk) -> None:
    """The history's oldest segments are removed."""
    live(disk, busy(45), SHORT_HISTORY)
    live(disk, busy(15, spare=False), SHORT_HISTORY)


def cleaning_without_a_history(disk: RecordingDisk) -> None:
    """Segments become spares at once, or are removed."""
    live(disk, busy(35), NO_HISTORY)
    live(disk, busy(20, spare=False), NO_HISTORY)


def pinned_and_drained(disk: RecordingDisk) -> None:
    """Most of what comes stays long and is pinned, then all but the last of it goes at once, from
    several pinned segments, and these are given back; the process is killed in between."""
    for setting in (NO_HISTORY, ALL_HISTORY, SHORT_HISTORY):
        live(disk, _stay_and_drain, setting)
    for call, nth in (("rename", 2), ("unlink", 2), ("fdatasync", 9), ("fsync_dir", 3)):
        live(disk, _until_drained(call, nth), NO_HISTORY)
        live(disk, _until_drained(call, nth), SHORT_HISTORY)


def _stay_and_drain(run: Run) -> None:
    for n in range(40):
        run.append(500 + 60 * (n % 4))
        run.clean()
        run.commit()
        run.journal.maintain()
        if n % 20 == 19:
            run.drain(9)
            run.commit()
            run.journal.maintain()


def _until_drained(call: str, nth: int) -> Callable[[Run], None]:
    def work(run: Run) -> None:
        run.disk.before = fail_at(nth, call, Killed())
        _stay_and_drain(run)

    return work


def moved_out_of_pinned_segments(disk: RecordingDisk) -> None:
    """Pinned segments lose most of what is live in them, and the rest is moved at their next turn;
    the process is killed between the copy and the release."""
    for setting in (NO_HISTORY, ALL_HISTORY):
        live(disk, _thin_out, setting)
    for call, nth in (("rename", 3), ("unlink", 1), ("fdatasync", 12), ("pwritev", 14)):
        live(disk, _until_thin(call, nth), NO_HISTORY)


def _thin_out(run: Run) -> None:
    for n in range(60):
        run.append(500 + 60 * (n % 4))
        run.append(300)
        run.clean()
        run.commit()
        run.journal.maintain()
        if n % 12 == 11:
            run.thin_out(7)
            run.commit()


def _until_thin(call: str, nth: int) -> Callable[[Run], None]:
    def work(run: Run) -> None:
        run.disk.before = fail_at(nth, call, Killed())
        _thin_out(run)

    return work


def moving_over_segment_ends(disk: RecordingDisk) -> None:
    """What is moved begins in one segment and ends in another, with one sync for each."""
    live(disk, _move_late, ALL_HISTORY)


def _move_late(run: Run) -> None:
    for n in range(24):
        for k in range(n % 4 + 1):
            run.append(600 + 90 * k)
        run.take(n % 4)
        if n % 2:
            run.clean()
        run.commit()
        run.journal.maintain()


def killed_while_cleaning(disk: RecordingDisk) -> None:
    """The process dies at the calls that begin segments and let them go."""
    _kill_often(disk, SHORT_HISTORY)


def killed_while_using_files_again(disk: RecordingDisk) -> None:
    """The same where the file of an old segment becomes that of a new one."""
    _kill_often(disk, NO_HISTORY)


def _kill_often(disk: RecordingDisk, setting: Setting) -> None:
    live(disk, busy(25), setting)
    for call, nth in (
        ("rename", 1),
        ("rename", 2),
        ("fsync_dir", 1),
        ("fsync_dir", 2),
        ("unlink", 1),
        ("fdatasync", 4),
        ("pwritev", 5),
    ):
        live(disk, until(call, nth, Killed()), setting)


def failed_syncs_while_cleaning(disk: RecordingDisk) -> None:
    """A sync fails while moved records are written, or a name."""
    live(disk, busy(25), SHORT_HISTORY)
    for call, nth in (("fdatasync", 3), ("fdatasync", 6), ("fsync_dir", 2), ("pwritev", 4)):
        live(disk, until(call, nth, io_error()), SHORT_HISTORY)


def until(call: str, nth: int, fault: BaseException) -> Callable[[Run], None]:
    """Work until a fault, at the latest until the log was cleaned some times."""

    def work(run: Run) -> None:
        run.disk.before = fail_at(nth, call, fault)
        busy(14)(run)

    return work


CLEANING: tuple[Callable[[RecordingDisk], None], ...] = (
    cleaning_with_a_history,
    moving_over_segment_ends,
    sealed_and_let_go,
    pinned_and_drained,
    moved_out_of_pinned_segments,
    cleaning_with_a_short_history,
    cleaning_without_a_history,
    killed_while_cleaning,
    killed_while_using_files_again,
    failed_syncs_while_cleaning,
)
LIMITED = frozenset(CLEANING[3:])
"""What the history keeps is limited, so its oldest part is removed, in any order after a crash."""
