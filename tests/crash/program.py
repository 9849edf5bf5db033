"""What the programs that use the journal on a recording disk share.

A program is a function of the disk; what it knows of its records it notes in the trace.
"""

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hms.errors.tree import HmsError
from hms.store.interface import SEGMENT_SHIFT, StoredRecord
from hms.store.journal import Disk, Journal
from hms.store.journal.segment_manager import LogLimits
from tests.crash.oracle import MOVED, SENT, TAKEN, Kept
from tests.crash.recording import Killed, RecordingDisk

STORE = Path("/store")
NODE = 77
DICTIONARY_KIND = 11
SMALL = 4096
LARGE = 16384
WAITING_MAX = 12


def dictionary() -> tuple[int, int, tuple[bytes]]:
    """The record that opens every segment."""
    return DICTIONARY_KIND, 1, (b"dictionary",)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a journal is opened with."""

    segment_bytes: int
    limits: LogLimits


PLAIN = Setting(SMALL, LogLimits())


def opened(disk: Disk, setting: Setting = PLAIN) -> Journal:
    """A journal before recovery."""
    return Journal.open(
        STORE,
        segment_bytes=setting.segment_bytes,
        node_uid=NODE,
        disk=disk,
        limits=setting.limits,
    )


def kept(journal: Journal) -> list[Kept]:
    """What recovery finds, without the dictionaries."""
    return without_dictionaries(journal.recover())


def without_dictionaries(records: Iterable[StoredRecord]) -> list[Kept]:
    """Records as they are compared."""
    return [
        (lsn, kind, count, bytes(data))
        for lsn, kind, count, data, _ in records
        if kind != DICTIONARY_KIND
    ]


class Run:
    """A booted journal that notes what it is told and what it confirms; an engine of few lines."""

    def __init__(
        self, disk: RecordingDisk, setting: Setting = PLAIN, journal: Journal | None = None
    ) -> None:
        self.disk = disk
        self.waiting: dict[bytes, tuple[bytes, int]] = {}
        """By id: body and segment."""
        self.journal = journal or opened(disk, setting)
        found = [(*record[:3], bytes(record[3]), record[4]) for record in self.journal.recover()]
        for _, kind, _, body, position in found:
            self._learn(kind, body, position)
        disk.note("booted", without_dictionaries(found))
        self.journal.start(dictionary)
        self._tag = b"%d." % len(disk.steps)
        self._sent = 0

    def _learn(self, kind: int, body: bytes, position: int) -> None:
        if kind in (SENT, MOVED):
            self.waiting[id_of(body)] = body, position >> SEGMENT_SHIFT
        elif kind == TAKEN:
            self.waiting.pop(body, None)

    def _append(self, kind: int, count: int, body: bytes) -> None:
        position = self.journal.append(kind, count, (body[:5], body[5:]))
        first = self.journal.last_lsn - count + 1
        self.disk.note("appended", (first, kind, count, body))
        self._learn(kind, body, position)

    def append(self, size: int, count: int = 1) -> None:
        """A message of about this size, unlike every other."""
        body = (b"%s%05d " % (self._tag, self._sent) * (size // 8 + 1))[: max(size, 16)]
        self._sent += 1
        self._append(SENT, count, body)

    def seal(self) -> None:
        """What comes next begins a new segment, when one is prepared."""
        first = self.journal.seal()
        assert first in (None, self.journal.last_lsn + 1)

    def take(self, count: int) -> None:
        """Acknowledge the last messages but one that wait, so that old ones stay; now and then all
        but some."""
        names = list(self.waiting)
        most = count if len(names) < WAITING_MAX else len(names) // 2
        for name in names[-most - 1 : -1]:
            self._append(TAKEN, 1, name)

    def clean(self) -> None:
        """What waits in the oldest segments is appended again, as long as the journal asks."""
        while (segment := self.journal.next_to_clean(self._live_bytes())) is not None:
            for body, where in list(self.waiting.values()):
                if where <= segment:
                    self._append(MOVED, 1, body)
            self.journal.cleaned(segment)

    def _live_bytes(self) -> int:
        return sum(len(body) for body, _ in self.waiting.values())

    def commit(self) -> None:
        """Confirmed from here on."""
        self.journal.commit()
        self.disk.note("confirmed", self.journal.durable_lsn)

    def batch(self, *sizes: int) -> None:
        """Several records with one sync."""
        for n, size in enumerate(sizes):
            self.append(size, n % 3 + 1)
        self.commit()


def id_of(body: bytes) -> bytes:
    """A message's first word."""
    return body.partition(b" ")[0]


def live(disk: RecordingDisk, work: Callable[[Run], None], setting: Setting = PLAIN) -> None:
    """One life of the process: it boots, works, and is then closed, failed or killed."""
    try:
        work(Run(disk, setting))
        disk.note("ended", "closed")
    except (Killed, HmsError) as end:
        disk.note("ended", type(end).__name__)
    finally:
        disk.before = no_fault
        disk.end_process()


def no_fault(_call: str, _name: str) -> None:
    """Every call works."""


def fail_at(nth: int, call: str, fault: BaseException) -> Callable[[str, str], None]:
    """A fault at the n-th such call from now on; the calls before and after it work."""
    left = [nth]

    def before(now: str, name: str) -> None:
        if now == call and name != "LOCK":
            left[0] -= 1
            if left[0] == 0:
                raise fault

    return before


def io_error() -> OSError:
    """The disk's own."""
    return OSError(errno.EIO, os.strerror(errno.EIO))


def batches(*batches: tuple[int, ...]) -> Callable[[Run], None]:
    """Work: these batches, with a spare prepared ahead where one is due."""

    def work(run: Run) -> None:
        for sizes in batches:
            run.batch(*sizes)
            run.journal.maintain()

    return work
