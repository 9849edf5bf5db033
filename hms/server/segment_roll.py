"""Segments: an operator has the log begin a new one, so that an archive can take this one, or has
those leave it that hold what was erased.

log.seal, backup.create    -> {"offset": the first one that does not lie in a sealed segment}
log.erase                  -> {"live": of the ids, those that wait; "first": the first segment whose
                               live messages were not told again}
"""

from typing import Any

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.errors.catalogue import StoreFull
from hms.store.interface import Store
from hms.wire.operations import EraseLog

__all__ = ["BACKUP", "SEGMENT_OPERATIONS", "SegmentOperations"]

BACKUP = "backup.create"
SEGMENT_OPERATIONS = frozenset(("log.seal", BACKUP, "log.erase"))
_NOT_READY = "no further segment is prepared yet; ask again in a moment"


class SegmentOperations:
    """What answers the verbs; called under the engine's lock."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine, self._store = engine, store

    def operate(self, arguments: Any, fx: Effects) -> dict[str, Any]:
        """The answer to any of them."""
        return self._erase(arguments) if isinstance(arguments, EraseLog) else self._seal(fx)

    def _seal(self, fx: Effects) -> dict[str, int]:
        """StoreFull when there is no room for a new segment: the present one is to last until there
        is."""
        store = self._store
        refused = store.sends_refused()
        offset = store.seal() if refused is None else None
        if offset is None:
            path = str(store.describe().get("path", "the store"))
            raise StoreFull(path=path, detail=refused or _NOT_READY)
        self._engine.tell_identity(fx)
        return {"offset": offset}

    def _erase(self, asked: EraseLog) -> dict[str, Any]:
        """What does not wait now never does again: its bytes may go whenever the copy is ready."""
        if asked.is_ready:
            self._store.adopt(asked.segment)
        wanted = {int(id_, 16) for id_ in asked.ids.split()}
        blocks = self._engine.blocks_in(asked.segment) if wanted else ()
        live = {m.id for block in blocks for m in block.lying() if m is not None}
        found = " ".join(f"{id_:x}" for id_ in sorted(live & wanted))
        return {"live": found, "first": self._store.leave(asked.until)}
