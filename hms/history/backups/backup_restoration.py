"""Restoration: a new store with what a node had at a sequence number, or at a time.

Of what happened after that moment the new store knows nothing: what was acknowledged since comes
again, flagged as redelivered; what was sent since is gone. Ids are not given twice: the new store
skips as many as a node could have given since. It is another log: clients and peers notice.
"""

import json
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.queue.pending_list import RANGES_PER_RECORD, ids_of
from hms.engine.schedule.schedule_plans import Calendar
from hms.errors.catalogue import BackupRefused
from hms.history.backups.backup_chain import (
    chain_of,
    check_files,
    count_places,
    earliest,
    holding,
    linked,
    records_of,
    recovered,
)
from hms.history.backups.backup_creation import SPARE_BYTES, no_space
from hms.history.backups.backup_manifest import FILES, Manifest, sync_folder
from hms.history.events import EventDecoder
from hms.records import (
    Identity,
    OfferEnded,
    Record,
    RecordType,
    offer_ended,
    peers,
    ranges,
    reserved,
)
from hms.records import identity as identity_record
from hms.records.audit import NO_HASH, AuditEntry
from hms.store.interface import SEGMENT_SHIFT
from hms.store.journal import Journal
from hms.store.journal.format import RECORD_HEADER_BYTES, record_bytes
from hms.store.journal.segment_walk import AUDIT_SUFFIX, PINNED_SUFFIX, segment_file
from hms.wire.commands import Action
from hms.wire.packed_messages import ID_COUNTER_BITS

__all__ = ["Restored", "restore"]

IDS_SKIPPED_MIN = 1 << 32
IDS_A_SECOND = 1_000_000
IDS_TOLD = 20
NAME_SAID_MAX = 200
_COLUMNS = ("offset", "event", "time", "message_id", "destination", "destination_kind")


class Restored(NamedTuple):
    """lsn, at_ms: of the last record that is in it; first_id: no message of the new store has a
    lower id than that which is sent there; counts: what waits at each place. come_again: what was
    acknowledged after that moment, by place; gone: what was sent after it; both as far as the
    backup knows, whose end is until_lsn."""

    store: str
    lsn: int
    at_ms: int
    until_lsn: int
    first_id: int
    counts: dict[str, int]
    come_again: dict[str, int]
    gone: dict[str, int]
    gone_ids: list[str]


class _Cut(NamedTuple):
    """The last record that is wanted: its segment, where it ends there, and its number."""

    segment: int
    end: int
    lsn: int
    at_ms: int


def restore(
    backup: Path,
    to: Path,
    calendar: Calendar,
    *,
    until_lsn: int = 0,
    until_ms: int = 0,
    now_ms: int = 0,
    by: str = "system",
) -> Restored:
    """A new store in `to`, which is not there or empty. until_lsn: the last sequence number that is
    wanted; until_ms: or the last time; neither: all. by: who restores it, for its audit.
    BackupRefused, and nothing was written."""
    _check_target(to)
    chain = chain_of(backup)
    for path, manifest in chain:
        check_files(path, manifest)
    _check_space(to, chain)
    with linked(chain) as log, _beside(to) as part:
        after = Counter[str](), Counter[str](), list[str]()
        cut = _cut(log, chain, until_lsn, until_ms, after)
        _write_log(log, chain, cut, part)
        _write_files(chain, part)
        first_id, counts = _finish(part, chain[-1][1], cut, calendar, now_ms, by)
    end = chain[-1][1].until_lsn
    told = dict(after[0]), dict(after[1]), after[2]
    return Restored(str(to), cut.lsn, cut.at_ms, end, first_id, counts, *told)


def _check_target(to: Path) -> None:
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        in_use = (to / "LOCK").exists()
        what = "it is the store of a node" if in_use else "it is not empty"
        raise BackupRefused(what=str(to), detail=f"{what}; name a directory that is not there")


def _check_space(to: Path, chain: list[tuple[Path, Manifest]]) -> None:
    last = chain[-1][1]
    wanted = sum(one.bytes for _, manifest in chain for one in manifest.files)
    wanted += last.segment_bytes + SPARE_BYTES
    there = next(path for path in (to, *to.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < wanted:
        detail = f"it takes {wanted} bytes, and {free} are free; nothing was written"
        raise BackupRefused(what=str(to), detail=detail)


@contextmanager
def _beside(to: Path) -> Iterator[Path]:
    """A folder that becomes the store when all is well, and is removed when it is not."""
    part = to.with_name(f".{to.name}.part-{os.getpid()}")
    try:
        part.mkdir(mode=0o700, parents=True)
        yield part
        if to.exists():
            to.rmdir()
        part.rename(to)
        sync_folder(to.absolute().parent)
    except OSError as fault:
        raise no_space(to, fault) from fault
    finally:
        shutil.rmtree(part, ignore_errors=True)


# where it ends


def _cut(
    log: Path,
    chain: list[tuple[Path, Manifest]],
    until_lsn: int,
    until_ms: int,
    after: tuple[Counter[str], Counter[str], list[str]],
) -> _Cut:
    """The last wanted record; what the records behind it tell of is counted in `after`."""
    first, last = chain[0][1].until_lsn - 1, chain[-1][1].until_lsn - 1
    if until_lsn and not first <= until_lsn <= last:
        detail = f"sequence number {until_lsn} is not between {first} and {last}"
        detail += f", which can be restored; {_elsewhere(chain, until_lsn, until_ms)}"
        raise BackupRefused(what=str(chain[-1][0]), detail=detail)
    decoder = EventDecoder(columns=_COLUMNS)
    cut, at_ms, base_ms, is_over = None, 0, 0, False
    for lsn, kind, count, payload, position in records_of(log, chain):
        events = list(decoder.decode(lsn, kind, payload))
        record_ms = max((event.time for event in events), default=at_ms)
        end_lsn = lsn + count - 1
        is_over = is_over or (until_lsn != 0 and end_lsn > until_lsn)
        is_over = is_over or (until_ms != 0 and record_ms > until_ms)
        if is_over:
            _count(events, after)
            continue
        at_ms = max(at_ms, record_ms)
        base_ms = at_ms if end_lsn <= first else base_ms
        segment, start = position >> SEGMENT_SHIFT, position & ((1 << SEGMENT_SHIFT) - 1)
        end = start - RECORD_HEADER_BYTES + record_bytes(len(payload))
        cut = _Cut(segment, end, end_lsn, at_ms)
    if cut is None or cut.lsn < first:
        detail = f"that is before the full backup {chain[0][0].name}, whose last record"
        detail += f" is {first}; {_elsewhere(chain, until_lsn, until_ms)}"
        raise BackupRefused(what=str(chain[-1][0]), detail=detail)
    return cut


def _elsewhere(chain: list[tuple[Path, Manifest]], until_lsn: int, until_ms: int) -> str:
    """Which other backup of the folder has that moment; none: which is the earliest there."""
    backup = chain[-1][0]
    other = holding(backup, lsn=until_lsn, at_ms=until_ms)
    if other is not None:
        return f"{other} has it"
    first = earliest(backup)
    at = (
        f", of {datetime.fromtimestamp(first.at_ms / 1000, UTC).isoformat()}" if first.at_ms else ""
    )
    return f"none in {backup.parent} has it; the earliest is {first.lsn}{at}"


def _count(events: list[Any], after: tuple[Counter[str], Counter[str], list[str]]) -> None:
    again, gone, ids = after
    for event in events:
        place = f"{event.destination_kind or '?'}:{event.destination or '?'}"
        if event.event == "acknowledged":
            again[place] += 1
        elif event.event == "sent":
            gone[place] += 1
            if len(ids) < IDS_TOLD:
                ids.append(event.message_id)


# the new store


def _write_log(log: Path, chain: list[tuple[Path, Manifest]], cut: _Cut, part: Path) -> None:
    """The segments up to the cut, the last one without what is behind it."""
    pinned = sorted(log.glob(f"*{PINNED_SUFFIX}"))
    numbers = range(chain[0][1].first_segment, cut.segment + 1)
    for source in [*pinned, *(segment_file(log, number) for number in numbers)]:
        target = part / source.name
        shutil.copyfile(source, target)
        target.chmod(0o600)
        with target.open("r+b") as file:
            if target == segment_file(part, cut.segment):
                file.truncate(cut.end)
                file.truncate(cut.end + RECORD_HEADER_BYTES)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(part)


def _write_files(chain: list[tuple[Path, Manifest]], part: Path) -> None:
    """Files of messages, and the audit of segments that are gone."""
    for path, manifest in chain:
        for one in manifest.files:
            if one.name.startswith(f"{FILES}/") or one.name.endswith(AUDIT_SUFFIX):
                target = part / one.name
                target.parent.mkdir(exist_ok=True)
                shutil.copy2(path / one.name, target)
                with target.open("rb") as file:
                    os.fsync(file.fileno())


def _finish(
    part: Path, manifest: Manifest, cut: _Cut, calendar: Calendar, now_ms: int, by: str
) -> tuple[int, dict[str, int]]:
    """Say in the new log that it is another one, which ids it may give, that what waits may have
    been seen, and in the audit of a node that has one who has restored what; the first such id, and
    what waits."""
    engine = recovered(part, manifest.node_uid, calendar)
    counts, state = count_places(engine), engine.state
    present_ms = now_ms or int(time.time() * 1000)
    known_ms = cut.at_ms or manifest.created_ms  # a node that never took a message has no time
    since = max(0, present_ms - known_ms), max(0, present_ms - manifest.created_ms)
    below = _first_id(manifest, state.ids.reserved_below, *since)
    state.ids.reserved(below)
    journal = Journal.open(part, segment_bytes=manifest.segment_bytes, node_uid=manifest.node_uid)
    try:
        for _ in journal.recover():
            pass
        journal.pin(engine.pinned_segments())
        told = Identity(restored_from=_said(manifest, known_ms), restored_below=below)
        state.identity = told.booted(journal.last_lsn + 1, secrets.token_bytes(16))
        journal.start(lambda: _parts(engine.dictionary()))
        first = reserved(below), identity_record(state.identity)
        audited = _audited(engine, manifest, cut, by, present_ms)
        moves = _moved(engine, present_ms)
        for record in (*first, *moves, *_seen(engine), *audited):
            journal.append(*_parts(record))
        journal.commit()
    finally:
        journal.close()
    for name in ("LOCK", *(path.name for path in part.glob("*.spare"))):
        (part / name).unlink(missing_ok=True)
    return below, counts


def _moved(engine: Engine, now_ms: int) -> Iterator[Record]:
    """For other nodes it is a new store, as it counts its offers from there on again: their answers
    to those numbers were for other messages. What had no answer waits here again."""
    moves = engine.state.moves
    if moves.life:
        for made in moves.offers():
            known = made.peer, made.number
            yield offer_ended(
                OfferEnded(*known, is_accepted=False, at_ms=now_ms, is_redelivered=True)
            )
        life = max(now_ms, moves.life + 1, engine.state.now_ms + 1)  # above all times in it
        yield peers(replace(moves.memory(), life=life, incarnation=0))


def _said(manifest: Manifest, at_ms: int) -> str:
    """The $RestoredFrom of what was in it."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"{manifest.name[:NAME_SAID_MAX]} {at}"


def _audited(
    engine: Engine, manifest: Manifest, cut: _Cut, by: str, now_ms: int
) -> Iterator[Record]:
    """Nothing of a node that was never secured."""
    audit = engine.state.audit
    if audit.number:
        facts = {"backup": manifest.name, "lsn": cut.lsn, "at_ms": cut.at_ms}
        what = str(Action.OPERATE), f"node:{manifest.node}", "restore", json.dumps(facts)
        fx = Effects()
        audit.append(AuditEntry(0, now_ms, by, "", *what, 0, 1, NO_HASH), fx)
        yield from fx.records


def _parts(record: Record) -> tuple[int, int, Any]:
    return int(record.type), record.events, record.parts


def _first_id(manifest: Manifest, below: int, since_ms: int, since_backup_ms: int) -> int:
    """An id that no node can have given since: neither the one that was backed up, nor a store that
    was restored from the same backup before. BackupRefused when there is none left."""
    base = (manifest.node_uid & 0xFF) << ID_COUNTER_BITS
    apart = IDS_A_SECOND * since_backup_ms // 1000
    skipped = max(IDS_SKIPPED_MIN + apart, IDS_A_SECOND * -(-since_ms // 1000))
    first = max(below, manifest.next_id) + skipped
    if first >= base + (1 << ID_COUNTER_BITS):
        detail = f"its HMSINDEX has no {skipped} ids left, which may have been given since"
        raise BackupRefused(what=manifest.name, detail=f"{detail}; the node needs another HMSINDEX")
    return first


def _seen(engine: Engine) -> Iterator[Record]:
    """What waits may have been seen since: it counts as delivered."""
    for number, place in engine.state.places.items():
        if number and place.is_durable:
            spans = ids_of([m for m in place.line.everything() if m.is_persistent])
            for start in range(0, len(spans), RANGES_PER_RECORD):
                chunk = spans[start : start + RANGES_PER_RECORD]
                at_ms = engine.state.now_ms
                yield ranges(RecordType.DELIVERED, number, at_ms, chunk)
