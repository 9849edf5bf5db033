"""The files of file messages: in a folder beside the log, in full or still coming (F-F6).

    NAME.part         a file that is still coming; NAME says who sends it
    NAME-SHA256       one that is there in full, synced, and is what its sender has sent

A file is synced and has its final name before anybody is told so. What a crash has left of one that
was coming is read again, and its sender goes on behind it; only the digest at the end proves it.
"""

import contextlib
import errno
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from field_buffer.catalogue import (
    FileDamaged,
    FileGap,
    FileUnknown,
    InvalidArgument,
    SpoolFailed,
    SpoolFull,
)

PART = ".part"
READ_BYTES = 1 << 20
_PART_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")
_FULL_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{64}")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Part:
    """A file that is coming; one thread at a time."""

    def __init__(self, name: str, path: Path, size_bytes: int) -> None:
        self.name, self.path = name, path
        self.size_bytes = size_bytes
        self.written_bytes = 0
        self._digest = hashlib.sha256()
        self._fd = -1

    def open(self) -> None:
        """Open it, and read what is there of it already."""
        with _told(self.path, "open"):
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            at = 0
            while data := os.pread(self._fd, READ_BYTES, at):
                self._digest.update(data)
                at += len(data)
        self.written_bytes = at
        if at > self.size_bytes:  # not what is announced now
            self._begin_anew()

    def write(self, offset: int, data: bytes) -> None:
        """The next bytes; those that are here already are left out. FileGap, SpoolFull."""
        end = offset + len(data)
        if offset > self.written_bytes or end > self.size_bytes:
            raise FileGap(file=self.name, offset=offset, wanted=self.written_bytes)
        new = memoryview(data)[self.written_bytes - offset :]
        with _told(self.path, "write"):
            at = self.written_bytes
            while at < end:
                at += os.pwrite(self._fd, new[at - self.written_bytes :], at)
        if end > self.written_bytes:
            self._digest.update(new)
            self.written_bytes = end

    def finish(self, sha256: str) -> str:
        """It is whole: sync it and give it its name. FileDamaged: begin anew."""
        found = self._digest.hexdigest()
        if self.written_bytes != self.size_bytes or found != sha256:
            self._begin_anew()
            raise FileDamaged(file=self.name, wanted=sha256, found=found)
        full = f"{self.name}-{sha256}"
        with _told(self.path, "sync"):
            os.fsync(self._fd)
            self.path.rename(self.path.with_name(full))
            _sync_folder(self.path.parent)
        self.close()
        return full

    def close(self) -> None:
        """Nothing more comes for now."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _begin_anew(self) -> None:
        with _told(self.path, "truncate"):
            os.ftruncate(self._fd, 0)
        self.written_bytes = 0
        self._digest = hashlib.sha256()


class FileStore:
    """A folder of files with a limit; its methods may be called from any thread."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.folder = folder
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        """Of what is there, and what is announced of what is coming."""

    @property
    def used_bytes(self) -> int:
        """What all files take, or will."""
        with self._lock:
            return sum(self._sizes.values())

    def open(self) -> list[str]:
        """The files that are there in full. SpoolFailed."""
        if not self.folder.is_dir():
            return []
        with _told(self.folder, "open"):
            found = {entry.name: entry.stat().st_size for entry in os.scandir(self.folder)}
        with self._lock:
            self._sizes = {name: size for name, size in found.items() if _is_ours(name)}
        return [name for name in found if _FULL_NAME.fullmatch(name)]

    def begin(self, name: str, size_bytes: int) -> Part:
        """A file begins to come, or goes on. SpoolFull, SpoolFailed, InvalidArgument."""
        if not _PART_NAME.fullmatch(name):
            raise InvalidArgument(what="file", detail=f"{name!r} is no name of one that is coming")
        file = name + PART
        with self._lock:
            used = sum(self._sizes.values()) - self._sizes.get(file, 0)
            if used + size_bytes > self._bytes_max:
                raise SpoolFull(used=used, size=size_bytes, limit=self._bytes_max)
            self._sizes[file] = size_bytes
        with _told(self.folder, "make"):
            self.folder.mkdir(mode=0o700, exist_ok=True)
        part = Part(name, self.folder / file, size_bytes)
        part.open()
        return part

    def finish(self, part: Part, sha256: str) -> str:
        """See Part.finish."""
        full = part.finish(sha256)
        with self._lock:
            self._sizes[full] = self._sizes.pop(part.name + PART, part.size_bytes)
        return full

    def found(self, name: str, sha256: str) -> str | None:
        """A file that came whole before, if it is there."""
        full = f"{name}-{sha256}"
        with self._lock:
            return full if full in self._sizes else None

    def read(self, file: str, offset: int, size: int) -> bytes:
        """Some bytes of a file that is there; fewer at its end. FileUnknown."""
        self._check_full(file)
        try:
            with (self.folder / file).open("rb", buffering=0) as opened:
                return os.pread(opened.fileno(), size, offset)
        except FileNotFoundError as fault:
            raise FileUnknown(file=file) from fault
        except OSError as fault:
            raise SpoolFailed(path=str(self.folder / file), detail=str(fault)) from fault

    def url(self, file: str) -> str:
        """Where a file lies on the node's machine."""
        self._check_full(file)
        return (self.folder / file).absolute().as_uri()

    def remove(self, file: str) -> None:
        """A file is not needed any more."""
        with contextlib.suppress(OSError):
            (self.folder / file).unlink()
        with self._lock:
            self._sizes.pop(file, None)

    def abandoned(self, before_s: float) -> list[str]:
        """Files still coming, of which nothing has come since that time."""
        found = []
        with self._lock:
            parts = [name for name in self._sizes if name.endswith(PART)]
        for name in parts:
            with contextlib.suppress(OSError):
                if (self.folder / name).stat().st_mtime < before_s:
                    found.append(name)
        return found

    def _check_full(self, file: str) -> None:
        if not _FULL_NAME.fullmatch(file):
            raise FileUnknown(file=file)


def _is_ours(name: str) -> bool:
    return bool(_FULL_NAME.fullmatch(name) or _PART_NAME.fullmatch(name.removesuffix(PART)))


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    """What the disk refuses, as our errors."""
    try:
        yield
    except OSError as fault:
        if fault.errno in _FULL:
            raise SpoolFull(used=0, size=0, limit=0) from fault
        raise SpoolFailed(path=str(path), detail=f"cannot {what}: {fault.strerror}") from fault
