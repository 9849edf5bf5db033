"""The archive: what the log has sealed becomes Parquet files, exactly once and proved.

A run takes a piece of the log that nobody writes any more, in this order, each step safe before the
next one:

1. Spark writes the piece's rows into files, by day and destination, that no manifest names;
2. Spark reads them back, and the log once more: both must be the very same rows;
3. the next version of the manifest names the files: from here on they are the archive;
4. the mark in the store's directory says so: the node may let go of these segments.

A run that dies leaves at most files that nobody names, which the next one removes; it goes on where
the manifest ends. Small files of one day are made into larger ones in the same way.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hms.errors.catalogue import ArchiveError
from hms.history import compaction
from hms.history.archive_check import checked, new_manifest, own_identity
from hms.history.archive_erasing import ErasedArchive, erase_archive, remove_unnamed
from hms.history.archive_hadoop import place_of
from hms.history.archive_mark import Mark, read_mark, write_mark
from hms.history.archive_place import ArchivePlace, is_url, local_place
from hms.history.archive_write import (
    HASHED,
    files_of,
    frame_of_log,
    summary,
    write_files,
)
from hms.history.erasing import Erasure
from hms.history.faults import as_own
from hms.history.manifest import Manifest, load_manifest, store_manifest
from hms.history.segments import PathName, Segment, sealed, survey
from hms.history.spark import borrowed_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ArchiveReport", "archive", "erase", "where_of"]

PIECE_BYTES = 512 * 1024 * 1024
"""So much of the log is archived in one step."""
LOCK = "archive.lock"


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What a run did. until_offset: the archive has all offsets below it; behind: what the log has
    sealed meanwhile and the archive not yet, in bytes."""

    where: str
    first_offset: int
    until_offset: int
    rows: int
    files: int
    size: int
    merged: int
    seconds: float
    behind: int = 0


Tell = Callable[[ArchiveReport], object]


def where_of(store: PathName, where: str | None) -> str:
    """Where the archive of a store lies: as said, else where it was before. ArchiveError."""
    if where:
        return where if is_url(where) else str(Path(where).absolute())
    mark = read_mark(store)
    if mark is None:
        detail = "it is not known where it is to lie; give --where, a directory or a URL"
        raise ArchiveError(where="?", detail=detail)
    return mark.where


def archive(
    spark: "SparkSession | None",
    store: PathName,
    where: str | None = None,
    *,
    allow_gap: bool = False,
    on_piece: Tell = lambda _: None,
    interval_s: float | None = None,
    is_stopping: Callable[[float], bool] = lambda _: False,
    master: str | None = None,
    newest: Segment | None = None,
) -> ArchiveReport:
    """Archive what the log of a store has sealed; with an interval, again and again.

    where: a directory or a URL that Spark's Hadoop knows; None: where it was before. is_stopping
    waits so many seconds and says whether to end. on_piece is told what each step did. newest: a
    segment that nobody writes any more although it is the last one, see archive_all(). Raises
    ArchiveError, ArchiveGap, ArchiveMismatch, ArchiveBusy, StoreUnavailable and StoreCorrupt.
    """
    shown = where_of(store, where)
    survey(store)  # refused before Spark is started
    with (
        _refusals(shown),
        _alone(store, shown),
        borrowed_session(spark, "hms-archive", master) as session,
        as_own(),
    ):
        place = place_of(session, shown)
        run = _Run(
            session, os.fspath(store), place, allow_gap, on_piece, newest, is_known=where is None
        )
        run.clean()
        run.take_all()
        while interval_s is not None and not is_stopping(interval_s):
            run.take_all()
        return run.report(time.monotonic() - run.began_s)


def erase(store: PathName, erasure: Erasure, *, is_dry: bool) -> ErasedArchive | None:
    """Erase from the archive of a store; None where it has none. Spark is started only for an
    archive that it alone can reach. ArchiveError, also while a run of it works."""
    mark = read_mark(store)
    if mark is None:
        return None
    with ExitStack() as stack:
        stack.enter_context(_refusals(mark.where))
        if not is_dry:
            stack.enter_context(_alone(store, mark.where))
        if is_url(mark.where):
            session = stack.enter_context(borrowed_session(None, "hms-erase", None))
            stack.enter_context(as_own())
            return erase_archive(place_of(session, mark.where), erasure, is_dry=is_dry)
        return erase_archive(local_place(mark.where), erasure, is_dry=is_dry)


@contextmanager
def _refusals(where: str) -> Iterator[None]:
    """What the disk refuses is an error of the archive."""
    try:
        yield
    except OSError as fault:
        raise ArchiveError(where=where, detail=str(fault)) from fault


@contextmanager
def _alone(store: PathName, where: str) -> Iterator[None]:
    """One run for each store; the lock ends with the process, however it ends."""
    fd = os.open(Path(store) / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            detail = f"another hms history archive works on {store}"
            raise ArchiveError(where=where, detail=detail) from fault
        yield
    finally:
        os.close(fd)


def _refuse_away(store: str, place: ArchivePlace) -> None:
    """A mark moves with a replicated log, a folder of one machine does not: an archive begun anew
    there would have a part of the log twice, or lack one."""
    mark = read_mark(store)
    if mark is not None and mark.until_offset:
        detail = f"it has offsets below {mark.until_offset}, says the store, and nothing is there: "
        detail += "it is on another machine, or was removed; name a place with --where"
        raise ArchiveError(where=place.where, detail=detail)


class _Run:
    """One run over one store; see archive()."""

    def __init__(
        self,
        spark: "SparkSession",
        store: str,
        place: ArchivePlace,
        allow_gap: bool,
        on_piece: Tell,
        newest: Segment | None = None,
        *,
        is_known: bool = False,
    ) -> None:
        self._spark, self._store, self._place = spark, store, place
        self._on_piece, self._newest = on_piece, newest
        self.began_s = time.monotonic()
        self._rows = self._files = self._size = self._merged = 0
        found = load_manifest(place)
        self._is_new = found is None
        if found is None and is_known:
            _refuse_away(store, place)
        known = found or new_manifest(store)
        self._first = known.until_offset
        self._manifest = checked(known, place, store, allow_gap=allow_gap)

    def clean(self) -> None:
        """Remove what runs before this one have left, and write the mark that one may have owed."""
        remove_unnamed(self._place, self._manifest)
        if not self._is_new:
            self._mark()

    def take_all(self) -> None:
        """Archive all that is sealed, piece by piece, and make small files large."""
        while piece := self._next():
            self._take(piece)
        self._compact()

    def _next(self) -> list[Segment]:
        """The oldest sealed segments that the archive does not have, up to a piece."""
        piece: list[Segment] = []
        size = 0
        for segment in self._finished():
            if segment.until_offset <= self._manifest.until_offset:
                continue
            size += segment.size
            if piece and size > PIECE_BYTES:
                break
            piece.append(segment)
        return piece

    def _finished(self) -> list[Segment]:
        """What nobody writes any more. A node that has booted since has sealed the newest too."""
        found = sealed(self._store)
        newest = self._newest
        is_known = newest is None or any(one.number == newest.number for one in found)
        return found if newest is None or is_known else [*found, newest]

    def _take(self, piece: list[Segment]) -> None:
        began_s, place = time.monotonic(), self._place
        identity = own_identity(self._manifest, place, self._store)
        first, until = self._manifest.until_offset, piece[-1].until_offset
        rows = frame_of_log(self._spark, self._store, first, until)
        names = write_files(rows, place, first, sum(segment.size for segment in piece))
        whole = summary(frame_of_log(self._spark, self._store, first, until, HASHED))
        files = files_of(self._spark, place, names, whole, (first, until - 1))
        known = self._manifest
        self._commit(
            msgspec.structs.replace(
                known,
                version=known.version + 1,
                until_offset=until,
                until_segment=piece[-1].number + 1,
                files=[*known.files, *files],
                identity=identity,
            )
        )
        self._rows += whole.rows
        self._files += len(files)
        self._size += sum(file.size for file in files)
        self._on_piece(self.report(time.monotonic() - began_s, first))

    def _commit(self, manifest: Manifest) -> None:
        store_manifest(self._place, manifest)
        self._manifest, self._is_new = manifest, False
        self._mark()

    def _mark(self) -> None:
        known = self._manifest
        writer = known.identity.writer_before(known.until_offset)
        mark = Mark(self._place.where, known.until_offset, known.until_segment, *writer)
        write_mark(self._store, mark)

    def _compact(self) -> None:
        for manifest in compaction.steps(self._spark, self._place, self._manifest):
            self._merged += len(manifest.dropped) - len(self._manifest.dropped)
            self._commit(manifest)
        self._manifest = compaction.forget(self._place, self._manifest)

    def report(self, seconds: float, first: int | None = None) -> ArchiveReport:
        """What was done so far."""
        until = self._manifest.until_offset
        behind = sum(one.size for one in sealed(self._store) if one.until_offset > until)
        return ArchiveReport(
            self._place.where,
            self._first if first is None else first,
            until,
            *(self._rows, self._files, self._size, self._merged, seconds, behind),
        )
