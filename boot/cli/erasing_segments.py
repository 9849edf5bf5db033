"""What hms erase does to the files of a running node: segments that hold what is to be erased leave
the log, and copies in which it is blank take their place."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hms.errors.catalogue import StoreCorrupt
from hms.history.erasing import AUDIT, Erasure
from hms.history.seals import seal
from hms.server.replicas.log_copy import aside_names
from hms.store.journal.audit_files import audit_files, audit_payloads, write_audit_file
from hms.store.journal.disk import REAL_DISK
from hms.store.journal.reader import read_segment
from hms.store.journal.segment_walk import (
    ERASED_SUFFIX,
    HISTORY_SUFFIX,
    LOG_SUFFIX,
    SegmentInfo,
    all_files,
    is_same_segment,
    read_info,
)

__all__ = ["Segments"]

WAIT_S = 30.0
PAUSE_S = 0.1
IDS_AT_ONCE = 900
"""16 digits each, and a blank."""


class Segments:
    """Those of a node that works. is_copy: the folder is that of a standby, whose segments are the
    same, and whose process opens none that has left the log."""

    def __init__(
        self, connection: Any, folder: Path, erasure: Erasure, *, is_copy: bool = False
    ) -> None:
        self._connection, self._folder, self._erasure = connection, folder, erasure
        self._is_copy = is_copy
        self._pause = threading.Event()

    def faults(self) -> list[str]:
        """Of segments behind which, where they are damaged, nobody looks."""
        told = []
        for info in self._all()[:-1]:
            try:
                deque(read_segment(info.file), maxlen=0)
            except StoreCorrupt as fault:
                told.append(f"segment {info.number}: {fault}")
            except FileNotFoundError:  # it was let go meanwhile
                continue
        return told + [
            f"{name}: records that nobody adopted, set aside; remove it when it is not needed"
            for name in aside_names(REAL_DISK, self._folder)
        ]

    def erase(self, *, is_dry: bool) -> tuple[int, int]:
        """How much was found, and how much of it is left: what still waits in a pinned segment, and
        what is in segments that cannot leave the log yet."""
        audit = self._audit(is_dry=is_dry)
        if is_dry:
            return _count(map(self._found, self._all())) + audit, 0
        began = seal(self._connection)
        self._wait(lambda: self._all()[-1].first_lsn >= began)  # a copy hears of it a little later
        *before, _ = self._all()  # the last one began behind what is to be erased
        found = {info.number: ids for info in before if (ids := self._found(info))}
        if found:
            self._have_leave(max(found) + 1)
        left = [self._overwrite(number, ids) for number, ids in found.items()]
        return _count(found.values()) + audit, _count(left)

    def _audit(self, *, is_dry: bool) -> int:
        """Of segments that are gone: how many records name what is to be erased. Nobody else writes
        to these files."""
        count = 0
        for file in audit_files(REAL_DISK, self._folder):
            kept = list(audit_payloads(REAL_DISK, file))
            blank = [self._erasure.blank_audit(payload) for payload in kept]
            found = len(blank) - blank.count(None)
            if found and not is_dry:
                now = [b or payload for b, payload in zip(blank, kept, strict=True)]
                write_audit_file(REAL_DISK, file, now)
                REAL_DISK.fsync_dir(self._folder)
            count += found
        return count

    def _all(self) -> list[SegmentInfo]:
        files = all_files(REAL_DISK, self._folder)
        return [self._info(number, files[number]) for number in sorted(files)]

    def _found(self, info: SegmentInfo) -> list[int]:
        """Also when it has got another name since it was listed; nothing when it is gone."""
        try:
            return self._erasure.found(info)
        except FileNotFoundError:
            file = all_files(REAL_DISK, self._folder).get(info.number)
            return [] if file is None else self._erasure.found(info._replace(file=file))

    def _info(self, number: int, file: Path) -> SegmentInfo:
        return read_info(REAL_DISK, file, number, is_last=False)

    def _have_leave(self, until: int) -> None:
        """Wait until the log begins there, as far as it comes to that."""
        if self._wait(lambda: self._ask(until=until)["first"] >= until):
            seal(self._connection)
            self._wait(lambda: not self._in_log(until))

    def _in_log(self, until: int) -> list[int]:
        files = all_files(REAL_DISK, self._folder)
        return [n for n, file in files.items() if n < until and file.suffix == LOG_SUFFIX]

    def _overwrite(self, number: int, ids: list[int]) -> list[int]:
        """Replace a segment; what is left of what was found in it."""
        file = all_files(REAL_DISK, self._folder).get(number)
        if file is None:  # the log had no more use for it, and there is no history
            return []
        if file.suffix == LOG_SUFFIX:
            return ids
        live: set[int] = set()
        wanted = [one for one in ids if one != AUDIT]
        for at in range(0, len(wanted), IDS_AT_ONCE):
            ids_text = " ".join(f"{id_:x}" for id_ in wanted[at : at + IDS_AT_ONCE])
            found = self._ask(segment=number, ids=ids_text)["live"]
            live.update(int(id_, 16) for id_ in found.split())
        self._erasure.blank(self._info(number, file), live)
        copy = file.with_suffix(ERASED_SUFFIX)
        if self._is_copy:
            self._put(number, copy)
        else:
            self._ask(segment=number, is_ready=True)
            self._wait(lambda: not copy.exists())
        file = all_files(REAL_DISK, self._folder).get(number)
        return [] if file is None else self._found(self._info(number, file))

    def _put(self, number: int, copy: Path) -> None:
        """In the place of a copy's segment; the standby may rename, or remove, that meanwhile."""
        file = all_files(REAL_DISK, self._folder).get(number)
        if file is None or not is_same_segment(REAL_DISK, file, copy):
            copy.unlink()
            return
        copy.rename(file)
        later = file.with_suffix(HISTORY_SUFFIX)
        if file != later and later.exists():
            file.rename(later)
        REAL_DISK.fsync_dir(self._folder)

    def _ask(self, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._connection.administer("log.erase", arguments)
        return answer

    def _wait(self, is_done: Callable[[], bool]) -> bool:
        until = time.monotonic() + WAIT_S
        while not is_done():
            if time.monotonic() >= until:
                return False
            self._pause.wait(PAUSE_S)
        return True


def _count(found: Iterable[list[int]]) -> int:
    """How many messages, each of which may lie in several places, and records of the audit."""
    every = [id_ for ids in found for id_ in ids]
    return len({*every} - {AUDIT}) + every.count(AUDIT)
