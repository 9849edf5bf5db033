"""Identity: whether what goes on at an offset goes on in the log that it began in.

An archive, its mark, a stream's checkpoint and the ledger of a replay remember who wrote what
stands before the offset where they go on. A log in which another one wrote that is not taken for
the same, however alike the numbers are: it is another store, or a copy or an older state that went
its own way.
"""

from hms.errors.catalogue import StoreDiffers
from hms.history.archive_place import local_place
from hms.history.manifest import is_archive, load_manifest
from hms.history.segments import PathName, identity_of_log
from hms.history.tables import identity_of_tables, is_database
from hms.records import Identity, Writer

__all__ = ["check_writer", "identity_of", "writer_before"]

_SHOWN = 8


def identity_of(path: PathName) -> Identity:
    """Of the store in a directory or database, or of an archive; an empty one when none is told."""
    shown = str(path)
    if is_database(path):
        return identity_of_tables(shown)
    if not is_archive(path):
        return identity_of_log(path)[1]
    manifest = load_manifest(local_place(shown))
    return manifest.identity if manifest else Identity()


def writer_before(path: PathName, offset: int) -> Writer:
    """Who wrote what stands before an offset."""
    return identity_of(path).writer_before(offset)


def check_writer(what: str, path: PathName, offset: int, told: Writer, here: Writer) -> None:
    """Raise StoreDiffers when what stands before an offset was written by another one here than
    what goes on there was told."""
    if not told.is_other(here):
        return
    if told.store != here.store:
        known = f"this one is {here.store[:_SHOWN]}" if here.store else "this one has no identity"
        detail = f"it is of store {told.store[:_SHOWN]}, {known}"
    else:
        detail = f"up to there boot {told.boot[:_SHOWN]} of the store wrote, here boot "
        detail += f"{here.boot[:_SHOWN]}: the directory is a copy that went on, or was set back"
    raise StoreDiffers(what=what, offset=offset, path=str(path), detail=detail)
