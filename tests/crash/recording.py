"""A disk in memory that remembers every change in order: the trace from which crash states come.

It shows what a reader sees (the system's cache). What would be there after a power cut at some
place of the trace is for tests.crash.legal to say.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple


class Written(NamedTuple):
    """Bytes into a file's cache."""

    file: int
    offset: int
    data: bytes


class Resized(NamedTuple):
    """A file was cut or extended."""

    file: int
    size: int


class Synced(NamedTuple):
    """A sync returned; is_whole: fsync; not is_good: with an error, its writes are given up."""

    file: int
    is_whole: bool
    is_good: bool


class Named(NamedTuple):
    """Names were changed in one step: each now leads to that file, or to none."""

    names: tuple[tuple[str, int | None], ...]


class DirSynced(NamedTuple):
    """The names in a directory are safe."""

    directory: str


class Noted(NamedTuple):
    """What the program that uses the journal knows from here on."""

    what: str
    value: object


Step = Written | Resized | Synced | Named | DirSynced | Noted


class Killed(BaseException):
    """The process ends here; the machine goes on."""


class RecordingDisk:
    """The journal's Disk protocol over a dictionary; before(call, name) may raise a fault."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.names: dict[str, int] = {}
        self.data: dict[int, bytearray] = {}
        self.steps: list[Step] = []
        self.before: Callable[[str, str], None] = lambda _call, _name: None
        self.now_s = 0.0
        self._fds: dict[int, int] = {}
        self._locked: dict[int, int] = {}
        """By file: the descriptor that has the lock."""
        self._next = 3
        for name, data in (files or {}).items():
            self.names[name] = self._number()
            self.data[self.names[name]] = bytearray(data)

    def note(self, what: str, value: object) -> None:
        """Put a remark in the trace."""
        self.steps.append(Noted(what, value))

    def files(self) -> dict[str, bytes]:
        """What a reader sees now."""
        return {name: bytes(self.data[number]) for name, number in self.names.items()}

    def end_process(self) -> None:
        """Open files and locks are gone; the cache stays."""
        self._fds.clear()
        self._locked.clear()

    def _number(self) -> int:
        self._next += 1
        return self._next

    # ---- names

    def make_dir(self, path: Path) -> None:
        """Directories are there, and safe, once they are made."""
        self.before("make_dir", path.name)

    def list_dir(self, path: Path) -> list[str]:
        self.before("list_dir", path.name)
        return sorted(Path(name).name for name in self.names if Path(name).parent == path)

    def open(self, path: Path, flags: int) -> int:
        self.before("open", path.name)
        name = str(path)
        if name not in self.names:
            if not flags & os.O_CREAT:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            number = self._number()
            self.data[number] = bytearray()
            self._change((name, number))
        fd = self._number()
        self._fds[fd] = self.names[name]
        return fd

    def close(self, fd: int) -> None:
        number = self._fds.pop(fd, -1)
        if self._locked.get(number) == fd:
            del self._locked[number]

    def rename(self, source: Path, target: Path) -> None:
        self.before("rename", target.name)
        if str(source) not in self.names:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        self._change((str(target), self.names[str(source)]), (str(source), None))

    def unlink(self, path: Path) -> None:
        self.before("unlink", path.name)
        if str(path) in self.names:
            self._change((str(path), None))

    def fsync_dir(self, path: Path) -> None:
        self.before("fsync_dir", path.name)
        self.steps.append(DirSynced(str(path)))

    def _change(self, *names: tuple[str, int | None]) -> None:
        self.steps.append(Named(names))
        apply_names(self.names, names)

    # ---- files

    def lock(self, fd: int) -> bool:
        return self._locked.setdefault(self._fds[fd], fd) == fd

    def size(self, fd: int) -> int:
        return len(self.data[self._fds[fd]])

    def stat(self, what: Path | str | int) -> SimpleNamespace:
        if isinstance(what, int):
            return SimpleNamespace(st_dev=1, st_ino=self._fds[what])
        if str(what) not in self.names:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(what))
        return SimpleNamespace(st_dev=1, st_ino=self.names[str(what)])

    def size_and_age(self, path: Path) -> tuple[int, float]:
        if str(path) not in self.names:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return len(self.data[self.names[str(path)]]), 0.0

    def name(self, fd: int) -> str:
        found = [name for name, number in self.names.items() if number == self._fds[fd]]
        return found[0] if found else "(deleted)"

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self.before("pread", self._short_name(fd))
        return bytes(memoryview(self.data[self._fds[fd]])[offset : offset + size])

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        self.before("pwritev", self._short_name(fd))
        data, number = b"".join(buffers), self._fds[fd]
        self.steps.append(Written(number, offset, data))
        write_into(self.data[number], offset, data)
        return len(data)

    def ftruncate(self, fd: int, size: int) -> None:
        self.before("ftruncate", self._short_name(fd))
        number = self._fds[fd]
        self.steps.append(Resized(number, size))
        resize(self.data[number], size)

    def allocate(self, fd: int, size: int) -> None:
        self.before("allocate", self._short_name(fd))
        number = self._fds[fd]
        if size > len(self.data[number]):
            self.steps.append(Resized(number, size))
            resize(self.data[number], size)

    def fdatasync(self, fd: int) -> None:
        self._sync(fd, "fdatasync")

    def fsync(self, fd: int) -> None:
        self._sync(fd, "fsync")

    def _sync(self, fd: int, call: str) -> None:
        number = self._fds[fd]
        try:
            self.before(call, self._short_name(fd))
        except OSError:
            self.steps.append(Synced(number, call == "fsync", is_good=False))
            raise
        self.steps.append(Synced(number, call == "fsync", is_good=True))

    def _short_name(self, fd: int) -> str:
        return Path(self.name(fd)).name

    def monotonic(self) -> float:
        return self.now_s


def apply_names(names: dict[str, int], changes: Sequence[tuple[str, int | None]]) -> None:
    """Let names lead to other files."""
    for name, number in changes:
        if number is None:
            names.pop(name, None)
        else:
            names[name] = number


def write_into(data: bytearray, offset: int, what: bytes) -> None:
    """Overwrite or extend."""
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(what)] = what


def resize(data: bytearray, size: int) -> None:
    """Cut, or extend with zeros."""
    del data[size:]
    data.extend(bytes(size - len(data)))
