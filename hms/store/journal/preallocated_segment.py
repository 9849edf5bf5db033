"""Preallocated segment: the next segment's file, made to read as zeros beforehand, and the reserve
behind it.

A disk that is full thus shows when they are prepared, never at a commit, and what has to be written
nevertheless still has the rest of the present segment, the spare and the reserve (P10). Overwriting
such a file also syncs 0.05 ms faster than writing into space that was only allocated. But it writes
all twice, so where a segment is filled by few large writes, the next one is only allocated.
"""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hms.store.journal.disk import CREATE, Disk, write_all
from hms.store.journal.segment import SPARE_NAME
from hms.store.journal.space_reserve import Reserve

RETRY_AFTER_S: Final = 1.0
SYNC_EVERY_BYTES: Final = 8 * 1024 * 1024
RESERVE_MIN: Final = 2
"""So many files the reserve has at least: one for cleaning, and the last one for a boot."""
RESERVE_OVER: Final = 2
"""Files kept beyond those that are needed, so that a busy queue does not make and remove files."""
BULK_SYNC_BYTES: Final = 512 * 1024
BULK_SYNCS_MIN: Final = 16
_ZEROS: Final = bytes(1024 * 1024)
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT}
_PASSING: Final = _NO_SPACE | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Refusals that can pass; every other one means that the disk is broken."""


def bulk_syncs(segment_bytes: int) -> int:
    """A segment that took no more syncs than this was filled in bulk."""
    return max(segment_bytes // BULK_SYNC_BYTES, BULK_SYNCS_MIN)


class LimitReachedError(OSError):
    """One more file would be beyond the log's own limit."""


class NoFileError(OSError):
    """There is no prepared file, and no space to make one."""


class PreallocatedSegment:
    """At most one prepared file, and the reserve; one thread at a time prepares or takes them.

    refuses: why no further file may be made, although the disk may have space, or None. pays:
    whether cleaning would give back more than the files that it needs. is_known: whether a file was
    found to read as zeros just now.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        segment_bytes: int,
        refuses: Callable[[int], str | None] = lambda _files: None,
        pays: Callable[[], bool] = lambda: False,
        is_known: Callable[[Path], bool] = lambda _file: False,
    ) -> None:
        self._disk, self._directory, self._size = disk, directory, segment_bytes
        self._refuses, self._pays, self._is_known = refuses, pays, is_known
        self._path = directory / SPARE_NAME
        self._lock = threading.Lock()
        self._reserve = Reserve(disk, directory, segment_bytes)
        self._fd: int | None = None
        self._failed_at = float("-inf")
        self._is_closed = False
        self.wanted = RESERVE_MIN
        """So many files the reserve is to have."""
        self.refusal: str | None = None
        """Why the spare or the reserve is not as it is to be."""
        self.is_for_bulk = False
        """The file is only allocated, not written, before it is used."""
        self.is_out_of_space = False
        """The refusal is for want of space, of the disk or of the log's limit."""

    @property
    def is_ready(self) -> bool:
        """A file is prepared."""
        return self._fd is not None

    @property
    def is_whole(self) -> bool:
        """The spare is ready and the reserve has all it is to have."""
        return self._fd is not None and len(self._reserve.numbers) >= self.wanted

    @property
    def files(self) -> int:
        """How many files there are in all."""
        return self._reserve.count + self.is_ready

    @property
    def has_room_to_clean(self) -> bool:
        """What is moved out of one segment has room, and more than the last file is left behind."""
        return self.is_ready and self._reserve.count >= RESERVE_MIN

    @property
    def is_due(self) -> bool:
        """Preparing is worth a try: not under way, and not refused within the last second."""
        if self._lock.locked():
            return False
        if self.is_whole and self.refusal is None:
            return self._has_too_many
        return self.refusal is None or self._disk.monotonic() - self._failed_at >= RETRY_AFTER_S

    @property
    def _has_too_many(self) -> bool:
        return self._reserve.count > self.wanted + RESERVE_OVER

    def retry(self) -> None:
        """Something was freed: the next maintain() tries at once."""
        self._failed_at = float("-inf")

    def maintain(self) -> None:
        """Prepare what is due; a disk that is full is remembered, other faults raise."""
        while self.is_due and self._lock.acquire(blocking=False):
            try:
                if self._is_closed or not self._step():
                    return
            finally:
                self._lock.release()

    def prepare(self) -> None:
        """The file alone, and not the reserve. OSError."""
        with self._lock:
            if self._fd is None:
                self._prepare()

    @contextmanager
    def taken(self, *, may_be_last: bool = False) -> Iterator[int]:
        """The prepared file, made now when there is none; NoFileError when that needs space, and
        OSError. The last file of the reserve is for a boot, or for a segment that frees others.

        The block renames it. Until then nobody else prepares: who opened the name now would have
        the very file that is being begun, and would fill it with zeros.
        """
        with self._lock:
            if self._fd is None:
                self._reserve.look()
                self._prepare_now(0 if may_be_last else 1)
            fd, self._fd = self._fd, None
            assert fd is not None
            try:
                yield fd
            except BaseException:
                self._disk.close(fd)
                raise

    def offer(self, file: Path) -> bool:
        """Take over the file of a segment that nobody needs; False when there is no use for it.

        It reads as zeros, like any other, before it is used.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            is_wanted = self._fd is None or self._reserve.count < self.wanted
            if not is_wanted or self._disk.size_and_age(file)[0] != self._size:
                return False
            if self._fd is None:
                self._disk.rename(file, self._path)
            else:
                self._reserve.keep(file)
            return True
        finally:
            self._lock.release()

    def lend(self) -> bool:
        """Give the space of a file of the reserve back to the disk, for the little that has to be
        written before a segment goes; False when it has space, or no file can be spared."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._reserve.look()
            can_spare = self.is_out_of_space and self._reserve.count > 0 and self.files > 1
            if can_spare:
                self._reserve.drop()
            return can_spare
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the file and leave it for the next boot; nothing is prepared from here on."""
        with self._lock:
            self._is_closed = True
            if self._fd is not None:
                self._disk.close(self._fd)
                self._fd = None

    def _step(self) -> bool:
        """One file more or less; whether there may be more to do."""
        try:
            self._reserve.look()
            if self._fd is None:
                self._prepare(is_limited=True)
            elif self._reserve.count < self.wanted:
                self._check_limit()
                self._reserve.add()
            elif self._has_too_many:
                self._reserve.drop()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            self._refused(error)
            return False
        if self.is_whole:
            self._be_whole()
        return not self.is_whole or self._has_too_many

    def _be_whole(self) -> None:
        """Nothing is refused any more, unless the files that are there are beyond the limit."""
        reason = self._refuses(self.files - 1)
        if reason is None:
            self.refusal, self.is_out_of_space = None, False
        elif self.refusal is not None:
            self._note(LimitReachedError(errno.ENOSPC, reason))

    def _note(self, error: OSError) -> None:
        self._failed_at = self._disk.monotonic()
        self.is_out_of_space = error.errno in _NO_SPACE
        self.refusal = error.strerror or str(error)
        if self.is_out_of_space and not isinstance(error, LimitReachedError):
            self.refusal += f" for a file of the log, which takes {self._size} bytes"

    def _refused(self, error: OSError) -> None:
        self._note(error)
        if self._fd is None and self.is_out_of_space and self._reserve.count > 1:
            self._prepare_from_reserve()  # so that no commit has to
        elif isinstance(error, LimitReachedError):
            self._make_room_to_clean()

    def _make_room_to_clean(self) -> None:
        """Beyond the limit, for a while: boots may have taken the files that cleaning needs, and a
        log that is not cleaned for want of them would stay full for ever."""
        try:
            while not self.has_room_to_clean and self._pays():
                if self._fd is None:
                    self._prepare()
                else:
                    self._reserve.add()
        except OSError as error:
            if error.errno not in _PASSING:
                raise

    def _check_limit(self) -> None:
        reason = self._refuses(self.files)
        if reason is not None:
            raise LimitReachedError(errno.ENOSPC, reason)

    def _prepare_now(self, left: int) -> None:
        try:
            self._prepare_somehow(left)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            raise NoFileError(error.errno, error.strerror, error.filename) from error

    def _prepare_somehow(self, left: int) -> None:
        """From new space; from the reserve, but for so many files; at last beyond the limit."""
        try:
            self._prepare(is_limited=True)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            self._note(error)
            if self._reserve.count > left:
                self._reserve.give(self._path)
            elif not isinstance(error, LimitReachedError):
                raise
            self._prepare()

    def _prepare_from_reserve(self) -> None:
        try:
            self._reserve.give(self._path)
            self._prepare()
        except OSError as error:
            if error.errno not in _PASSING:
                raise

    def _prepare(self, *, is_limited: bool = False) -> None:
        fd = self._disk.open(self._path, CREATE)
        try:
            found_bytes = self._disk.size(fd)
            is_new = found_bytes < self._size
            if is_new:
                if is_limited:
                    self._check_limit()
                self._disk.allocate(fd, self._size)
            if is_new or not (self._is_known(self._path) or self._is_prepared(fd)):
                # It may have been a segment: after a crash no zeros may stand under its old name.
                self._disk.fsync_dir(self._directory)
                self._clear(fd, found_bytes)
            self._disk.fdatasync(fd)
        except OSError:
            # The next try gets a new file: a failed write or sync is not repeated (P7).
            self._disk.close(fd)
            self._disk.unlink(self._path)
            raise
        self._fd = fd

    def _is_prepared(self, fd: int) -> bool:
        """The last boot left a whole file of zeros."""
        if self._disk.size(fd) != self._size:
            return False
        for at in range(0, self._size, len(_ZEROS)):
            data = self._disk.pread(fd, len(_ZEROS), at)
            if data != _ZEROS[: len(data)]:
                return False
        return True

    def _clear(self, fd: int, found_bytes: int) -> None:
        """Make it read as zeros. Space that is scarce is not given back, lest another take it."""
        is_scarce = self.is_out_of_space or self._reserve.count < self.wanted
        if not self.is_for_bulk or is_scarce:
            self._fill(fd)
        elif found_bytes:
            self._disk.ftruncate(fd, 0)
            self._disk.allocate(fd, self._size)
            self._disk.fsync(fd)

    def _fill(self, fd: int) -> None:
        """Write the zeros; synced in between, so that a commit next to it is not held up long."""
        self._disk.ftruncate(fd, min(self._disk.size(fd), self._size))
        at = unsynced = 0
        while at < self._size:
            chunk = memoryview(_ZEROS)[: self._size - at]
            at = write_all(self._disk, fd, [chunk], at)
            unsynced += len(chunk)
            if unsynced >= SYNC_EVERY_BYTES:
                self._disk.fdatasync(fd)
                unsynced = 0
