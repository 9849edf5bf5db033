"""Salvage: a damaged store copied into a new directory with everything in it that verifies.

Nothing of the damaged store is changed. A sound segment is copied as it is. Of a damaged one the
sound records are written anew under their old sequence numbers, and where numbers are lost the
record that opens every segment (the dictionary) is told again with their count: so definitions
that were lost are known behind the gap, and no sequence number gets a second meaning.

The new store is made under another name and renamed when it is whole, so half of one never boots.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hms.errors.catalogue import StoreLocked, StoreUnavailable
from hms.store.journal.disk import REAL_DISK, Disk
from hms.store.journal.gaps import Dropped
from hms.store.journal.lock import LOCK_NAME
from hms.store.journal.reader import PathName
from hms.store.journal.segment_walk import opened
from hms.store.journal.store_rebuild import Rebuild

UNFINISHED: Final = ".unfinished"


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What salvage() did, or with no target would do."""

    source: Path
    target: Path | None
    segments: int
    records: int
    bytes: int
    dropped: list[Dropped]


def salvage(source: PathName, target: PathName | None, disk: Disk = REAL_DISK) -> Salvaged:
    """Copy what verifies; with no target only tell what would be done.

    Raises StoreLocked while a node has the store, StoreUnavailable when the target exists or
    nothing can be read, StoreFormatUnknown for a newer store.
    """
    directory = Path(source)
    try:
        with held(disk, directory):
            if target is None:
                return _salvaged(directory, None, Rebuild(disk, directory, None))
            return _into(disk, directory, Path(os.path.abspath(target)))  # noqa: PTH100
    except OSError as error:
        where = str(error.filename or source)
        raise StoreUnavailable(path=where, detail=error.strerror or str(error)) from error


@contextmanager
def held(disk: Disk, directory: Path) -> Iterator[None]:
    """Keep a node from booting meanwhile; the lock file is not written."""
    if LOCK_NAME not in disk.list_dir(directory):
        yield
        return
    with opened(disk, directory / LOCK_NAME) as fd:
        if not disk.lock(fd):
            pid = disk.pread(fd, 20, 0).strip().decode("ascii", "replace") or "unknown"
            raise StoreLocked(path=str(directory), pid=pid)
        yield


def _into(disk: Disk, source: Path, target: Path) -> Salvaged:
    unfinished = target.with_name(target.name + UNFINISHED)
    if source.resolve() in target.resolve().parents:
        detail = "it lies in the store that is to be saved; name a directory elsewhere"
        raise StoreUnavailable(path=str(target), detail=detail)
    for place in (target, unfinished):
        if place.exists():
            raise StoreUnavailable(path=str(place), detail="it exists; name a new directory")
    rebuild = Rebuild(disk, source, unfinished)
    disk.make_dir(unfinished)
    done = _salvaged(source, target, rebuild)
    disk.fsync_dir(unfinished)
    disk.rename(unfinished, target)
    disk.fsync_dir(target.parent)
    return done


def _salvaged(source: Path, target: Path | None, rebuild: Rebuild) -> Salvaged:
    rebuild.run()
    counted = (rebuild.segments, rebuild.records, rebuild.bytes)
    return Salvaged(source, target, *counted, rebuild.gaps.finish())
