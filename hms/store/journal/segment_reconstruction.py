"""Reconstruction: which segments a damaged store has, also those whose header does not verify.

The records of a segment verify only with the salt that its header gives. Where the header is
damaged the salt is what the header's own checksum says, or what its other bytes give, or what the
neighbours tell of them: whatever a record of the segment verifies with.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from zlib import crc32

from hms.store.journal.disk import Disk
from hms.store.journal.format import (
    SEGMENT_HEADER_BYTES,
    Author,
    pack_segment_header,
    unpack_segment_header,
)
from hms.store.journal.segment_sift import first_record
from hms.store.journal.segment_walk import SegmentInfo, Walk, opened, read_info
from hms.store.journal.store_examination import headers


def reconstruct(
    disk: Disk, files: dict[int, Path]
) -> tuple[dict[int, SegmentInfo], frozenset[int]]:
    """The segments by number, and which of them need a new header."""
    found, _ = headers(disk, files)
    known = _of_one_node(found)
    damaged = set()
    if known:
        _misplaced(disk, files, known)
        for number in sorted(set(files) - set(known)):
            info = _guess(disk, number, files[number], known)
            if info is not None:
                known[number] = info
                damaged.add(number)
    return known, frozenset(damaged)


def _of_one_node(infos: list[SegmentInfo]) -> dict[int, SegmentInfo]:
    """The segments that belong together: of the node that most are of, in the order of boots."""
    uids = [info.node_uid for info in infos]
    uid = max(set(uids), key=uids.count, default=0)
    kept: dict[int, SegmentInfo] = {}
    epoch = lsn = 0
    for info in infos:
        if info.node_uid == uid and info.epoch >= epoch and info.first_lsn >= lsn:
            kept[info.number] = info
            epoch, lsn = info.epoch, info.first_lsn
    return kept


def _misplaced(disk: Disk, files: dict[int, Path], known: dict[int, SegmentInfo]) -> None:
    """Segments under another one's name count where their own file does not."""
    uid = next(iter(known.values())).node_uid
    for name_number in sorted(set(files) - set(known)):
        file = files[name_number]
        header = unpack_segment_header(bytes(whole(disk, file)[:SEGMENT_HEADER_BYTES]))
        if header is not None and header.number not in known and header.node_uid == uid:
            info = read_info(disk, file, header.number, is_last=header.number > max(known))
            known[header.number] = info


def _guess(
    disk: Disk, number: int, file: Path, known: dict[int, SegmentInfo]
) -> SegmentInfo | None:
    data = whole(disk, file)
    if unpack_segment_header(bytes(data[:SEGMENT_HEADER_BYTES])) is not None:
        return None  # a sound header that does not belong here
    before = known.get(number - 1)
    start = None if before is None else _sealed_end(disk, before)
    head = bytes(data[:SEGMENT_HEADER_BYTES])
    told = _told(number, start, known)
    for salt in chain([int.from_bytes(head[-4:], "little"), crc32(head[:-4])], told):
        lsn = first_record(data, salt)
        if lsn is not None and lsn >= (start or lsn):
            near = before or known[min((n for n in known if n > number), default=max(known))]
            first_lsn = lsn if start is None else start
            return near._replace(
                number=number,
                file=file,
                size=len(data),
                first_lsn=first_lsn,
                oldest=0,
                salt=salt,
                is_last=number > max(known),
            )
    return None


def _told(number: int, start: int | None, known: dict[int, SegmentInfo]) -> Iterator[int]:
    """Salts of the headers that would fit between the neighbours."""
    before = known.get(number - 1)
    if before is None or start is None:
        return
    after = known.get(number + 1)
    epoch_max, oldest_max = (after.epoch, after.oldest) if after else (before.epoch + 1, number)
    formats = dict.fromkeys((one.version, one.release) for one in (before, after or before))
    for epoch in range(before.epoch, epoch_max + 1):
        for oldest in range(before.oldest, oldest_max + 1):
            for version, release in formats:
                author = Author(before.node_uid, epoch, version, release)
                head = pack_segment_header(author, number, start, oldest)
                yield int.from_bytes(head[-4:], "little")


def _sealed_end(disk: Disk, info: SegmentInfo) -> int | None:
    """Where the segment behind a sound and sealed one begins."""
    with opened(disk, info.file) as fd:
        walk = Walk(disk, fd, info)
        deque(walk.records(), maxlen=0)
        return walk.lsn if walk.is_at_seal() else None


def whole(disk: Disk, file: Path) -> memoryview:
    """All bytes of a file."""
    with opened(disk, file) as fd:
        return memoryview(disk.pread(fd, disk.size(fd), 0))
