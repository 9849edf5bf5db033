"""The manifest: which files an archive is made of, and up to where it replaces the log.

    WHERE/manifest/000000000012.json     the archive's versions; the highest number counts
    WHERE/data/day=2026-11-01/…parquet   rows of that day (UTC), by destination and offset

A file is part of the archive only when the manifest names it. A version is written once, whole, and
only if nobody else has written that number; so an archive changes from one good state to the next
by one step, wherever a run dies, and a reader that has a version has one picture.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from hms.errors.catalogue import ArchiveBusy, ArchiveError
from hms.history.archive_place import ArchivePlace, FileTakenError, LocalPlace, is_url
from hms.history.runs import Place
from hms.history.scope import Scope
from hms.history.segments import PathName, Tail, survey
from hms.records import Identity

__all__ = [
    "ArchiveFile",
    "Manifest",
    "begins_where_it_ends",
    "is_archive",
    "load_manifest",
    "store_manifest",
]

FORMAT = 1
FOLDER = "manifest"
KEPT_VERSIONS = 10
_LOOKS = 5
_DESTINATIONS_MAX = 256
"""A file with more of them is not passed over by destination; its row groups are."""


class ArchiveFile(msgspec.Struct, frozen=True):
    """A file of rows. destinations: "queue:NAME" of all its rows, None for very many; first and
    last: offsets, both included, with rows of other files between them."""

    name: str
    day: str
    rows: int
    size: int
    first: int
    last: int
    from_ms: int
    to_ms: int
    destinations: list[str] | None = None
    events: list[str] | None = None

    def may_hold(self, scope: Scope, until: int | None = None) -> bool:
        """Whether a row in it may be asked for."""
        return (
            self.last >= scope.first_offset
            and (until is None or self.first < until)
            and (scope.from_ms is None or self.to_ms >= scope.from_ms)
            and (scope.until_ms is None or self.from_ms < scope.until_ms)
            and (
                not scope.events or self.events is None or not scope.events.isdisjoint(self.events)
            )
            and self._has_destination(scope)
        )

    def _has_destination(self, scope: Scope) -> bool:
        if self.destinations is None:
            return True
        both = (shown.partition(":") for shown in self.destinations)
        return any(scope.wants_place(Place(name, kind)) for kind, _, name in both)


class Manifest(msgspec.Struct, frozen=True):
    """A version of an archive.

    It has all offsets from first_offset to until_offset, excluded, but for the gaps (both ends as
    of first_offset and until_offset). until_segment: the log's segments below this number are in
    it. dropped: (name, time in ms) of files that a compaction has replaced. identity: of the store,
    as far as it was known at until_offset.
    """

    version: int
    node_uid: int
    first_offset: int
    until_offset: int
    until_segment: int
    files: Sequence[ArchiveFile] = ()
    gaps: Sequence[tuple[int, int]] = ()
    dropped: Sequence[tuple[str, int]] = ()
    format: int = FORMAT
    identity: Identity = Identity()


def is_archive(path: PathName) -> bool:
    """Whether a path is an archive, not a store."""
    shown = str(path)
    return is_url(shown) or bool(LocalPlace(shown, Path(path)).names(FOLDER))


def begins_where_it_ends(store: PathName, manifest: Manifest) -> bool:
    """Whether the log goes on right behind an archive: with a segment that begins there, or, where
    the archive has all of a store that no node has booted since, with the next one."""
    behind = (manifest.until_segment, manifest.until_offset)
    for _ in range(2):  # a node may boot between two looks
        found = survey(store)
        if behind in [(one.number, one.first_lsn) for one in found]:
            return True
        if behind == (found[-1].number + 1, Tail(store).end()):
            return True
    return False


def known_destinations(names: Sequence[str]) -> list[str] | None:
    """What a manifest tells of a file's destinations."""
    return sorted(names) if len(names) <= _DESTINATIONS_MAX else None


def load_manifest(place: ArchivePlace) -> Manifest | None:
    """The newest version; None where there is no archive. ArchiveError."""
    try:
        for _ in range(_LOOKS):
            versions = _versions(place)
            if not versions:
                return None
            with suppress(FileNotFoundError):  # replaced and removed between the two looks
                return _decode(place, place.read(_name(versions[-1])))
    except OSError as fault:
        raise ArchiveError(where=place.where, detail=str(fault)) from fault
    raise ArchiveError(where=place.where, detail="its manifest changes faster than it can be read")


def store_manifest(place: ArchivePlace, manifest: Manifest) -> None:
    """Commit a version. ArchiveBusy when another run has committed that one."""
    try:
        place.create(_name(manifest.version), msgspec.json.format(msgspec.json.encode(manifest)))
    except FileTakenError as fault:
        raise ArchiveBusy(where=place.where, version=manifest.version) from fault
    for old in _versions(place):
        if old <= manifest.version - KEPT_VERSIONS:
            place.remove(_name(old))


def _versions(place: ArchivePlace) -> list[int]:
    names = place.names(FOLDER)
    return sorted(
        int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()
    )


def _name(version: int) -> str:
    return f"{FOLDER}/{version:012d}.json"


def _decode(place: ArchivePlace, data: bytes) -> Manifest:
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as fault:
        raise ArchiveError(where=place.where, detail=f"its manifest is damaged: {fault}") from fault
    if found.format > FORMAT:
        detail = f"it has format {found.format}; this version reads up to {FORMAT}"
        raise ArchiveError(where=place.where, detail=detail)
    return found
