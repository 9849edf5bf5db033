"""What the programs that use the journal on a recording disk share.

A program is a function of the disk; what it knows of its records it notes in the trace.
"""

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hms.errors.tree import HmsError
from hms.store.interface import SEGMENT_SHIFT, SegmentGoneError, StoredRecord
from hms.store.journal import Journal
from hms.store.journal.disk import Disk
from hms.store.journal.segment_manager import LogLimits
from tests.crash.oracle import MOVED, PINNED, SENT, TAKEN, Kept, pinned_names, waiting
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
    """What recovery finds, without the dictionaries. What waits in a pinned segment is there."""
    found = [(*record[:3], bytes(record[3]), record[4]) for record in journal.recover()]
    records = without_dictionaries(found)
    first = found[0][4] >> SEGMENT_SHIFT if found else 0
    names, bodies = waiting(records), pinned_bodies(journal, records, first)
    lacking = [name for name in names & set(bodies) if bodies[name] is None]
    assert not lacking, f"the bodies of {lacking} are gone with their segment"
    journal.pin({where for name, where in pinned_places(records, first) if name in names})
    return records


def pinned_places(records: Iterable[Kept], first: int) -> list[tuple[bytes, int]]:
    """Names of messages that were told of last as they lie behind the log, and the segment."""
    where: dict[bytes, int] = {}
    for _, kind, _, body in records:
        if kind == PINNED:
            segment, names = pinned_names(body)
            if segment < first:
                where.update(dict.fromkeys(names, segment))
        elif kind in (SENT, MOVED, TAKEN):
            where.pop(id_of(body), None)
    return list(where.items())


def pinned_bodies(
    journal: Journal, records: Iterable[Kept], first: int
) -> dict[bytes, bytes | None]:
    """Their bodies, read from there; None where one is missing."""
    places = pinned_places(records, first)
    found: dict[bytes, bytes | None] = {name: None for name, _ in places}
    for segment in {where for _, where in places}:
        with suppress(SegmentGoneError):
            for _, kind, _, body, _ in journal.pinned_records(segment):
                if kind in (SENT, MOVED) and (id_of(bytes(body)), segment) in places:
                    found[id_of(bytes(body))] = bytes(body)
    return found


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
        self._told: dict[int, int] = {}
        """Pinned segments, and the one that tells of them."""
        self.journal = journal or opened(disk, setting)
        found = [(*record[:3], bytes(record[3]), record[4]) for record in self.journal.recover()]
        for _, kind, _, body, position in found:
            self._learn(kind, body, position)
        self._learn_pinned(found)
        disk.note("booted", without_dictionaries(found))
        self.journal.start(dictionary)
        self._tag = b"%d." % len(disk.steps)
        self._sent = 0

    def _learn(self, kind: int, body: bytes, position: int) -> None:
        if kind in (SENT, MOVED):
            self.waiting[id_of(body)] = body, position >> SEGMENT_SHIFT
        elif kind == TAKEN:
            self.waiting.pop(body, None)

    def _learn_pinned(self, found: list[StoredRecord]) -> None:
        """What waits behind the log, and that nothing else there is needed."""
        first = found[0][4] >> SEGMENT_SHIFT if found else 0
        records = without_dictionaries(found)
        bodies, names = pinned_bodies(self.journal, records, first), waiting(records)
        for name, segment in pinned_places(records, first):
            body = bodies[name]
            if name in names:
                assert body is not None, f"the body of {name!r} is gone with its segment"
                self.waiting[name] = body, segment
                self._told[segment] = first
        self.journal.pin(self._told)

    def _append(self, kind: int, count: int, body: bytes) -> None:
        position = self.journal.append(kind, count, (body[:5], body[5:]))
        self._last_position = position
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
        self.give_back()

    def drain(self, left: int) -> None:
        """Acknowledge the oldest messages, all but so many, so that pinned segments are emptied."""
        names = list(self.waiting)
        for name in names[: max(len(names) - left, 0)]:
            self._append(TAKEN, 1, name)
        self.give_back()

    def thin_out(self, each: int) -> None:
        """Acknowledge all but every so many of the messages."""
        for n, name in enumerate(list(self.waiting)):
            if n % each:
                self._append(TAKEN, 1, name)
        self.give_back()

    def clean(self) -> None:
        """What waits in the oldest segments is told again, as long as the journal asks."""
        while (step := self.journal.next_to_clean(self)) is not None:
            segment = step.segment
            if segment in self._told:
                self._move(segment)
            else:
                for older in [n for n, told_in in self._told.items() if told_in <= segment]:
                    self._tell(older, self.journal.may_stay(older, self.live_bytes_in(older)))
                self._tell(segment, step.is_pinned)
                self.journal.cleaned(segment)
            self.give_back()

    def _tell(self, segment: int, is_pinned: bool) -> None:
        names = [name for name, (_, where) in self.waiting.items() if where == segment]
        if is_pinned and names:
            self.journal.pin([segment])
            for start in range(0, len(names), 2):
                self._append(PINNED, 1, b" ".join([b"%d" % segment, *names[start : start + 2]]))
                if not start:
                    self._told[segment] = self._last_position >> SEGMENT_SHIFT
        else:
            self._move(segment)

    def _move(self, segment: int) -> None:
        for body, where in list(self.waiting.values()):
            if where == segment:
                self._append(MOVED, 1, body)

    def give_back(self) -> None:
        """Pinned segments in which nothing waits any more."""
        gone = [segment for segment in self._told if not self.live_bytes_in(segment)]
        for segment in gone:
            del self._told[segment]
        self.journal.emptied(gone)

    def live_bytes(self) -> int:
        """What waits."""
        return sum(len(body) for body, _ in list(self.waiting.values()))

    def live_bytes_in(self, segment: int) -> int:
        """What waits in a segment."""
        return sum(len(body) for body, where in list(self.waiting.values()) if where == segment)

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
