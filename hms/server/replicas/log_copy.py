"""A copy's segments and files: what the primary tells is written where it says, and synced.

Nothing is made of the bytes here. A segment gets its name when its header is synced, as at the
primary, and has its full size from the start, zeros behind what was written.

Records that no later primary adopted were never confirmed. They are in no log any more, and are set
aside before they are cut or written over: the segment, as it was, under a name that no log reads.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hms.errors.catalogue import ReplicaFrameBad, StoreCorrupt
from hms.records import RecordType
from hms.server.replicas.frames import (
    BYTES_MAX,
    Aside,
    Cut,
    Data,
    Drop,
    FileGone,
    FilePart,
    Join,
    Keep,
    PastPart,
    Segment,
    Write,
)
from hms.server.replicas.promises import End
from hms.store.aging import Aging
from hms.store.files import is_whole_file
from hms.store.journal.archive_mark import archived_below
from hms.store.journal.audit_files import keep_audit
from hms.store.journal.confirmed_place import Place
from hms.store.journal.disk import (
    CREATE,
    PRIVATE_DISK,
    REAL_DISK,
    UPDATE,
    Disk,
    write_all,
)
from hms.store.journal.format import SEGMENT_HEADER_BYTES, unpack_segment_header
from hms.store.journal.segment_manager import HISTORY_FILES_MAX, LogLimits
from hms.store.journal.segment_trim import trim
from hms.store.journal.segment_walk import (
    HISTORY_SUFFIX,
    LOG_SUFFIX,
    PINNED_SUFFIX,
    SUFFIXES,
    ReadUpTo,
    Walk,
    all_files,
    opened,
    read_info,
    segment_file,
    segment_numbers,
)

__all__ = ["ASIDE_MAX", "FILES_FOLDER", "NO_LIMITS", "LogCopy", "Told", "aside_names"]

FILES_FOLDER: Final = "files"
NO_LIMITS: Final = LogLimits()
_INCOMING: Final = "incoming"
_INCOMING_PAST: Final = "incoming.past"
OPEN_MAX: Final = 2
UNSYNCED_MAX: Final = 4 << 20
"""Bytes that are synced together; with 8 MiB others on that disk wait a quarter longer."""
ASIDE_SUFFIX: Final = ".aside"
ASIDE_MAX: Final = 16
"""So many segments that were set aside are kept, the newest."""
Told = Segment | Write | Cut | Drop | Aside | Keep | FilePart | PastPart | FileGone

log = logging.getLogger("hms.replicas")


class LogCopy:
    """The folder of a copy's store; one thread. Raises OSError, and ReplicaFrameBad for what does
    not fit to what is there."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        limits: LogLimits = NO_LIMITS,
        verified: Callable[[], ReadUpTo | None] = lambda: None,
    ) -> None:
        """verified: up to where this process has read the log before."""
        self._disk, self._folder, self._limits = disk, folder, limits
        self._aging = Aging()
        self._verified = verified
        self._files = folder / FILES_FOLDER
        self._files_disk = PRIVATE_DISK if disk is REAL_DISK else disk
        self._open: dict[int, int] = {}
        self._unsynced: dict[int, int] = {}
        """Bytes of segments that were written, and are not synced."""
        self._part: tuple[str, int] | None = None
        self._past: tuple[int, int] | None = None
        self._tails: dict[int, int] = {}
        """Where the records end of segments that may have more, or others, than the primary's."""
        self.written: dict[int, int] = {}
        """Of segments that were begun here: where the last byte ends that was written to them, with
        zeros behind it."""
        self._damaged: Mapping[int, int] = {}
        self._coming: set[int] = set()
        """Damaged segments that come again with the log, or with the history that they left for."""
        self._came: set[int] = set()
        """Those of them that came with the log, whatever their names are by then."""
        self._anew: set[int] = set()
        """Damaged segments that have come again."""
        self.newest = 0
        self._is_settled = False
        self._tail: tuple[End, bool] | None = None
        """As it was found, while nothing changes: a candidate asks ten times in a lease, and a look
        at a full segment of small records takes longer than the time between."""
        disk.make_dir(folder)

    def joins(
        self, copy_id: str, promised: int, damaged: Mapping[int, int] = MappingProxyType({})
    ) -> Join:
        """What is there. damaged: where segments are, by number: they are got again from there."""
        self._tail = None
        headers: dict[int, bytes] = {}
        for suffix in (PINNED_SUFFIX, LOG_SUFFIX):
            for number in segment_numbers(self._disk, self._folder, suffix):
                with opened(self._disk, segment_file(self._folder, number, suffix)) as fd:
                    headers[number] = self._disk.pread(fd, SEGMENT_HEADER_BYTES, 0)
        last = sorted(headers)[-1:]
        ends = {number: self._end(number) for number in last}
        for number, end in ends.items():
            self._settle(number, end)
        self._is_settled = True
        self._tails = dict(ends)
        self._damaged, self._anew = damaged, set()
        for number, offset in damaged.items():
            if number in headers:
                ends[number] = min(offset, ends.get(number, offset))
        history = segment_numbers(self._disk, self._folder, HISTORY_SUFFIX)
        past = [number for number in history if number not in damaged]
        self._coming, self._came = set(damaged) - set(history), set()
        return Join(copy_id, promised, headers, ends, self._whole_files(), past)

    def _end(self, number: int) -> int:
        """Behind the last record that verifies: a power cut may have left any part of what was not
        synced, also what lies behind a gap."""
        with suppress(StoreCorrupt):  # it gets all of it anew
            return self._walked(number).at
        return SEGMENT_HEADER_BYTES

    def _walked(self, number: int) -> Walk:
        """Behind the last record that verifies. StoreCorrupt for a header that does not."""
        file = self._find(number)
        assert file is not None
        info = read_info(self._disk, file, number, is_last=True)
        walk, known = Walk(self._disk, self._fd(number), info), self._verified()
        if known is not None and (known.number, known.salt) == (number, info.salt):
            walk.at, walk.batch_at, walk.lsn = known.offset, known.offset, known.lsn
        deque(walk.records(0, RecordType.SENT), maxlen=0)  # in runs, which takes a tenth
        return walk

    def _settle(self, number: int, end: int) -> None:
        """What a process before this one wrote may never have been synced, or its sync failed, and
        the system shows what it has given up writing: before it counts it is written again, once.
        """
        if self._is_settled:
            return
        for at in range(SEGMENT_HEADER_BYTES, end, BYTES_MAX):
            data = self._disk.pread(self._fd(number), min(BYTES_MAX, end - at), at)
            write_all(self._disk, self._fd(number), [data], at)
        self._disk.fdatasync(self._fd(number))

    def is_whole(self) -> None:
        """Every segment of the log has come."""
        self._anew |= self._came
        self.newest = self.newest_now()

    def newest_now(self) -> int:
        """The number of the last segment, 0 without one."""
        return max(segment_numbers(self._disk, self._folder, LOG_SUFFIX), default=0)

    def taken_anew(self) -> list[int]:
        """Damaged segments that have come again since this was asked."""
        anew, self._anew = self._anew, set()
        return sorted(anew)

    def tail(self) -> tuple[End, bool]:
        """How far this copy goes, and whether it may say so: its last segment is there, and ends in
        zeros or in a write that a crash tore. What is damaged there may have been confirmed."""
        if self._tail is None:
            self._tail = self._find_tail()
        return self._tail

    def _find_tail(self) -> tuple[End, bool]:
        number = max(segment_numbers(self._disk, self._folder, LOG_SUFFIX), default=0)
        if not number:
            return End(), False
        file = segment_file(self._folder, number)
        try:
            epoch = read_info(self._disk, file, number, is_last=True).epoch
            walk = self._walked(number)
        except StoreCorrupt:
            return End(0, number, 0), False
        written = self.written.get(number)
        is_at_end = walk.is_at_end() if written is None else walk.at >= written
        is_clean = not walk.is_at_seal() and (is_at_end or walk.is_torn())
        return End(epoch, number, walk.at), is_clean

    def has(self, number: int) -> bool:
        """Whether the log needs this segment, and it is here."""
        return self._find(number) is not None

    def gap(self) -> int:
        """The first segment that this log needs and that is not here, as in a copy that has not
        been sent everything yet; 0 for none. Nobody could lead with it."""
        numbers = segment_numbers(self._disk, self._folder, LOG_SUFFIX)
        if not numbers:
            return 0
        file = segment_file(self._folder, numbers[-1])
        with suppress(StoreCorrupt):  # what is damaged is told by tail()
            oldest = read_info(self._disk, file, numbers[-1], is_last=True).oldest
            return min({*range(oldest, numbers[-1])} - {*numbers}, default=0)
        return 0

    def ends_there(self, said: Cut) -> bool:
        """Whether this copy has records behind that place, and loses them; where it has none, what
        was confirmed to it still is so, and comes again."""
        return said.number >= self.newest_now() and said.end < self._tails.get(said.number, 0)

    def _whole_files(self) -> list[str]:
        with suppress(FileNotFoundError):
            return [n for n in self._disk.list_dir(self._files) if is_whole_file(n)]
        return []

    def take(self, said: Told, data: Data) -> None:
        """Do what the primary says; safe after the next sync()."""
        self._tail = None
        match said:
            case Write():
                self._write(said, data)
            case Segment():
                self._begin(said, data)
            case Cut():
                self._cut(said)
            case Drop():
                self._drop(said)
            case Aside():
                self._leave_aside(said)
            case Keep():
                self._keep(said)
            case FilePart():
                self._file(said, data)
            case PastPart():
                self._past_part(said, data)
            case FileGone():
                self._disk.unlink(self._files / _checked(said.name))

    def sync(self) -> None:
        """All that was written is safe."""
        for number in sorted(self._unsynced):
            self._disk.fdatasync(self._open[number])
        self._unsynced.clear()
        for number in sorted(self._open)[:-OPEN_MAX]:
            self._disk.close(self._open.pop(number))

    def close(self) -> None:
        """Let go of the files."""
        self._tail = None
        for fd in self._open.values():
            self._disk.close(fd)
        self._open.clear()
        self._unsynced.clear()
        self._end_part()
        self._end_past()

    # segments

    def _begin(self, said: Segment, header: Data) -> None:
        found = unpack_segment_header(bytes(header))
        if found is None or found.number != said.number or said.suffix not in SUFFIXES:
            raise ReplicaFrameBad(detail=f"the header of segment {said.number} is none")
        file = self._find(said.number)
        if file is not None:
            with opened(self._disk, file) as fd:
                if self._disk.pread(fd, SEGMENT_HEADER_BYTES, 0) != header:
                    detail = f"segment {said.number} is there with another header"
                    raise ReplicaFrameBad(detail=detail)
            return
        self.sync()  # so that only the last segment may be torn
        incoming = self._folder / _INCOMING
        self._disk.unlink(incoming)
        with opened(self._disk, incoming, CREATE) as fd:
            self._disk.allocate(fd, said.size)
            write_all(self._disk, fd, [header], 0)
            self._disk.fsync(fd)
        self._disk.rename(incoming, segment_file(self._folder, said.number, said.suffix))
        self._disk.fsync_dir(self._folder)
        self.written = {said.number: SEGMENT_HEADER_BYTES}

    def _write(self, said: Write, data: Data) -> None:
        if said.offset < SEGMENT_HEADER_BYTES:
            raise ReplicaFrameBad(detail=f"it writes over the header of segment {said.number}")
        end = self._tails.get(said.number, 0)
        if said.offset < end:
            size = min(len(data), end - said.offset)
            there = self._disk.pread(self._fd(said.number), size, said.offset)
            if there != data[: len(there)]:
                pairs = zip(there, data, strict=False)
                differs = next(n for n, (ours, theirs) in enumerate(pairs) if ours != theirs)
                self._copy_aside(said.number)
                self._zero(said.number, self._record_at(said.number, said.offset + differs))
        if self._unsynced and said.number not in self._unsynced:
            self.sync()  # so that only one of them may be torn
        # not before: a sync lets go of segments, of this one too where it is an older one
        write_all(self._disk, self._fd(said.number), [data], said.offset)
        unsynced = self._unsynced.get(said.number, 0) + len(data)
        self._unsynced[said.number] = unsynced
        if unsynced >= UNSYNCED_MAX:
            self.sync()
        if said.number in self._coming:
            self._came.add(said.number)
        if said.number in self.written:
            end = said.offset + len(data)
            self.written[said.number] = max(end, self.written[said.number])

    def _cut(self, said: Cut) -> None:
        fd = self._fd(said.number)
        size = self._disk.size(fd)
        if said.end < self._tails.get(said.number, 0):
            self._copy_aside(said.number)
        if SEGMENT_HEADER_BYTES <= said.end < size:
            self._zero(said.number, said.end)

    def end_at(self, number: int, end: int) -> None:
        """What is behind that place is damaged, and nobody waits for it any more: it is set aside
        as it is, and cut. Safe when this returns."""
        size = self._disk.size(self._fd(number))
        if end < size:
            self._tail, self._tails[number] = None, size
            self._cut(Cut(number, max(end, SEGMENT_HEADER_BYTES)))

    def open_end(self) -> None:
        """A seal says that another segment follows. Where an operator accepts this end none does,
        and who leads goes on there. Safe when this returns."""
        if newest := self.newest_now():
            self._tail = None
            self._unseal(newest)

    def _record_at(self, number: int, offset: int) -> int:
        """Where the record begins that has this offset: what is before it was confirmed."""
        info = read_info(self._disk, segment_file(self._folder, number), number, is_last=True)
        walk = Walk(self._disk, self._fd(number), info)
        at = walk.at
        for _ in walk.records():
            if walk.at > offset:
                break
            at = walk.at
        return at

    def _zero(self, number: int, end: int) -> None:
        """Zeros from there on, safe when this returns: a write that a crash tears there is known by
        them."""
        fd = self._fd(number)
        size = self._disk.size(fd)
        self._disk.ftruncate(fd, end)
        self._disk.allocate(fd, size)
        self._disk.fsync(fd)

    def _drop(self, said: Drop) -> None:
        """From the newest on, so that a crash leaves no gap."""
        for number in sorted(said.segments, reverse=True):
            self._unseal_before(number)
            self._forget(number)
            for suffix in (LOG_SUFFIX, PINNED_SUFFIX):
                self._disk.unlink(segment_file(self._folder, number, suffix))
            self._disk.fsync_dir(self._folder)
        for name in said.files:
            self._disk.unlink(self._files / _checked(name))

    def _unseal_before(self, number: int) -> None:
        """A seal says that another segment follows. The newest one is about to go: the one before
        it loses its seal first, else this copy would look as if it had lost what followed."""
        if number == self.newest_now() and self._find(number - 1) is not None:
            self._unseal(number - 1)

    def _unseal(self, number: int) -> None:
        with suppress(StoreCorrupt):  # what is damaged stays so
            walk = self._walked(number)
            if walk.is_at_seal():
                self._zero(number, walk.at)

    def end_before(self, number: int) -> Place:
        """Where the log ends without this segment and all that follow it."""
        if self._find(number - 1) is None:
            return Place(number, 0)
        return Place(number - 1, self._end(number - 1))

    # what nobody adopted

    def _leave_aside(self, said: Aside) -> None:
        """From the newest on, so that a crash leaves no gap. All of them are kept: they may be what
        an operator let go of with a loss."""
        for number in sorted(said.segments, reverse=True):
            file = self._find(number)
            if file is None:
                continue
            target = self._aside(number)
            end = self._end(number)
            self._unseal_before(number)
            self._forget(number)
            if end > SEGMENT_HEADER_BYTES and not self._has_aside(target, number, end):
                self._disk.rename(file, target)
                self._told_aside(target, len(said.segments))
            else:
                self._disk.unlink(file)
            self._disk.fsync_dir(self._folder)

    def _copy_aside(self, number: int) -> None:
        """The segment as it is, safe before anything of it changes; once, as it is not the same any
        more after a crash in the midst of that."""
        end, target = self._tails.pop(number), self._aside(number)
        if self._has_aside(target, number, end):
            return
        incoming, fd = self._folder / _INCOMING, self._fd(number)
        self._disk.unlink(incoming)
        with opened(self._disk, incoming, CREATE) as copy:
            for at in range(0, end, BYTES_MAX):
                data = self._disk.pread(fd, min(BYTES_MAX, end - at), at)
                write_all(self._disk, copy, [data], at)
            self._disk.fsync(copy)
        self._disk.rename(incoming, target)
        self._disk.fsync_dir(self._folder)
        self._told_aside(target)

    def _aside(self, number: int) -> Path:
        return self._aside_of(number, self._disk.pread(self._fd(number), SEGMENT_HEADER_BYTES, 0))

    def _aside_of(self, number: int, data: bytes) -> Path:
        header = unpack_segment_header(data)
        epoch = 0 if header is None else header.epoch
        return self._folder / f"{number:016d}-{epoch}{ASIDE_SUFFIX}"

    def _has_aside(self, target: Path, number: int, end: int) -> bool:
        """Whether as much of it was set aside before; of one writer the longer one has all."""
        return self._has(target) and self._end_of(target, number) >= end

    def _has(self, file: Path) -> bool:
        return file.name in self._disk.list_dir(self._folder)

    def _told_aside(self, target: Path, at_once: int = 1) -> None:
        log.warning("records that nobody adopted are set aside: %s", target)
        for name in aside_names(self._disk, self._folder)[: -max(ASIDE_MAX, at_once)]:
            log.warning("%s is removed, the oldest that was set aside", name)
            self._disk.unlink(self._folder / name)

    def _keep(self, said: Keep) -> None:
        pinned, history = set(said.pinned), set(said.history)
        first = min([said.oldest, *history])
        for suffix in (LOG_SUFFIX, PINNED_SUFFIX, HISTORY_SUFFIX):
            for number in segment_numbers(self._disk, self._folder, suffix):
                if suffix == LOG_SUFFIX and number >= said.oldest:
                    continue
                if suffix == HISTORY_SUFFIX and number < first:
                    continue
                is_in_log = number >= said.oldest and number not in pinned | history
                if not (is_in_log and self._stays(number, suffix)):
                    self._leave(number, suffix, pinned, history)
        self._limit_past(first)
        self._disk.fsync_dir(self._folder)

    def _stays(self, number: int, suffix: str) -> bool:
        """A segment that had left this copy's log is in that of a primary that had less: it gets
        its name again, unless it came anew. What it has more than that is of a log that an operator
        let go of with a loss, and is set aside: nobody else may have it."""
        file, left = (segment_file(self._folder, number, one) for one in (LOG_SUFFIX, suffix))
        if not self._has(file):
            self._disk.rename(left, file)
            return True
        header, end = self._header_of(left), self._end_of(left, number)
        is_same = header == self._header_of(file)
        target = self._aside_of(number, header)
        if (is_same and end <= self._end_of(file, number)) or self._has_aside(target, number, end):
            return False
        self._disk.rename(left, target)
        self._told_aside(target)
        return True

    def _header_of(self, file: Path) -> bytes:
        with opened(self._disk, file) as fd:
            return self._disk.pread(fd, SEGMENT_HEADER_BYTES, 0)

    def _end_of(self, file: Path, number: int) -> int:
        """Behind the last record that verifies of a segment, whatever its name is."""
        with suppress(StoreCorrupt), opened(self._disk, file) as fd:
            walk = Walk(self._disk, fd, read_info(self._disk, file, number, is_last=True))
            deque(walk.records(0, RecordType.SENT), maxlen=0)
            return walk.at
        return SEGMENT_HEADER_BYTES

    def _leave(self, number: int, suffix: str, pinned: set[int], history: set[int]) -> None:
        """A segment that has left the log gets the name that it has at the primary."""
        file = segment_file(self._folder, number, suffix)
        wanted = PINNED_SUFFIX if number in pinned else HISTORY_SUFFIX
        if number not in pinned | history:
            if not keep_audit(self._disk, file):
                return
            self._forget(number)
            self._disk.unlink(file)
        elif wanted != suffix:
            if suffix == LOG_SUFFIX:
                trim(self._disk, file)
            self._disk.rename(file, segment_file(self._folder, number, wanted))

    # the history

    def _limit_past(self, first: int) -> None:
        """A primary may have less of the history than this copy, as it came later. What is older
        than all of its goes by this copy's own limits, the oldest first."""
        limits, sizes = self._limits, dict[int, tuple[int, float]]()
        for number in segment_numbers(self._disk, self._folder, HISTORY_SUFFIX):
            file = segment_file(self._folder, number, HISTORY_SUFFIX)
            sizes[number] = self._disk.size_and_age(file)
        total, left = sum(size for size, _ in sizes.values()), len(sizes)
        kept = archived_below(self._disk, self._folder) if limits.is_archive_required else first
        written_s = {n: self._aging.wall_s() - age_s for n, (_, age_s) in sizes.items()}
        keep_s, until_s = limits.history_age_s, 0.0
        if keep_s and sizes:
            until_s = self._aging.until_s(keep_s, lambda: min(written_s.values()))
        for number, (size, _) in sizes.items():
            is_old = written_s[number] < until_s
            is_within = total <= limits.history_bytes_max and left <= HISTORY_FILES_MAX
            if number >= min(first, kept) or (is_within and not is_old):
                return
            self._disk.unlink(segment_file(self._folder, number, HISTORY_SUFFIX))
            total, left = total - size, left - 1

    def _past_part(self, said: PastPart, data: Data) -> None:
        """A segment has its name when its last part is taken, synced; one that is there stays."""
        incoming = self._folder / _INCOMING_PAST
        if said.offset == 0:
            self._end_past()
            self._disk.unlink(incoming)
            self._past = said.number, self._disk.open(incoming, CREATE)
        if self._past is None or self._past[0] != said.number:
            raise ReplicaFrameBad(detail=f"segment {said.number} does not begin at its beginning")
        fd = self._past[1]
        if self._disk.size(fd) != said.offset:
            raise ReplicaFrameBad(detail=f"segment {said.number} has a gap at {said.offset}")
        write_all(self._disk, fd, [data], said.offset)
        if said.is_last:
            self._disk.fsync(fd)
            self._end_past()
            file = segment_file(self._folder, said.number, HISTORY_SUFFIX)
            is_there = said.number in all_files(self._disk, self._folder)
            if is_there and not (said.number in self._damaged and self._has(file)):
                self._disk.unlink(incoming)
                return
            self._anew.add(said.number)
            self._disk.rename(incoming, file)
            self._disk.fsync_dir(self._folder)

    def _end_past(self) -> None:
        past, self._past = self._past, None
        if past is not None:
            self._disk.close(past[1])

    def _find(self, number: int) -> Path | None:
        for suffix in (LOG_SUFFIX, PINNED_SUFFIX):
            file = segment_file(self._folder, number, suffix)
            with suppress(FileNotFoundError):
                self._disk.size_and_age(file)
                return file
        return None

    def _fd(self, number: int) -> int:
        if number not in self._open:
            file = self._find(number)
            if file is None:
                raise ReplicaFrameBad(detail=f"there is no segment {number}")
            self._open[number] = self._disk.open(file, UPDATE)
        return self._open[number]

    def _forget(self, number: int) -> None:
        self._unsynced.pop(number, None)
        self.written.pop(number, None)
        if number in self._open:
            self._disk.close(self._open.pop(number))

    # files of messages

    def _file(self, said: FilePart, data: Data) -> None:
        """Whole, synced and with its name when its last part is taken."""
        name, incoming = _checked(said.name), self._files / _INCOMING
        if said.offset == 0:
            self._end_part()
            self._files_disk.make_dir(self._files)
            self._disk.unlink(incoming)
            self._part = name, self._files_disk.open(incoming, CREATE)
        if self._part is None or self._part[0] != name:
            raise ReplicaFrameBad(detail=f"file {name} does not begin at its beginning")
        fd = self._part[1]
        if self._disk.size(fd) != said.offset:
            raise ReplicaFrameBad(detail=f"file {name} has a gap at {said.offset}")
        write_all(self._disk, fd, [data], said.offset)
        if said.offset // UNSYNCED_MAX < (said.offset + len(data)) // UNSYNCED_MAX:
            self._disk.fdatasync(fd)  # one of many GiB at its end would be a silence of the copy
        if said.is_last:
            self._disk.fsync(fd)
            self._end_part()
            self._disk.rename(incoming, self._files / name)
            self._disk.fsync_dir(self._files)

    def _end_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            self._disk.close(part[1])


def aside_names(disk: Disk, folder: Path) -> list[str]:
    """Of segments that were set aside, the oldest first."""
    return sorted(name for name in disk.list_dir(folder) if name.endswith(ASIDE_SUFFIX))


def _checked(name: str) -> str:
    """No path of somebody else's."""
    if not is_whole_file(name):
        raise ReplicaFrameBad(detail=f"{name[:80]!r} is no name of a file")
    return name
