"""Whether an archive is of the store that it is to go on with, and of its past."""

import msgspec

from hms.errors.catalogue import ArchiveError, ArchiveGap
from hms.history.archive_place import ArchivePlace
from hms.history.identity import check_writer, identity_of
from hms.history.manifest import Manifest, begins_where_it_ends
from hms.history.segments import Tail, survey
from hms.records import Identity
from hms.store.journal.segment_walk import SegmentInfo

__all__ = ["checked", "new_manifest", "own_identity"]


def new_manifest(store: str) -> Manifest:
    """The state of an archive that has nothing yet."""
    first = survey(store)[0]
    return Manifest(0, first.node_uid, first.first_lsn, first.first_lsn, first.number)


def checked(manifest: Manifest, place: ArchivePlace, store: str, *, allow_gap: bool) -> Manifest:
    """The manifest, with the gap that is allowed behind it. ArchiveError, ArchiveGap, StoreDiffers
    for an archive of another log."""
    found = survey(store)
    if manifest.node_uid != found[0].node_uid:
        detail = f"it is of node {manifest.node_uid}, the store {store} of another one"
        raise ArchiveError(where=place.where, detail=detail)
    identity = own_identity(manifest, place, store)
    end, until = Tail(store).end(), manifest.until_offset
    if end < until:
        detail = f"it has offsets up to {until}, and the log ends before {end}: {store} is a newer "
        detail += "store, or one that was set back; give another place"
        raise ArchiveError(where=place.where, detail=detail)
    if found[0].first_lsn > until:
        if not allow_gap:
            first = found[0].first_lsn
            raise ArchiveGap(where=place.where, end=until, first=first, path=store)
        return _behind_gap(manifest, found[0], identity)
    if not begins_where_it_ends(store, manifest):
        detail = f"it ends with offset {until - 1}, where no segment of {store} does: the store "
        detail += "was begun anew meanwhile; give another place"
        raise ArchiveError(where=place.where, detail=detail)
    return manifest


def own_identity(manifest: Manifest, place: ArchivePlace, store: str) -> Identity:
    """That of the store, which is the one that the archive is of. StoreDiffers."""
    found, until = identity_of(store), manifest.until_offset
    told, here = manifest.identity.writer_before(until), found.writer_before(until)
    check_writer(f"the archive {place.where}", store, until, told, here)
    return found


def _behind_gap(manifest: Manifest, first: SegmentInfo, identity: Identity) -> Manifest:
    """Go on where the log begins now, and note what is missing."""
    return msgspec.structs.replace(
        manifest,
        gaps=[*manifest.gaps, (manifest.until_offset, first.first_lsn)],
        until_offset=first.first_lsn,
        until_segment=first.number,
        identity=identity,
    )
