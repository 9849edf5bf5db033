"""The files of a node's log that is rotated: NODE1.log, and NODE1.log-20260501T081502Z-000017.gz.

Each step is one rename or one unlink, so a process that is killed at any of them leaves every line
in one file, or in two of which one is known to be a copy: mend() puts that right. The numbers go up
by one, so that the order does not depend on the clock. What logrotate moves has other names, and
is left to it.
"""

import contextlib
import fcntl
import glob
import os
import re
import signal
import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hms.client.core.log_output import LOG_FLAGS, LOG_MODE

__all__ = ["Rotated", "RotatedFiles", "number_of"]

CHUNK_BYTES = 1 << 18
LEVEL = 6
IDLE_SHARE = 4
"""So many times as long as a chunk took, the thread rests: a fifth of a processor."""
_GZIP = 16 + zlib.MAX_WBITS
_NUMBERED = re.compile(r"-\d{8}T\d{6}Z-(?P<number>\d{6,})(?P<gz>\.gz)?")
_NUMBER_AT_END = re.compile(_NUMBERED.pattern + r"\Z")


class Rotated(NamedTuple):
    """A file of the past."""

    number: int
    path: Path
    is_compressed: bool


def number_of(path: Path) -> int | None:
    """Of a file that a node rotated; None of any other."""
    match = _NUMBER_AT_END.search(path.name)
    return int(match["number"]) if match else None


class RotatedFiles:
    """file: the log, in a folder that only its user writes; keep: so many of the past at most.

    One thread begins files, another one compresses. OSError leaves the log as it was.
    """

    def __init__(self, file: Path, keep: int, clock: Callable[[], float] = time.time) -> None:
        self._file, self._keep, self._clock = file, keep, clock
        self._new = file.with_name(f".{file.name}.new")
        self._half = file.with_name(f".{file.name}.gz.half")

    def past(self) -> list[Rotated]:
        """Oldest first."""
        found, begin = [], len(self._file.name)
        for path in self._file.parent.glob(f"{glob.escape(self._file.name)}-*"):
            match = _NUMBERED.fullmatch(path.name, begin)
            if match is not None:
                found.append(Rotated(int(match["number"]), path, match["gz"] is not None))
        return sorted(found)

    def begin_next(self) -> int:
        """Give the log its name of the past and begin a new one; its descriptor."""
        past = self.past()
        number = past[-1].number + 1 if past else 1
        at = datetime.fromtimestamp(self._clock(), UTC)
        old = self._file.with_name(f"{self._file.name}-{at:%Y%m%dT%H%M%SZ}-{number:06}")
        fd = os.open(self._new, LOG_FLAGS | os.O_TRUNC, LOG_MODE)
        try:
            self._file.rename(old)
            try:
                self._new.rename(self._file)
            except OSError:
                old.rename(self._file)
                raise
        except OSError:
            os.close(fd)
            raise
        return fd

    def mend(self) -> None:
        """Remove what a process left that was killed: a file that was never the log, half a
        compressed one, and what was compressed already."""
        for path in (self._new, self._half):
            path.unlink(missing_ok=True)
        compressed = {one.path.name for one in self.past() if one.is_compressed}
        for one in self.past():
            if f"{one.path.name}.gz" in compressed:
                one.path.unlink(missing_ok=True)

    def prune(self) -> None:
        """The oldest ones that are too many go."""
        numbers = sorted({one.number for one in self.past()})
        gone = set(numbers[: max(0, len(numbers) - self._keep)])
        for one in self.past():
            if one.number in gone:
                one.path.unlink(missing_ok=True)

    def compress(self, pause: Callable[[float], object] = time.sleep) -> bool:
        """Compress what is not yet; whether nothing is left that another process still writes."""
        is_done = True
        for one in self.past():
            if not one.is_compressed:
                with contextlib.suppress(FileNotFoundError), one.path.open("rb") as lines:
                    if _is_alone(lines):
                        self._compress(one.path, lines, pause)
                    else:
                        is_done = False
        return is_done

    def _compress(self, path: Path, lines: BinaryIO, pause: Callable[[float], object]) -> None:
        about = os.fstat(lines.fileno())
        fd = os.open(self._half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(fd, "wb", buffering=0) as half:
                _squeeze(lines, half, pause)
                os.fchmod(half.fileno(), about.st_mode & 0o777)
                os.utime(half.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))
                os.fsync(half.fileno())  # else a machine that stops could have neither of the two
            self._half.rename(path.with_name(f"{path.name}.gz"))
        except BaseException:
            self._half.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
        path.unlink(missing_ok=True)


def _squeeze(lines: BinaryIO, half: BinaryIO, pause: Callable[[float], object]) -> None:
    squeezing = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
    while chunk := lines.read(CHUNK_BYTES):
        began_s = time.thread_time()
        _put(half, squeezing.compress(chunk))
        pause(IDLE_SHARE * (time.thread_time() - began_s))
    _put(half, squeezing.flush())


def _put(half: BinaryIO, data: bytes) -> None:
    while data:
        data = data[half.write(data) :]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _is_alone(lines: BinaryIO) -> bool:
    """Whether nobody else has the file open; a server that was just told to go on in the new one
    may still. The system knows: it gives a lease for writing to nobody else but the last one.
    Where it knows none, as on some file systems, the file stays as it is."""
    fd = lines.fileno()
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGWINCH)  # who opens it just now ends no process
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True
