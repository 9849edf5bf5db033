"""The archive's mark: up to where the history's archive has a log, if the mark can be trusted."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from hms.errors.catalogue import StoreCorrupt, StoreFormatUnknown
from hms.records import Writer
from hms.store.journal.disk import Disk
from hms.store.journal.segment_opening import opening
from hms.store.journal.segment_walk import (
    SUFFIXES,
    SegmentInfo,
    opened,
    read_info,
    segment_file,
)

ARCHIVE_MARK: Final = "archive.json"
"""Written into the log's directory by the history's archive: what it has of the log."""
_BYTES_MAX: Final = 1 << 20


def archived_below(disk: Disk, directory: Path) -> int:
    """The first segment that the archive does not have. A mark that cannot be read is none, nor is
    one of another log: of a store that was in this directory before, or of a copy that went on."""
    try:
        mark = json.loads(mark_bytes(disk, directory))
        number, offset = int(mark["until_segment"]), int(mark["until_offset"])
        told = Writer(str(mark.get("store", "")), str(mark.get("boot", "")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return 0
    info = _segment(disk, directory, number)
    if info is None or info.first_lsn != offset or _is_other(disk, info, told):
        return 0
    return number


def mark_bytes(disk: Disk, directory: Path) -> bytes:
    """The file as it is; nothing when there is none."""
    with suppress(FileNotFoundError), opened(disk, directory / ARCHIVE_MARK) as fd:
        return disk.pread(fd, _BYTES_MAX, 0)
    return b""


def archived_offset(data: bytes) -> int | None:
    """The first offset that the archive does not have, as a mark says; None when it is none."""
    try:
        return int(json.loads(data)["until_offset"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_other(disk: Disk, info: SegmentInfo, told: Writer) -> bool:
    """Whether another author wrote what precedes a segment; asked only of marks that name one."""
    if not told.store:
        return False
    found = opening(disk, info)
    return found is None or told.is_other(found.identity.writer_before(info.first_lsn))


def _segment(disk: Disk, directory: Path, number: int) -> SegmentInfo | None:
    """The segment of that number; None when there is none that can be read."""
    for suffix in SUFFIXES:
        file = segment_file(directory, number, suffix)
        with suppress(OSError, StoreCorrupt, StoreFormatUnknown):
            return read_info(disk, file, number, is_last=False)
    return None
