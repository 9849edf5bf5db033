"""Planning: which files of an archive and which segments of a log hold what is asked for.

A plan is one consistent picture: the archive has the offsets up to where its manifest says, the log
those behind. Every file is a part of its own, and the last segment, which the node may still be
writing, ends at the newest safe record of that moment, however long the reading takes.
"""

from dataclasses import dataclass, replace

from hms.errors.catalogue import ArchiveError, HistoryGone
from hms.history.archive_mark import read_mark
from hms.history.archive_place import LocalPlace, is_url, local_place
from hms.history.identity import check_writer, writer_before
from hms.history.manifest import Manifest, begins_where_it_ends, is_archive, load_manifest
from hms.history.scope import Scope
from hms.history.segments import PathName, Segment, Tail, segments_for, survey
from hms.history.tables import Table, is_database, tables_for

__all__ = ["Part", "archive_of", "check_kinship", "is_archive", "plan"]

_PLANS_MAX = 5


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of the log, a range of a database, or a file of the archive, up to an offset,
    excluded.

    archive: where what is gone from the log may be found; "" without one.
    """

    file: str
    until_offset: int
    size: int = 0
    segment: Segment | None = None
    archive: str = ""
    table: Table | None = None

    @property
    def is_archived(self) -> bool:
        """Whether it is a file of the archive."""
        return self.segment is None and self.table is None


def plan(path: PathName, scope: Scope, tail: Tail | None = None) -> list[Part]:
    """The parts of the history that hold what is asked for, the archive's before the log's.

    HistoryGone when it begins behind the first offset that is asked for; ArchiveError.
    """
    if is_database(path):
        tables = tables_for(str(path), scope)
        _check_loss(scope, None, tables[0].first_offset if tables else 0)
        return [Part(one.address, one.until_offset, table=one) for one in tables]
    for _ in range(_PLANS_MAX):
        place = archive_of(path, scope.archive)
        manifest = load_manifest(place) if place else None
        parts = [] if place is None or manifest is None else _archived(place, manifest, scope)
        if place is not None and manifest is not None and is_archive(path):
            return parts
        until = manifest.until_offset if manifest else 0
        if place is not None and manifest is not None:
            check_kinship(path, place.where, manifest)
        begin = survey(path)[0].first_lsn
        # Else the archive went on, and the log let go, between the two looks.
        if not manifest or begin <= until or until == _until(path, scope):
            _check_loss(scope, manifest, begin)
            return parts + _logged(path, replace_first(scope, until), place, tail)
    raise HistoryGone(first=until, last=begin - 1, detail="the archive does not have them yet")


def check_kinship(path: PathName, where: str, manifest: Manifest) -> None:
    """Raise ArchiveError for the archive of a store that was in this directory before: its rows
    would stand for the first ones of this log."""
    until = manifest.until_offset
    if survey(path)[0].first_lsn <= until and not begins_where_it_ends(path, manifest):
        detail = f"it ends with offset {until - 1}, where no segment of {path} does: it is of "
        detail += 'another store; leave it aside with the option archive = "none"'
        raise ArchiveError(where=where, detail=detail)
    told = manifest.identity.writer_before(until)
    check_writer(f"the archive {where}", path, until, told, writer_before(path, until))


def replace_first(scope: Scope, first: int) -> Scope:
    """The scope without the offsets that the archive has."""
    return replace(scope, first_offset=max(scope.first_offset, first))


def _until(path: PathName, scope: Scope) -> int:
    place = archive_of(path, scope.archive)
    manifest = load_manifest(place) if place else None
    return manifest.until_offset if manifest else 0


def archive_of(path: PathName, archive: str) -> LocalPlace | None:
    """The archive that belongs to a path: itself, the one that is named, or the store's own."""
    shown = str(path)
    if archive == "none":
        return None
    if archive:
        return local_place(archive)
    if is_url(shown) or is_archive(path):
        return local_place(shown)
    mark = read_mark(path)
    return local_place(mark.where) if mark else None


def _archived(place: LocalPlace, manifest: Manifest, scope: Scope) -> list[Part]:
    until = manifest.until_offset
    if scope.until_offset is not None:
        until = min(until, scope.until_offset)
    return [
        Part(str(place.path(file.name)), until, file.size, archive=place.where)
        for file in manifest.files
        if file.may_hold(scope, until)
    ]


def _logged(
    path: PathName, scope: Scope, place: LocalPlace | None, tail: Tail | None
) -> list[Part]:
    end = (tail or Tail(path)).end()
    where = place.where if place else ""
    return [
        Part(segment.file, segment.until_offset, segment.size, segment, where)
        for segment in segments_for(path, scope, end)
    ]


def _check_loss(scope: Scope, manifest: Manifest | None, begin: int) -> None:
    """Who goes on from an offset must not pass over what is gone without a word."""
    oldest = min(begin, manifest.first_offset) if manifest else begin
    if scope.fails_on_loss and 0 < scope.first_offset < oldest:
        detail = f"they were let go; the oldest that is left is {oldest}"
        raise HistoryGone(first=scope.first_offset, last=oldest - 1, detail=detail)
