"""Making a backup of a node that works.

The node seals its log: all before that place is the backup. What is copied is checked, record by
record: a segment that the node removed, or used again, meanwhile is noticed, and the backup begins
anew with another seal. Files of messages are taken before the seal and after it.
"""

import errno
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from hms.engine.schedule.schedule_plans import Calendar
from hms.errors.catalogue import BackupRefused, StoreCorrupt
from hms.history.backups.backup_chain import (
    chain_of,
    count_places,
    files_named,
    linked,
    recovered,
)
from hms.history.backups.backup_manifest import (
    FILES,
    Manifest,
    StoredFile,
    digest_of,
    read_manifest,
    sync_folder,
    write_manifest,
)
from hms.store.journal.audit_files import audit_files, audit_of_segment, write_audit_file
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.format import RECORD_HEADER_BYTES
from hms.store.journal.format import VERSION as STORE_VERSION
from hms.store.journal.recovery import all_records
from hms.store.journal.segment_trim import sealed_end
from hms.store.journal.segment_walk import (
    AUDIT_SUFFIX,
    LOG_SUFFIX,
    PINNED_SUFFIX,
    SUFFIXES,
    SegmentInfo,
    Walk,
    all_files,
    opened,
    read_info,
    segment_file,
    survey_all,
)

__all__ = ["NothingNew", "Subject", "create", "no_space", "remove_left"]

ATTEMPTS = 5
SEALED_WITHIN_S = 30.0
COPY_BYTES = 1 << 20
_PART, _LOCK = ".part-", ".lock"
SPARE_BYTES = 4 << 20
"""So much more than its files a backup wants free."""


class Subject(NamedTuple):
    """What is backed up. seal: has the node seal its log, and tells the first offset behind it; for
    a backup that follows a shipped one, its offset when nothing was written since."""

    store: Path
    node: str
    seal: Callable[[Manifest | None], int]
    calendar: Calendar
    hms_version: str = ""
    extras: Mapping[str, Path] = MappingProxyType({})
    """Further files, such as hms.conf, by their names in the backup."""
    domain: str = ""


def _tell_nobody(_done: int, _total: int) -> None:
    """Nobody waits to see how far it is."""


class NothingNew(Exception):  # noqa: N818 - it is no error: there is nothing to ship
    """The node has written nothing since the backup that this one would follow."""


class _Moved(Exception):  # noqa: N818 - it is no error: the backup begins anew
    """The node let go of a segment while it was copied."""


def create(
    subject: Subject,
    to: Path,
    *,
    base: str = "",
    bytes_a_second: int = 0,
    is_shipped: bool = False,
    tell: Callable[[int, int], None] = _tell_nobody,
) -> tuple[Path, Manifest]:
    """A new backup in the folder `to`; base: the one that it follows; is_shipped: it is not
    recovered, which takes as long as a boot; tell: how many bytes of the log are copied, and of how
    many. NothingNew, where is_shipped; BackupRefused; and nothing is left behind."""
    before = chain_of(to / base) if base else []
    has = frozenset(one.name for _, manifest in before for one in manifest.files)
    taking = _Taking(subject, to, base, has, _Pace(bytes_a_second), is_shipped, tell)
    with _cleaned_up(to) as part:
        for _ in range(ATTEMPTS):
            with suppress(_Moved):
                manifest = _attempt(taking, part)
                break
            shutil.rmtree(part)
        else:
            detail = f"the node let go of segments while they were copied, {ATTEMPTS} times"
            raise BackupRefused(what=str(to), detail=f"{detail}; keep a history, or copy faster")
        write_manifest(part, manifest)
        path = to / manifest.name
        part.rename(path)
        sync_folder(to)
    return path, manifest


@contextmanager
def _cleaned_up(to: Path) -> Iterator[Path]:
    """A folder beside, for what is not whole yet; it does not outlive the block. What a killed
    process has left there goes, too: nobody holds its lock any more."""
    part = to / f"{_PART}{os.getpid()}-{token_hex(4)}"
    lock = part.with_name(f"{part.name}{_LOCK}")
    try:
        to.mkdir(parents=True, exist_ok=True)
        for left in to.glob(f"{_PART}*{_LOCK}"):
            _remove_left(left)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield part
    except OSError as fault:
        raise no_space(to, fault) from fault
    finally:
        shutil.rmtree(part, ignore_errors=True)
        lock.unlink(missing_ok=True)


def remove_left(to: Path, pid: int) -> None:
    """What a process that was killed has left in the folder of backups."""
    for left in to.glob(f"{_PART}{pid}-*{_LOCK}"):
        _remove_left(left)


def _remove_left(lock: Path) -> None:
    """The folder of a backup that was never finished, unless it is being made."""
    with suppress(OSError), lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock.with_name(lock.name.removesuffix(_LOCK)), ignore_errors=True)
        lock.unlink(missing_ok=True)


def no_space(where: Path, fault: OSError) -> BackupRefused:
    """What the system said, in our words; nothing is left behind."""
    full = fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    detail = "the disk is full; nothing was left behind" if full else str(fault.strerror or fault)
    name = f" ({fault.filename})" if fault.filename and not full else ""
    return BackupRefused(what=str(where), detail=f"{detail}{name}")


class _Pace:
    """Waits so long that not more bytes a second are copied."""

    def __init__(self, bytes_a_second: int) -> None:
        self._rate, self._began_s, self._done = bytes_a_second, time.monotonic(), 0

    def copied(self, size: int) -> None:
        """That number of further ones."""
        self._done += size
        if self._rate:
            ahead_s = self._done / self._rate - (time.monotonic() - self._began_s)
            if ahead_s > 0:
                time.sleep(ahead_s)


class _Taking(NamedTuple):
    """What is being made. has: files that it needs not copy, as those that it follows have them."""

    subject: Subject
    to: Path
    base: str
    has: frozenset[str]
    pace: _Pace
    is_shipped: bool
    tell: Callable[[int, int], None]


def _attempt(taking: _Taking, part: Path) -> Manifest:
    subject, to, base, pace = taking.subject, taking.to, taking.base, taking.pace
    part.mkdir(mode=0o700)
    _take_files(taking, part)
    before = read_manifest(to / base) if base else None
    until_lsn = subject.seal(before if taking.is_shipped else None)
    if before is not None and until_lsn == before.until_lsn:
        raise NothingNew
    last, segment_bytes = _sealed_before(subject.store, until_lsn)
    first = last.oldest if before is None else before.last_segment + 1
    infos = _segments(subject.store, first, last.number, base)
    _check_space(subject, to, infos)
    done, total = 0, sum(info.size for info in infos)
    for info, following in zip(infos, [*infos[1:], None], strict=True):
        taking.tell(done, total)
        next_lsn = until_lsn if following is None else following.first_lsn
        _take_segment(info, part, next_lsn, pace, is_last=following is None)
        done += info.size
    taking.tell(done, total)
    _take_files(taking, part)
    if not base:
        _take_audit(subject.store, part, first)
    for name, extra in subject.extras.items():
        shutil.copy2(extra, part / name)
        (part / name).chmod(0o600)
    created_ms = int(time.time() * 1000)
    moment = datetime.fromtimestamp(created_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S%f")[:-3]
    manifest = Manifest(
        f"{moment}-{until_lsn}",
        subject.node,
        last.node_uid,
        "",
        until_lsn,
        first,
        last.number,
        last.oldest,
        segment_bytes,
        0,
        created_ms,
        base,
        {},
        [],
        subject.hms_version,
        STORE_VERSION,
        taking.is_shipped,
        subject.domain,
    )
    if before is not None and taking.is_shipped:
        known = {"store": before.store, "next_id": before.next_id}
        return _with_files(part, manifest, **known)
    return _counted(subject, to, part, manifest)


def _counted(subject: Subject, to: Path, part: Path, manifest: Manifest) -> Manifest:
    """With what its log says, after a recovery of it, and the digests of its files."""
    before = chain_of(to / manifest.base) if manifest.base else []
    try:
        with linked([*before, (part, manifest)]) as folder:
            fetch = partial(_fetch_pinned, subject.store, part, folder)
            engine = recovered(folder, manifest.node_uid, subject.calendar, fetch)
    except StoreCorrupt as fault:
        raise BackupRefused(what=str(part), detail=str(fault)) from fault
    state = engine.state
    known = {str(path.relative_to(part)) for path in part.rglob("*")}
    known |= {f.name for _, m in before for f in m.files}
    if any(f"{FILES}/{name}" not in known for name in files_named(engine)):
        raise _Moved  # one came, and was done with, between the two looks
    said = {"store": state.identity.store.hex(), "next_id": state.ids.reserved_below}
    counts = {"counts": count_places(engine), "is_shipped": False}
    return _with_files(part, manifest, **said, **counts)


def _with_files(part: Path, manifest: Manifest, **known: Any) -> Manifest:
    """With the digests of its files, which are synced."""
    paths = [path for path in sorted(part.rglob("*")) if path.is_file()]
    files = [_digest(part, path) for path in paths]
    for path in part.rglob("*"):
        _sync(path)
    return replace(manifest, **known, files=files)


def _digest(part: Path, path: Path) -> StoredFile:
    found = digest_of(path)
    return StoredFile(str(path.relative_to(part)), found.bytes, found.sha256)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# the log


def _sealed_before(store: Path, until_lsn: int) -> tuple[SegmentInfo, int]:
    """The segment that ends at the seal, and the size of the next one, for which it waits: of that
    alone it is known that it was not trimmed."""
    deadline_s = time.monotonic() + SEALED_WITHIN_S
    while time.monotonic() < deadline_s:
        infos = survey_all(REAL_DISK, store)
        for info, following in pairwise(infos):
            if following.first_lsn == until_lsn:
                return info, following.size
        time.sleep(0.01)
    detail = f"no segment of it begins with {until_lsn}: is it the store of this node?"
    raise BackupRefused(what=str(store), detail=detail)


def _segments(store: Path, first: int, last: int, base: str) -> list[SegmentInfo]:
    found = {info.number: info for info in survey_all(REAL_DISK, store)}
    wanted = range(first, last + 1)
    missing = [number for number in wanted if number not in found]
    if missing and base:
        detail = f"segment {missing[0]}, which follows {base}, is not in the log any more"
        raise BackupRefused(what=str(store), detail=f"{detail}; make a full backup")
    if missing:
        raise _Moved
    return [found[number] for number in wanted]


def _check_space(subject: Subject, to: Path, infos: list[SegmentInfo]) -> None:
    wanted = sum(info.size for info in infos) + SPARE_BYTES
    folder = subject.store / FILES
    audit = subject.store.glob(f"*{AUDIT_SUFFIX}")
    wanted += sum(p.stat().st_size for p in (*folder.glob("*"), *audit) if p.exists())
    free = shutil.disk_usage(to).free
    if free < wanted:
        detail = f"it takes {wanted} bytes, and {free} are free; nothing was left behind"
        raise BackupRefused(what=str(to), detail=detail)


def _take_segment(
    info: SegmentInfo, part: Path, next_lsn: int, pace: _Pace, *, is_last: bool
) -> None:
    """Copy a segment, and check that it is that one, whole, up to the next."""
    target = segment_file(part, info.number, LOG_SUFFIX)
    try:
        _copy_segment(info, target, pace)
        copied = read_info(REAL_DISK, target, info.number, is_last=False)
        following = copied._replace(first_lsn=next_lsn)
        with opened(REAL_DISK, target) as fd:
            walk = Walk(REAL_DISK, fd, copied)
            for _ in all_records(walk, copied, following):
                pass
        end = walk.at + RECORD_HEADER_BYTES
        if is_last:  # without its seal, which says that another segment follows
            os.truncate(target, walk.at)
        if is_last or end < target.stat().st_size:  # without the space behind it
            os.truncate(target, end)
    except (FileNotFoundError, StoreCorrupt) as fault:
        raise _Moved from fault
    if copied.first_lsn != info.first_lsn:
        raise _Moved


def _copy_segment(info: SegmentInfo, target: Path, pace: _Pace) -> None:
    """Under the name that it has by now: where a history is kept, it has another one as soon as the
    log needs it no more."""
    for suffix in SUFFIXES:
        file = segment_file(info.file.parent, info.number, suffix)
        with suppress(FileNotFoundError):
            _copy(file, target, pace, _end_of(file))
            return
    raise _Moved


def _end_of(file: Path) -> int:
    """Where a sealed segment ends: zeros behind it are not copied."""
    with opened(REAL_DISK, file) as fd:
        return sealed_end(REAL_DISK, fd)


def _take_audit(store: Path, part: Path, first: int) -> None:
    """The audit of what lies before the first segment: files of segments that are gone, and the
    records of those that the history or a message that waits still keeps."""
    try:
        for number, file in all_files(REAL_DISK, store).items():
            found = audit_of_segment(REAL_DISK, file) if number < first else []
            if found:
                write_audit_file(REAL_DISK, segment_file(part, number, AUDIT_SUFFIX), found)
        for file in audit_files(REAL_DISK, store):
            target = part / file.name
            if int(file.stem) < first and not target.exists():
                _copy(file, target, _Pace(0))
                shutil.copystat(file, target)  # audit_keep_s goes by its age
    except (FileNotFoundError, StoreCorrupt) as fault:
        raise _Moved from fault


def _fetch_pinned(store: Path, part: Path, log: Path, number: int) -> None:
    """Copy a segment behind the log in which messages lie that wait; into the log that is read
    too."""
    seen = [segment_file(log, number, suffix) for suffix in (LOG_SUFFIX, PINNED_SUFFIX)]
    if any(file.exists() for file in seen):
        return
    source = all_files(REAL_DISK, store).get(number)
    target = segment_file(part, number, PINNED_SUFFIX)
    try:
        if source is None:
            raise _Moved
        _copy(source, target, _Pace(0))
        read_info(REAL_DISK, target, number, is_last=False)
    except (FileNotFoundError, StoreCorrupt) as fault:
        raise _Moved from fault
    segment_file(log, number).symlink_to(target.absolute())  # where it is looked for at last


def _copy(source: Path, target: Path, pace: _Pace, end: int = sys.maxsize) -> None:
    """Up to that offset."""
    with source.open("rb") as reading, target.open("wb") as writing:
        while data := reading.read(min(COPY_BYTES, end - reading.tell())):
            writing.write(data)
            pace.copied(len(data))
    target.chmod(0o600)


# files of messages


def _take_files(taking: _Taking, part: Path) -> None:
    """Those that are there in full; they never change, so a link will do where there can be one."""
    folder, has, pace = part / FILES, taking.has, taking.pace
    for path in sorted((taking.subject.store / FILES).glob("*")):
        is_known = f"{FILES}/{path.name}" in has or (folder / path.name).exists()
        if path.suffix == ".part" or is_known:
            continue
        folder.mkdir(exist_ok=True)
        try:
            os.link(path, folder / path.name)
        except FileNotFoundError:
            continue
        except OSError:
            with suppress(FileNotFoundError):
                _copy(path, folder / path.name, pace)
