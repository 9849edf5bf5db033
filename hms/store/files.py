"""The files of file messages: in a folder beside the log, in full or still coming (F-F6).

    NAME.part         a file that is still coming; NAME says who sends it
    NAME-SHA256       one that is there in full, synced, and is what its sender has sent

A file is synced and has its final name before anybody is told so, and so has the folder. What a
crash has left of one that was coming is read again, and its sender goes on behind it; only the
digest at the end proves it. A sync that fails is not repeated (P7): the file is given up, and its
sender begins anew; when the sync of a name fails, no file is taken until the next boot.
"""

import contextlib
import errno
import hashlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from hms.errors.catalogue import (
    FileDamaged,
    FileGap,
    FileUnknown,
    InvalidArgument,
    SpoolFailed,
    SpoolFull,
)
from hms.store.journal.disk import CREATE, PRIVATE_DISK, READ, Disk, write_all
from hms.store.journal.segment_walk import opened

PART = ".part"
READ_BYTES = 1 << 20
AHEAD_BYTES = 16 << 20
"""So much more than has come is kept free for a file that is coming."""
_PART_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")
_FULL_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{64}")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Part:
    """A file that is coming; one thread at a time."""

    def __init__(self, disk: Disk, name: str, path: Path, size_bytes: int) -> None:
        self.name, self.path = name, path
        self.size_bytes = size_bytes
        self.written_bytes = 0
        self.is_given_up = False
        """A write or sync failed: nothing more is written to it."""
        self._disk = disk
        self._digest = hashlib.sha256()
        self._fd = -1

    def open(self) -> None:
        """Open it, and read what is there of it already.

        That is written again: where a sync had failed, the system may still show us what it has
        given up writing, and a later sync alone would save nothing.
        """
        try:
            with _told(self.path, "open"):
                self._fd = self._disk.open(self.path, CREATE)
                at = 0
                while data := self._disk.pread(self._fd, READ_BYTES, at):
                    self._digest.update(data)
                    at = write_all(self._disk, self._fd, [data], at)
        except (SpoolFull, SpoolFailed):
            self.close()
            raise
        self.written_bytes = at
        if at > self.size_bytes:  # not what is announced now
            self._begin_anew()

    def write(self, offset: int, data: bytes) -> None:
        """The next bytes; those that are here already are left out. FileGap, SpoolFull."""
        end = offset + len(data)
        if offset > self.written_bytes or end > self.size_bytes or self.is_given_up:
            raise FileGap(file=self.name, offset=offset, wanted=self.written_bytes)
        new = memoryview(data)[self.written_bytes - offset :]
        if end <= self.written_bytes:
            return
        with self._or_given_up("write"):
            write_all(self._disk, self._fd, [new], self.written_bytes)
        self._digest.update(new)
        self.written_bytes = end

    def finish(self, sha256: str) -> str:
        """It is whole: sync it and give it its name, which is not safe yet. FileDamaged: begin
        anew."""
        found = self._digest.hexdigest()
        if self.written_bytes != self.size_bytes or found != sha256:
            self._begin_anew()
            raise FileDamaged(file=self.name, wanted=sha256, found=found)
        full = f"{self.name}-{sha256}"
        with self._or_given_up("sync", also_when_full=True):
            self._disk.fsync(self._fd)
            self._disk.rename(self.path, self.path.with_name(full))
        self.close()
        return full

    @contextlib.contextmanager
    def _or_given_up(self, what: str, *, also_when_full: bool = False) -> Iterator[None]:
        """After a fault the file is removed; bytes for which there is no space may come again."""
        try:
            with _told(self.path, what):
                yield
        except (SpoolFull, SpoolFailed) as fault:
            if also_when_full or isinstance(fault, SpoolFailed):
                self._give_up()
            raise

    def _give_up(self) -> None:
        self.is_given_up = True
        self.close()
        with contextlib.suppress(OSError):
            self._disk.unlink(self.path)

    def close(self) -> None:
        """Nothing more comes for now."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    def _begin_anew(self) -> None:
        with self._or_given_up("truncate"):
            self._disk.ftruncate(self._fd, 0)
        self.written_bytes = 0
        self._digest = hashlib.sha256()


class FileStore:
    """A folder of files with a limit; its methods may be called from any thread."""

    def __init__(self, folder: Path, bytes_max: int, disk: Disk = PRIVATE_DISK) -> None:
        self.folder = folder
        self._bytes_max, self._disk = bytes_max, disk
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._is_made = False
        self._broken: str | None = None
        self._sizes: dict[str, int] = {}
        """Of what is there; of what is coming, what is kept free for it."""

    def open(self) -> list[str]:
        """The files that are there in full. SpoolFailed."""
        try:
            with _told(self.folder, "open"):
                names = [name for name in self._disk.list_dir(self.folder) if _is_ours(name)]
                if names:  # who gave a file its name may have died before that was safe
                    self._disk.fsync_dir(self.folder)
                found = {n: self._disk.size_and_age(self.folder / n)[0] for n in names}
        except SpoolFailed as fault:
            if isinstance(fault.__cause__, FileNotFoundError):
                return []
            raise
        with self._lock:
            self._sizes = found
        return [name for name in found if is_whole_file(name)]

    def begin(self, name: str, size_bytes: int) -> Part:
        """A file begins to come, or goes on. SpoolFull, SpoolFailed, InvalidArgument."""
        if not _PART_NAME.fullmatch(name):
            raise InvalidArgument(what="file", detail=f"{name!r} is no name of one that is coming")
        self._check_well()
        self._reserve(name, size_bytes, size_bytes)
        try:
            self._make()
            part = Part(self._disk, name, self.folder / (name + PART), size_bytes)
            part.open()
        except (SpoolFull, SpoolFailed):
            self._forget(name + PART)
            raise
        self._reserve(name, size_bytes, part.written_bytes + AHEAD_BYTES)
        return part

    def _reserve(self, name: str, size_bytes: int, wanted_bytes: int) -> None:
        """Keep room for so much of a file, at most for all of it. SpoolFull."""
        file, wanted = name + PART, min(size_bytes, wanted_bytes)
        with self._lock:
            used = sum(self._sizes.values()) - self._sizes.get(file, 0)
            if used + wanted > self._bytes_max:
                raise SpoolFull(used=used, size=size_bytes, limit=self._bytes_max)
            self._sizes[file] = wanted

    def write(self, part: Part, offset: int, data: bytes) -> None:
        """See Part.write; room is kept for what comes next."""
        if part.written_bytes + len(data) > self._sizes.get(part.name + PART, 0):
            wanted = part.written_bytes + len(data) + AHEAD_BYTES
            self._reserve(part.name, part.size_bytes, wanted)
        try:
            part.write(offset, data)
        finally:
            self._check_given_up(part)

    def finish(self, part: Part, sha256: str) -> str:
        """See Part.finish; here its name is made safe too. SpoolFailed."""
        self._check_well()
        try:
            full = part.finish(sha256)
        finally:
            self._check_given_up(part)
        try:
            with _told(self.folder, "sync"):
                self._disk.fsync_dir(self.folder)
        except (SpoolFull, SpoolFailed) as fault:
            self._broken = f"{fault}; no file is taken until the node boots again"
            raise
        with self._lock:
            self._sizes[full] = part.size_bytes
            self._sizes.pop(part.name + PART, None)
        return full

    def put_aside(self, part: Part) -> None:
        """Its sender is gone: what has come stays for a while, and no room is kept for the rest."""
        part.close()
        with self._lock:
            if part.name + PART in self._sizes:
                self._sizes[part.name + PART] = part.written_bytes

    def _make(self) -> None:
        """Make the folder, with its name in its parent safe, once in each life."""
        with self._making:
            if not self._is_made:
                with _told(self.folder, "make"):
                    self._disk.make_dir(self.folder)
                self._is_made = True

    def _check_well(self) -> None:
        if self._broken is not None:
            raise SpoolFailed(path=str(self.folder), detail=self._broken)

    def _check_given_up(self, part: Part) -> None:
        if part.is_given_up:
            self._forget(part.name + PART)

    def _forget(self, file: str) -> None:
        with self._lock:
            self._sizes.pop(file, None)

    def found(self, name: str, sha256: str) -> str | None:
        """A file that came whole before, if it is there."""
        full = f"{name}-{sha256}"
        with self._lock:
            return full if full in self._sizes else None

    def read(self, file: str, offset: int, size: int) -> bytes:
        """Some bytes of a file that is there; fewer at its end. FileUnknown."""
        self._check_full(file)
        try:
            with opened(self._disk, self.folder / file, READ) as fd:
                return self._disk.pread(fd, size, offset)
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
            self._disk.unlink(self.folder / file)
        self._forget(file)

    def abandoned(self, life_s: float) -> list[str]:
        """Files still coming, of which nothing has come for so long."""
        found = []
        with self._lock:
            parts = [name for name in self._sizes if name.endswith(PART)]
        for name in parts:
            with contextlib.suppress(OSError):
                if self._disk.size_and_age(self.folder / name)[1] > life_s:
                    found.append(name)
        return found

    def _check_full(self, file: str) -> None:
        if not is_whole_file(file):
            raise FileUnknown(file=file)


def is_whole_file(name: str) -> bool:
    """Whether it is the name of a file that is there in full."""
    return bool(_FULL_NAME.fullmatch(name))


def _is_ours(name: str) -> bool:
    return is_whole_file(name) or bool(_PART_NAME.fullmatch(name.removesuffix(PART)))


@contextlib.contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    """What the disk refuses, as our errors."""
    try:
        yield
    except OSError as fault:
        if fault.errno in _FULL:
            raise SpoolFull(used=0, size=0, limit=0) from fault
        raise SpoolFailed(path=str(path), detail=f"cannot {what}: {fault.strerror}") from fault
