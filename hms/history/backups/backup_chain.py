"""A chain: a full backup and those that follow it, read as one log.

Verifying checks the digest of every file, then reads the log as a boot does, and compares how many
messages wait at each place with what the manifest says.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from hms.client.compression import inflated
from hms.engine.engine import Engine
from hms.engine.queue.destinations import Subscription
from hms.engine.queue.file_references import FileMessage
from hms.engine.schedule.schedule_plans import Calendar
from hms.engine.settings import EngineSettings
from hms.errors.catalogue import BackupRefused, MessageFormatError, StoreCorrupt
from hms.history.backups.backup_manifest import (
    FILES,
    MANIFEST,
    Manifest,
    digest_of,
    read_manifest,
)
from hms.history.events import EventDecoder
from hms.store.interface import StoredRecord
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.recovery import Recovery, all_records
from hms.store.journal.segment_walk import (
    LOG_SUFFIX,
    PINNED_SUFFIX,
    Walk,
    opened,
    read_info,
    segment_file,
)
from hms.wire.packed_messages import decode_head

__all__ = [
    "backups_in",
    "chain_of",
    "check_files",
    "count_places",
    "earliest",
    "files_named",
    "holding",
    "linked",
    "records_of",
    "recovered",
    "verify",
]


class Moment(NamedTuple):
    """A sequence number with its time; 0 where nothing has a time yet."""

    lsn: int
    at_ms: int


def backups_in(folder: Path) -> list[Path]:
    """The backups in a folder, oldest first; without those that are being made."""
    found = [path.parent for path in folder.glob(f"[!.]*/{MANIFEST}")]
    return sorted(found, key=lambda path: path.name)


def chain_of(backup: Path) -> list[tuple[Path, Manifest]]:
    """A backup with those that it follows, the full one first. BackupRefused."""
    chain = [(backup, read_manifest(backup))]
    while base := chain[0][1].base:
        path = backup.parent / base
        if any(path == known for known, _ in chain):
            raise BackupRefused(what=str(path), detail="it follows itself")
        before = read_manifest(path)
        after = chain[0][1]
        if before.last_segment + 1 != after.first_segment or before.store != after.store:
            raise BackupRefused(what=str(path), detail=f"{chain[0][0].name} does not follow it")
        chain.insert(0, (path, before))
    return chain


def holding(like: Path, *, lsn: int = 0, at_ms: int = 0) -> Path | None:
    """The newest backup beside one, of its node, out of which a moment can be restored: a sequence
    number, or a time. None when there is none."""
    wanted = read_manifest(like)
    for path in reversed(backups_in(like.parent)):
        try:
            chain = chain_of(path)
        except BackupRefused:
            continue  # what is damaged helps nobody
        full, last = chain[0][1], chain[-1][1]
        if last.node != wanted.node:
            continue
        if lsn and full.store == wanted.store and full.until_lsn - 1 <= lsn < last.until_lsn:
            return path
        if at_ms and _ended_ms(chain[0][0], full) <= at_ms:
            return path
    return None


def earliest(like: Path) -> Moment:
    """The first moment out of the backups beside one, of its node: the end of a full backup."""
    node = read_manifest(like).node
    for path in backups_in(like.parent):
        try:
            manifest = read_manifest(path)
        except BackupRefused:
            continue
        if manifest.node == node and not manifest.base:
            return Moment(manifest.until_lsn - 1, _ended_ms(path, manifest))
    full_path, full = chain_of(like)[0]
    return Moment(full.until_lsn - 1, _ended_ms(full_path, full))


def _ended_ms(path: Path, full: Manifest) -> int:
    """The time of the last record of a full backup, which took its copy longer to be made; 0 when
    nothing has a time in it."""
    decoder = EventDecoder(columns=("time",))
    try:
        for number in range(full.last_segment, full.first_segment - 1, -1):
            one = [(path, replace(full, first_segment=number, last_segment=number))]
            found = [
                event.time
                for lsn, kind, _, payload, _ in records_of(path, one)
                for event in decoder.decode(lsn, kind, payload)
            ]
            if found:
                return max(found)
    except (OSError, StoreCorrupt):
        return full.created_ms  # who restores it is told what is wrong
    return 0


def check_files(folder: Path, manifest: Manifest) -> None:
    """Every file is there as it was written; BackupRefused names one that is not."""
    known = {one.name for one in manifest.files} | {MANIFEST}
    for path in sorted(folder.rglob("*")):
        if not (path.is_dir() or path.is_file()) or path.is_symlink():
            raise BackupRefused(what=str(path), detail="it is a link or a device, and no file")
        if path.is_file() and str(path.relative_to(folder)) not in known:
            raise BackupRefused(what=str(path), detail="the manifest does not know this file")
    for one in manifest.files:
        path = folder / one.name
        if not path.is_file():
            raise BackupRefused(what=str(path), detail="the file is missing")
        found = digest_of(path)
        if (found.bytes, found.sha256) != (one.bytes, one.sha256):
            raise BackupRefused(what=str(path), detail="it was altered: its digest does not fit")


@contextmanager
def linked(chain: list[tuple[Path, Manifest]]) -> Iterator[Path]:
    """The segments of a chain as the log of one store, for reading alone."""
    with tempfile.TemporaryDirectory(prefix="hms-backup-") as folder:
        for path, manifest in chain:
            for number in range(manifest.first_segment, manifest.last_segment + 1):
                file = segment_file(Path(folder), number)
                file.symlink_to((path / file.name).absolute())
        for path, _ in chain:
            for pinned in path.glob(f"*{PINNED_SUFFIX}"):
                file = Path(folder) / pinned.name
                if not file.exists() and not file.with_suffix(LOG_SUFFIX).exists():
                    file.symlink_to(pinned.absolute())
        yield Path(folder)


def records_of(log: Path, chain: list[tuple[Path, Manifest]]) -> Iterator[StoredRecord]:
    """Every record of a chain, also those that its end does not need any more. StoreCorrupt."""
    numbers = range(chain[0][1].first_segment, chain[-1][1].last_segment + 1)
    infos = [read_info(REAL_DISK, segment_file(log, n), n, is_last=False) for n in numbers]
    for info, following in zip(infos, [*infos[1:], None], strict=True):
        with opened(REAL_DISK, info.file) as fd:
            yield from all_records(Walk(REAL_DISK, fd, info), info, following)


def recovered(
    folder: Path,
    node_uid: int,
    calendar: Calendar,
    fetch: Callable[[int], object] = lambda _: None,
) -> Engine:
    """The engine as after a boot with that log, before it begins to work. fetch: is called with the
    number of each pinned segment before it is read."""
    engine = Engine(EngineSettings(node_index=node_uid & 0xFF, calendar=calendar))
    log = Recovery(REAL_DISK, folder, node_uid)

    def pinned(number: int) -> Iterator[StoredRecord]:
        fetch(number)
        try:
            yield from log.pinned_records(number)
        except FileNotFoundError as fault:
            file = segment_file(folder, number, PINNED_SUFFIX)
            detail = "the segment is missing"
            raise StoreCorrupt(file=str(file), offset=0, lsn=0, detail=detail) from fault

    recovery = engine.recovery(pinned)
    for _, kind, _, payload, position in log.records():
        recovery.apply(kind, payload, position)
    recovery.finish()
    return engine


def count_places(engine: Engine) -> dict[str, int]:
    """How many messages each place has, with those that are delayed, and those of prepared
    transactions."""
    counts = {}
    for place in engine.state.places.values():
        name, line = f"{place.definition.kind}:{place.name}", place.line
        name += f"@{place.said_topic}" if isinstance(place, Subscription) else ""
        counts[name] = line.waiting_count + line.delayed_count + line.out_count
    return counts


def _counts_before(engine: Engine) -> dict[str, int]:
    """As manifests of the release before have them: without what is delayed, and a subscription
    with the number of its topic."""
    return {
        f"{(one := place.definition).kind}:{place.name}"
        + (f"@{one.topic}" if one.kind == "subscription" else ""): place.line.waiting_count
        + place.line.out_count
        for place in engine.state.places.values()
    }


def verify(
    backup: Path, calendar: Calendar, *, is_deep: bool = False
) -> tuple[Manifest, dict[str, int]]:
    """Check a backup and all that it follows; is_deep: with the body of each message that is in it.
    What waits at each place. BackupRefused, StoreCorrupt."""
    chain = chain_of(backup)
    for path, manifest in chain:
        check_files(path, manifest)
    manifest = chain[-1][1]
    with linked(chain) as folder:
        engine = recovered(folder, manifest.node_uid, calendar)
        if is_deep:
            _read_bodies(folder, chain)
    counts = count_places(engine)
    is_known = manifest.counts in (counts, _counts_before(engine))
    if not (is_known or manifest.is_shipped):
        differing = sorted(set(counts.items()) ^ set(manifest.counts.items()))
        detail = f"its log has other messages than its manifest says, at {differing[0][0]}"
        raise BackupRefused(what=str(backup), detail=detail)
    missing = files_named(engine) - _files_of(chain)
    if missing:
        raise BackupRefused(what=str(backup / FILES / min(missing)), detail="the file is missing")
    return manifest, counts


def _read_bodies(log: Path, chain: list[tuple[Path, Manifest]]) -> None:
    """Head and body of each message can be read by a client."""
    decoder = EventDecoder(columns=("head", "body"))
    for lsn, record_type, _, payload, _ in records_of(log, chain):
        for event in decoder.decode(lsn, record_type, payload):
            try:
                decode_head(event.head or b"")
                if event.body is not None and (event.kind or "").endswith("+compressed"):
                    inflated(event.body)
            except MessageFormatError as fault:
                detail = f"message {event.message_id} cannot be read: {fault}"
                raise BackupRefused(what=str(chain[-1][0]), detail=detail) from fault


def _files_of(chain: list[tuple[Path, Manifest]]) -> set[str]:
    names = (one.name for _, manifest in chain for one in manifest.files)
    return {name.removeprefix(f"{FILES}/") for name in names if name.startswith(f"{FILES}/")}


def files_named(engine: Engine) -> set[str]:
    """The files that messages name which wait."""
    places = engine.state.places.values()
    every = (message for place in places for message in place.line.everything())
    return {message.file for message in every if isinstance(message, FileMessage)}
