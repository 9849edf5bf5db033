"""Segments: an operator has the log begin a new one, so that an archive can take this one, or has
those leave it that hold what was erased.

log.seal, backup.create    -> {"offset": the first one that does not lie in a sealed segment; that
                               which was given as since: nothing is new}
backup.verify              -> {}: who reads backups is told that it may, and the audit of it
erasure.begin, erasure.end -> {"audit": the number of its record, 0 at an open node}
store.finalize             -> {"format_before", "format": the newest, which the next segment has}
log.erase                  -> {"live": of the ids, those that wait; "first": the first segment whose
                               live messages were not told again}
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.errors.catalogue import InvalidArgument, StoreFull
from hms.records import Record
from hms.store.interface import Store
from hms.wire.operations import (
    BeginErasure,
    CreateBackup,
    EndErasure,
    EraseLog,
    FinalizeStore,
    VerifyBackup,
)

__all__ = ["SEALS", "SEGMENT_OPERATIONS", "SegmentOperations"]

SEALS = frozenset(("log.seal", "backup.create"))

SEGMENT_OPERATIONS = frozenset(
    (
        *("log.seal", "backup.create", "backup.verify", "log.erase", "store.finalize"),
        *("erasure.begin", "erasure.end"),
    )
)
T = TypeVar("T")
_NOT_READY = "no further segment is prepared yet; ask again in a moment"


class SegmentOperations:
    """What answers the verbs; called under the engine's lock."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        check_format: Callable[[int], None] = lambda _format: None,
    ) -> None:
        self._engine, self._store = engine, store
        self._check_format = check_format
        self._quiet = range(0)
        """Sequence numbers up to the last one of which none but the first, the seals of the log,
        what belongs to them and logins took any."""

    def has_news(self, shipped: CreateBackup) -> bool:
        """Whether the log has anything that was not shipped then, other than the records of orders
        to seal it, and of logins: those of one who ships what nobody wrote would never end."""
        quiet, state = self._quiet, self._engine.state
        is_ours = shipped.since in quiet and shipped.store == state.identity.store.hex()
        return not is_ours or self._store.last_lsn != quiet[-1]

    def asked(self, records: Iterable[Record], *, is_sealed: bool) -> None:
        """An order to seal the log was done or, which is audited too, refused; these are its
        records, which are not in the log yet."""
        offset = self._store.last_lsn + 1
        is_quiet = self._is_quiet(offset)
        if not (is_quiet or is_sealed):
            return
        own = sum(record.events for record in records)
        own += self._engine.dictionary().events if is_sealed else 0
        self._quiet = range(self._quiet.start if is_quiet else offset, offset + own)

    def passed(self, records: Sequence[Record]) -> None:
        """These are no reason for a backup: somebody logged in."""
        if self._is_quiet(offset := self._store.last_lsn + 1):
            last = offset + sum(record.events for record in records)
            self._quiet = range(self._quiet.start, last)

    def _is_quiet(self, offset: int) -> bool:
        """Whether none but such records came right before it."""
        return bool(self._quiet) and self._quiet[-1] == offset - 1

    def operate(self, arguments: Any, fx: Effects) -> dict[str, Any]:
        """The answer to any of them."""
        if isinstance(arguments, EraseLog):
            return self._erase(arguments)
        if isinstance(arguments, VerifyBackup):
            return {}
        if isinstance(arguments, BeginErasure | EndErasure):
            return {"audit": self._engine.state.operation}
        if isinstance(arguments, FinalizeStore):
            self._check_format(int(str(self._store.describe()["newest_store_format"])))
            before, now = self._begun(self._store.finalize, fx)
            return {"format_before": before, "format": now}
        return {"offset": self._begun(self._store.seal, fx)}

    def _begun(self, begin: Callable[[], T | None], fx: Effects) -> T:
        """StoreFull when there is no room for a new segment: the present one is to last until there
        is."""
        refused = self._store.sends_refused()
        done = begin() if refused is None else None
        if done is None:
            path = str(self._store.describe().get("path", "the store"))
            raise StoreFull(path=path, detail=refused or _NOT_READY)
        self._engine.tell_identity(fx)
        return done

    def _erase(self, asked: EraseLog) -> dict[str, Any]:
        """What does not wait now never does again: its bytes may go whenever the copy is ready."""
        wanted = _ids(asked.ids)
        first = self._store.leave(asked.until)
        if asked.is_ready:
            self._store.adopt(asked.segment)
        blocks = self._engine.blocks_in(asked.segment) if wanted else ()
        live = {m.id for block in blocks for m in block.lying() if m is not None}
        found = " ".join(f"{id_:x}" for id_ in sorted(live & wanted))
        return {"live": found, "first": first}


def _ids(text: str) -> set[int]:
    """Hexadecimal ids with blanks between; InvalidArgument."""
    try:
        return {int(id_, 16) for id_ in text.split()}
    except ValueError as fault:
        raise InvalidArgument(what="ids", detail=str(fault)) from fault
