"""What is kept of a segment that is let go for good: the records of its audit, in a file of their
own beside the log, which the history's limits do not concern.

A file NUMBER.audit has those of the segment of that number, each behind its length (u32). It has
its name when it is whole, and before the segment goes; where a crash has left both, the segment
counts. What stands in it is proved by the audit's chain of hashes.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from hms.errors.catalogue import StoreCorrupt, StoreFormatUnknown
from hms.records import RecordType
from hms.records.audit import decode_audit
from hms.store.aging import Aging
from hms.store.journal.disk import CREATE, Disk, write_all
from hms.store.journal.format import (
    KIND_SEAL,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    RecordHeader,
    record_bytes,
    unpack_record_header,
)
from hms.store.journal.segment_opening import opening
from hms.store.journal.segment_walk import (
    AUDIT_SUFFIX,
    WINDOW_BYTES,
    SegmentInfo,
    all_files,
    is_whole,
    opened,
    read_info,
)

__all__ = [
    "audit_files",
    "audit_headers",
    "audit_of_segment",
    "audit_payloads",
    "keep_audit",
    "retire_audit",
    "write_audit_file",
]

_log = logging.getLogger("hms.store")
_NAME: Final = re.compile(r"(\d{16})\.audit")
_LENGTH_BYTES: Final = 4
_NEW: Final = ".audit-new"


def keep_audit(disk: Disk, file: Path) -> bool:
    """Write the records of the audit of a segment into their file, synced when this returns;
    whether the segment may go. What cannot be read has none any more, and the log says so."""
    try:
        _keep(disk, file)
    except (StoreCorrupt, StoreFormatUnknown) as fault:
        _log.error("the audit of a segment that goes cannot be read: %s", fault)
    except OSError as fault:
        _log.warning("%s stays: its audit cannot be written elsewhere: %s", file, fault)
        return False
    return True


def _keep(disk: Disk, file: Path) -> None:
    found = audit_of_segment(disk, file)
    if found:
        write_audit_file(disk, file.with_suffix(AUDIT_SUFFIX), found)
        disk.fsync_dir(file.parent)


def audit_of_segment(disk: Disk, file: Path) -> list[bytes]:
    """The records of the audit in a segment. StoreCorrupt, StoreFormatUnknown."""
    number, folder = int(file.stem), file.parent
    successor = all_files(disk, folder).get(number + 1)
    if successor is not None:
        told = opening(disk, read_info(disk, successor, number + 1, is_last=False))
        if told is not None and not told.audit_number:
            return []  # nothing was audited up to there
    return list(_audited(disk, read_info(disk, file, number, is_last=False)))


def write_audit_file(disk: Disk, file: Path, payloads: list[bytes]) -> None:
    """The file with these records, in place of one that is there."""
    new = file.with_suffix(_NEW)
    parts = [part for one in payloads for part in (len(one).to_bytes(_LENGTH_BYTES, "big"), one)]
    disk.unlink(new)
    with opened(disk, new, CREATE) as fd:
        write_all(disk, fd, parts, 0)
        disk.fsync(fd)
    disk.rename(new, file)


def audit_files(disk: Disk, folder: Path) -> list[Path]:
    """The files of segments that are gone, the oldest first."""
    segments = all_files(disk, folder)
    names = [match for name in disk.list_dir(folder) if (match := _NAME.fullmatch(name))]
    return [folder / one[0] for one in sorted(names, key=str) if int(one[1]) not in segments]


def audit_payloads(disk: Disk, file: Path) -> Iterator[bytes]:
    """The records of such a file. StoreCorrupt when it was cut."""
    with opened(disk, file) as fd:
        size, at = disk.size(fd), 0
        while at < size:
            length = int.from_bytes(disk.pread(fd, _LENGTH_BYTES, at), "big")
            payload = disk.pread(fd, length, at + _LENGTH_BYTES)
            at += _LENGTH_BYTES + length
            if len(payload) < length or at > size:
                raise StoreCorrupt(file=str(file), offset=at, lsn=0, detail="it ends in a record")
            yield payload


def retire_audit(disk: Disk, folder: Path, keep_s: float, aging: Aging) -> None:
    """Remove the files that are older. keep_s 0: none."""
    files = audit_files(disk, folder) if keep_s else []
    if not files:
        return
    until_s = aging.until_s(keep_s, lambda: _written_s(disk, files[0], aging))
    for file in files:
        by_file_s = aging.wall_s() - disk.size_and_age(file)[1]
        if by_file_s < until_s and _written_s(disk, file, aging) < until_s:
            disk.unlink(file)
            _log.info("the audit of segment %d is older than audit_keep_s and goes", int(file.stem))


def _written_s(disk: Disk, file: Path, aging: Aging) -> float:
    """When a file was written by the machine's clock, or its last record by the node's, whichever
    is later: the first may have been behind."""
    told_ms = 0
    with suppress(StoreCorrupt, msgspec.MsgspecError):
        for payload in audit_payloads(disk, file):
            told_ms = decode_audit(payload).at_ms
    return max(aging.wall_s() - disk.size_and_age(file)[1], told_ms / 1000)


def _audited(disk: Disk, info: SegmentInfo) -> Iterator[bytes]:
    with opened(disk, info.file) as fd:
        for at, header in audit_headers(disk, fd, info.salt):
            payload = disk.pread(fd, header.length, at + RECORD_HEADER_BYTES)
            if is_whole(header, memoryview(payload)):
                yield payload


def audit_headers(
    disk: Disk, fd: int, salt: int, at: int = SEGMENT_HEADER_BYTES, window_bytes: int = WINDOW_BYTES
) -> Iterator[tuple[int, RecordHeader]]:
    """Where the records of the audit in a segment begin, from a record on, as far as it is written.
    From header to header: payloads are not looked at."""
    window, start = memoryview(b""), 0
    while True:
        if not start <= at <= start + len(window) - RECORD_HEADER_BYTES:
            window, start = memoryview(disk.pread(fd, window_bytes, at)), at
        header = unpack_record_header(window, at - start, salt)
        if header is None or header.kind == KIND_SEAL:
            return
        if header.kind == RecordType.AUDIT:
            yield at, header
        at += record_bytes(header.length)
