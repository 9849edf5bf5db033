"""Store rebuild: the pass over a damaged store that writes every segment of the new one."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from hms.errors.catalogue import StoreCorrupt, StoreUnavailable
from hms.store.interface import StoredRecord
from hms.store.journal.disk import CREATE, Disk, write_all
from hms.store.journal.format import (
    Author,
    Entry,
    pack_records,
    pack_seal,
    pack_segment_header,
    unpack_segment_header,
)
from hms.store.journal.gaps import Gaps
from hms.store.journal.recovery import all_records, alone_records, corrupt, oldest_needed
from hms.store.journal.segment_reconstruction import reconstruct, whole
from hms.store.journal.segment_sift import Lost, Sound, sift
from hms.store.journal.segment_walk import (
    HISTORY_SUFFIX,
    LOG_SUFFIX,
    PINNED_SUFFIX,
    SegmentInfo,
    Walk,
    all_files,
    opened,
    past_begins,
    segment_file,
)
from hms.store.journal.store_examination import MISSING

COPY_BYTES: Final = 8 * 1024 * 1024


class Rebuild:
    """One pass, in the order of segments. target None: nothing is written."""

    def __init__(self, disk: Disk, source: Path, target: Path | None) -> None:
        self._disk, self._source, self._target = disk, source, target
        self._files = all_files(disk, source)
        self._infos, self._without_header = reconstruct(disk, self._files)
        if not self._infos:
            detail = "no segment in it has a header that verifies"
            raise StoreUnavailable(path=str(source), detail=detail)
        self._needed = oldest_needed(list(self._infos.values()))
        self._last = max(self._infos)
        self._has_log = any(file.suffix == LOG_SUFFIX for file in self._files.values())
        self._lsn = self._infos[min(self._infos)].first_lsn
        self._epoch = self._infos[min(self._infos)].epoch
        self.gaps = Gaps()
        self.segments = self.records = self.bytes = 0

    def run(self) -> None:
        """Every segment from the oldest needed on, and those that the history keeps."""
        first = min(*self._infos, self._needed)
        if first < min(self._infos):
            self.gaps.lost(Lost(0, 0, self._lsn - 1, None), self._path(first), is_needed=True)
        begins = past_begins(self._files)
        for number in range(first, self._last + 1):
            if number < begins and number not in self._files:
                continue  # it was let go, and a pinned one before it was not
            if number <= begins and number in self._infos:
                self._lsn = self._infos[number].first_lsn
            self._segment(number)
        if max(self._files) > self._last:
            self.gaps.lost_end(self._lsn, self._path(self._last + 1))

    def _segment(self, number: int) -> None:
        info = self._infos.get(number)
        if info is None or number in self._without_header:
            self._rebuild(number, info)
            return
        self._epoch = info.epoch
        try:
            self._copy(info)
        except StoreCorrupt as error:
            if error.detail == MISSING and number == self._last:
                self.gaps.lost_end(self._lsn_after(info), Path(error.file))
            self._rebuild(number, info)

    # ---- sound segments

    def _copy(self, info: SegmentInfo) -> None:
        """Copy a segment that is sound and joins its neighbours, byte for byte."""
        if info.first_lsn != self._lsn:
            raise corrupt(info.file, 0, self._lsn, "it does not join the one before it")
        with opened(self._disk, info.file) as fd:
            walk = Walk(self._disk, fd, info)
            records = sum(1 for _ in self._sound_records(walk, info))
            is_end = info.number == self._last
            size = walk.at if is_end else info.size
            self._write(self._path(info.number).name, self._pieces(fd, size))
            for _, kind, _, payload, *_ in Walk(self._disk, fd, info).records():
                self.gaps.saw(kind, payload)
        self._lsn = walk.lsn
        self.records += records

    def _sound_records(self, walk: Walk, info: SegmentInfo) -> Iterator[StoredRecord]:
        """Raises StoreCorrupt where one is bad, also at the end."""
        successor = self._infos.get(info.number + 1)
        if successor is not None or info.number == self._last:
            yield from all_records(walk, info, successor)
            return
        if info.file.suffix == PINNED_SUFFIX:
            yield from alone_records(walk, info)
            return
        yield from walk.records()
        if not walk.is_at_seal():
            raise corrupt(info.file, walk.at, walk.lsn, "the record does not verify")

    def _lsn_after(self, info: SegmentInfo) -> int:
        with opened(self._disk, info.file) as fd:
            walk = Walk(self._disk, fd, info)
            for _ in walk.records():
                pass
            return walk.lsn

    def _pieces(self, fd: int, size: int) -> Iterator[bytes]:
        for at in range(0, size, COPY_BYTES):
            yield self._disk.pread(fd, min(COPY_BYTES, size - at), at)

    # ---- damaged and missing ones

    def _rebuild(self, number: int, info: SegmentInfo | None) -> None:
        """Write the sound records, and an opening in place of each gap."""
        last = self._infos[self._last]
        author = Author(last.node_uid, self._epoch, last.version, last.release)
        header = pack_segment_header(author, number, self._lsn, info.oldest if info else 0)
        self._write(self._path(number).name, self._packed(number, info, header))

    def _path(self, number: int) -> Path:
        is_needed = number >= self._needed
        known = self._files.get(number) if self._has_log or not is_needed else None
        suffix = LOG_SUFFIX if is_needed else HISTORY_SUFFIX
        return known or segment_file(self._source, number, suffix)

    def _packed(self, number: int, info: SegmentInfo | None, header: bytes) -> Iterator[bytes]:
        parsed = unpack_segment_header(header)
        assert parsed is not None
        yield header
        for entry in self._entries(number, self._found(number, info)):
            self._lsn = entry.lsn + entry.events
            yield b"".join(pack_records([entry], parsed.salt))
        if number != self._last:
            yield pack_seal(self._lsn, parsed.salt)

    def _found(self, number: int, info: SegmentInfo | None) -> Iterator[Sound | Lost]:
        """What is in the segment, and what is missing up to the next one."""
        later = [self._infos[n] for n in sorted(self._infos) if n > number]
        bound = later[0].first_lsn if later else None
        reached = self._lsn
        if info is not None:
            for one in sift(whole(self._disk, info.file), info.salt, reached, bound):
                reached = one.lsn + one.events if isinstance(one, Sound) else one.last_lsn + 1
                yield one
        is_next_known = info is None or number + 1 in self._infos
        if bound is not None and is_next_known and reached < bound:
            yield Lost(0, reached, bound - 1, None)

    def _entries(self, number: int, found: Iterator[Sound | Lost]) -> Iterator[Entry]:
        """Entries to write. What is lost at the end of the log is told and not filled."""
        waiting: Lost | None = None
        for one in chain(found, [None]):
            if isinstance(one, Lost):
                file = self._path(number)
                is_needed = number >= self._needed or file.suffix == PINNED_SUFFIX
                self.gaps.lost(one, file, is_needed=is_needed)
                waiting = one if waiting is None else one._replace(first_lsn=waiting.first_lsn)
                continue
            if waiting is not None and (one is not None or number != self._last):
                yield self._filler(waiting, number)
                waiting = None
            if one is not None:
                self.gaps.saw(one.kind, one.payload)
                self.records += 1
                parts = (one.payload,)
                yield Entry(number, one.lsn, one.kind, one.events, parts, len(one.payload))

    def _filler(self, lost: Lost, number: int) -> Entry:
        """The opening of the next segment, or of the last one before, with the count of what is
        lost: it tells of all that may have been defined in the gap."""
        kind, payload = self._opening_near(number)
        events = lost.last_lsn - lost.first_lsn + 1
        return Entry(number, lost.first_lsn, kind, events, (payload,), len(payload))

    def _opening_near(self, number: int) -> tuple[int, bytes]:
        later = [self._infos[n] for n in sorted(self._infos) if n > number]
        earlier = [self._infos[n] for n in sorted(self._infos, reverse=True) if n <= number]
        for info in later + earlier:
            with opened(self._disk, info.file) as fd:
                for _, kind, _, payload, *_ in Walk(self._disk, fd, info).records():
                    return kind, bytes(payload)
        raise StoreUnavailable(path=str(self._source), detail="no segment in it has its beginning")

    # ---- files

    def _write(self, name: str, pieces: Iterator[bytes]) -> None:
        """A file of the new store, synced; without a target the pieces are only counted."""
        self.segments += 1
        if self._target is None:
            self.bytes += sum(map(len, pieces))
            return
        at = 0
        with opened(self._disk, self._target / name, CREATE) as fd:
            for piece in pieces:
                at = write_all(self._disk, fd, [piece], at)
            self._disk.fsync(fd)
        self.bytes += at
