"""Shipping: a backup that is never older than so many seconds; and which backups may go.

Each round copies what the log has sealed since the last one, as a backup that follows it: a store
can be restored to any moment up to the last round. A round in which nothing was written copies
nothing, and leaves the log as it is. It is not recovered each time, which would take
as long as a boot: `hms backup verify` does that. A new full backup is made when the log has let go
of what would follow, and after so long, so that those before it may go.
"""

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from hms.errors.catalogue import BackupRefused
from hms.history.backups.backup_chain import backups_in, chain_of
from hms.history.backups.backup_creation import NothingNew, Subject, create, no_space
from hms.history.backups.backup_manifest import MANIFEST, Manifest, read_manifest, sync_folder
from hms.history.backups.shipped_mark import MARK, Mark, write_mark

__all__ = ["Shipped", "prunable", "remove", "ship"]

MILLI = 1000


class Shipped(NamedTuple):
    """One round. is_full: it follows no other; why: it had to be; is_new: False when nothing was
    written since the round before, whose backup this is."""

    backup: Path
    manifest: Manifest
    is_full: bool
    why: str = ""
    is_new: bool = True


def ship(
    subject: Subject,
    to: Path,
    *,
    full_every_s: float,
    bytes_a_second: int = 0,
    now_ms: Callable[[], int] = lambda: int(time.time() * MILLI),
) -> Shipped:
    """One round, and its mark. BackupRefused when not even a full backup could be made."""
    began_ms = now_ms()
    done = _round(subject, to, full_every_s, bytes_a_second, began_ms)
    last = done.manifest
    mark = Mark(node=last.node, backup=done.backup.name, lsn=last.until_lsn - 1, at_ms=began_ms)
    try:
        write_mark(to, mark)
    except OSError as fault:
        raise no_space(to / MARK, fault) from fault
    return done


def _round(
    subject: Subject, to: Path, full_every_s: float, bytes_a_second: int, now_ms: int
) -> Shipped:
    known = backups_in(to)
    why = "the first one"
    if known:
        try:
            base = chain_of(known[-1])[0][1]
            if now_ms - base.created_ms < full_every_s * MILLI:
                name = known[-1].name
                path, manifest = create(
                    subject, to, base=name, bytes_a_second=bytes_a_second, is_shipped=True
                )
                return Shipped(path, manifest, is_full=False)
            why = "it was time for one"
        except NothingNew:
            last = read_manifest(known[-1])
            return Shipped(known[-1], last, is_full=not last.base, is_new=False)
        except BackupRefused as fault:
            why = str(fault)
    path, manifest = create(subject, to, bytes_a_second=bytes_a_second)
    return Shipped(path, manifest, is_full=True, why=why)


def prunable(folder: Path, *, keep: int, before_ms: int = 0) -> list[list[Path]]:
    """Chains that are not among the last `keep`, of those the ones that ended before that time;
    each with the full backup first. BackupRefused for a manifest that cannot be read."""
    chains: list[list[Path]] = []
    for path in backups_in(folder):
        base = read_manifest(path).base
        if not base:
            chains.append([path])
            continue
        for chain in chains:
            if any(one.name == base for one in chain):
                chain.append(path)
    old = chains[:-keep]
    ended = [read_manifest(chain[-1]).created_ms for chain in old]
    both = zip(old, ended, strict=True)
    return [chain for chain, ended_ms in both if not before_ms or ended_ms < before_ms]


def remove(chains: Iterable[list[Path]]) -> int:
    """Remove them, those that follow before what they follow, so that none that is left needs one
    that is gone; how many bytes."""
    size = 0
    for chain in chains:
        for path in reversed(chain):
            size += sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
            (path / MANIFEST).unlink()  # from here on it is no backup
            sync_folder(path)
            shutil.rmtree(path)
    return size
