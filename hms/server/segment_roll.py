"""Sealing: an operator has the log begin a new segment, so that an archive can take this one.

log.seal, backup.create    -> {"offset": the first one that does not lie in a sealed segment}
"""

from collections.abc import Callable

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.errors.catalogue import StoreFull
from hms.store.interface import Store

__all__ = ["BACKUP", "SEAL", "sealing"]

SEAL, BACKUP = "log.seal", "backup.create"
_NOT_READY = "no further segment is prepared yet; ask again in a moment"


def sealing(engine: Engine, store: Store) -> Callable[[Effects], dict[str, int]]:
    """What answers the verb; called under the engine's lock. StoreFull when there is no room for a
    new segment: the present one is to last until there is."""

    def seal(fx: Effects) -> dict[str, int]:
        refused = store.sends_refused()
        offset = store.seal() if refused is None else None
        if offset is None:
            path = str(store.describe().get("path", "the store"))
            raise StoreFull(path=path, detail=refused or _NOT_READY)
        engine.tell_identity(fx)
        return {"offset": offset}

    return seal
