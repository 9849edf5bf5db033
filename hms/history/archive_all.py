"""All of a log: also the segment that is being written, which an archive leaves to the next run.

A node is asked to begin a new segment, so that the present one is finished. Of a store that no node
has the newest segment is finished as it stands: the next boot begins another one. A copy of a
replicated log gets it from its primary, which is asked to seal.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hms.errors.catalogue import ArchiveError, StoreLocked
from hms.history import seals
from hms.history.archive import ArchiveReport, Tell, archive
from hms.history.segments import PathName, Segment, is_copy, sealed, unwritten

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["archive_all", "seal"]

COPY_S: Final = 30.0
LOOK_S: Final = 0.05


def archive_all(
    spark: "SparkSession | None",
    store: PathName,
    where: str | None = None,
    *,
    address: "Callable[[], str]",
    allow_gap: bool = False,
    on_piece: Tell = lambda _: None,
    master: str | None = None,
) -> ArchiveReport:
    """Archive all that the log of a store holds now. address: gives that of the node, which is
    asked only if it runs. Raises what archive() does, and StoreFull, see seal()."""
    newest = _newest(store, address)
    more = {"on_piece": on_piece, "master": master, "newest": newest}
    return archive(spark, store, where, allow_gap=allow_gap, **more)  # type: ignore[arg-type]


def _newest(store: PathName, address: "Callable[[], str]") -> Segment | None:
    if is_copy(store):
        _await_sealed(store, seal(address()))
        return None
    try:
        return unwritten(Path(store))
    except StoreLocked:
        seal(address())
        return None


def _await_sealed(store: PathName, offset: int) -> None:
    """Until a copy has what its primary has sealed. ArchiveError when it does not get it."""
    until_s = time.monotonic() + COPY_S
    while max((one.until_offset for one in sealed(store)), default=0) < offset:
        if time.monotonic() >= until_s:
            detail = f"{store} does not have the log up to offset {offset - 1} after {COPY_S:g} s: "
            detail += "look whether this copy follows (hms replica status)"
            raise ArchiveError(where="?", detail=detail)
        time.sleep(LOOK_S)


def seal(address: str) -> int:
    """Have the log of a node begin a new segment; its first offset. StoreFull when the node has no
    room for one."""
    from hms.client.connection import Connection  # noqa: PLC0415 - loads the client
    from hms.client.profiles.profiled import tool_connection  # noqa: PLC0415 - the same

    made = tool_connection(Connection, address, client_name="hms history seal")
    with made.open() as connection:
        return seals.seal(connection)
