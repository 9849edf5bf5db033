"""A disk in memory that forgets, tears and refuses as real ones may: the journal's Disk protocol.

Every file has two contents: `cache`, what a reader sees, and `safe`, what is there after the power
was cut. Writing makes sectors of 512 bytes *dirty*; a sync makes them safe. A power cut keeps any
of the dirty sectors and any first part of the changes of names. A failed sync leaves its sectors
clean and not safe, as Linux does: a second one finds nothing to do and reports success.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

from tests.sim.inode import Inode


class Crash(BaseException):
    """The node's process ends here; is_power: and the machine with it."""

    def __init__(self, *, is_power: bool) -> None:
        super().__init__("power cut" if is_power else "crash")
        self.is_power = is_power


class SimDisk:
    """See the module. before(call, inode): asked at every call, may raise."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._numbers = iter(range(1, 1 << 30))
        self._fds: dict[int, Inode] = {}
        self._next_fd = 3
        self._holders: set[int] = set()
        """Descriptors that hold the lock of their file."""
        self._changes: list[Callable[[dict[str, Inode]], None]] = []
        self.names: dict[str, Inode] = {}
        self.safe_names: dict[str, Inode] = {}
        self.before: Callable[[str, Inode | None], None] = lambda _call, _inode: None
        self.clock_s: Callable[[], float] = lambda: 0.0
        self.violations: list[str] = []
        self.is_full = False
        self.is_dead = False
        self.syncs = 0

    # ---- faults

    def fail(self, *, is_power: bool) -> None:
        """The process is gone, and with it its open files; with the power also the cache."""
        self._fds.clear()
        self._holders.clear()
        self.is_dead = True
        if is_power:
            self._lose_power()
        for inode in self.names.values():
            inode.is_locked = inode.is_broken = False

    def start(self) -> None:
        """A new process opens files."""
        self.is_dead = False

    def _lose_power(self) -> None:
        kept = self._rng.randint(0, len(self._changes))
        for change in self._changes[:kept]:
            change(self.safe_names)
        self._changes.clear()
        for name in sorted(self.safe_names):
            self._tear(self.safe_names[name])
        self.names = dict(self.safe_names)
        self.syncs += 1

    def _tear(self, inode: Inode) -> None:
        """Of what was not synced any sector is kept; mostly all, none, or a first part."""
        rng, dirty = self._rng, sorted(inode.dirty)
        how = rng.random()
        if how < 0.4:
            kept = [sector for sector in dirty if rng.random() < 0.5]
        else:
            kept = dirty[: rng.choice((0, len(dirty), rng.randint(0, len(dirty))))]
        inode.save(kept)
        if inode.is_cut and rng.random() < 0.5:
            del inode.safe[len(inode.cache) :]
        inode.cache = bytearray(inode.safe)
        inode.dirty.clear()
        inode.is_cut = False

    def _call(self, call: str, inode: Inode | None = None) -> None:
        if self.is_dead:
            raise Crash(is_power=False)
        if inode is not None and inode.is_broken:
            self.violations.append(f"retried: {call} on a file whose write or sync had failed")
        try:
            self.before(call, inode)
        except OSError:
            if inode is not None and call != "ftruncate":
                inode.is_broken = True
            raise

    def key(self, path: Path) -> str:
        """There is one directory, unless a test has more."""
        return path.name

    # ---- the protocol, names

    def make_dir(self, _path: Path) -> None:
        self._call("make_dir")

    def list_dir(self, _path: Path) -> list[str]:
        return sorted(self.names)

    def open(self, path: Path, flags: int) -> int:
        self._call("open")
        inode = self.names.get(self.key(path))
        if inode is None:
            if not flags & os.O_CREAT:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            inode = Inode(next(self._numbers))
            self._change(lambda names, i=inode: names.__setitem__(self.key(path), i))
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._fds[fd] = inode
        return fd

    def close(self, fd: int) -> None:
        inode = self._fds.pop(fd, None)
        if inode is not None and fd in self._holders:
            inode.is_locked = False
        self._holders.discard(fd)

    def rename(self, source: Path, target: Path) -> None:
        self._call("rename")

        def change(names: dict[str, Inode]) -> None:
            if self.key(source) in names:
                names[self.key(target)] = names.pop(self.key(source))

        self._change(change)

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        self._change(lambda names: names.pop(self.key(path), None))

    def fsync_dir(self, _path: Path) -> None:
        self._call("fsync_dir")
        for change in self._changes:
            change(self.safe_names)
        self._changes.clear()
        self.syncs += 1

    def _change(self, change: Callable[[dict[str, Inode]], None]) -> None:
        change(self.names)
        self._changes.append(change)

    # ---- the protocol, files

    def lock(self, fd: int) -> bool:
        inode = self._fds[fd]
        was_free, inode.is_locked = not inode.is_locked, True
        if was_free:
            self._holders.add(fd)
        return was_free

    def size(self, fd: int) -> int:
        return len(self._fds[fd].cache)

    def stat(self, what: Path | str | int) -> SimpleNamespace:
        inode = self._fds[what] if isinstance(what, int) else self.names.get(self.key(Path(what)))
        if inode is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(what))
        return SimpleNamespace(st_dev=1, st_ino=inode.number)

    def size_and_age(self, path: Path) -> tuple[int, float]:
        return len(self.names[self.key(path)].cache), 0.0

    def name(self, fd: int) -> str:
        inode = self._fds[fd]
        return next((name for name, other in self.names.items() if other is inode), "(deleted)")

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return bytes(self._fds[fd].cache[offset : offset + size])

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        inode, data = self._inode(fd), b"".join(buffers)
        if self.is_full and offset + len(data) > len(inode.cache):
            inode.is_broken = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            self._call("pwritev", inode)
        except Crash:
            inode.write(data[: self._rng.randint(0, len(data))], offset)
            raise
        if len(data) > 1 and self._rng.random() < 0.02:
            data = data[: self._rng.randint(1, len(data))]  # a short write is not a failed one
        inode.write(data, offset)
        return len(data)

    def ftruncate(self, fd: int, size: int) -> None:
        inode = self._inode(fd)
        self._call("ftruncate", inode)
        inode.cut(size)

    def allocate(self, fd: int, size: int) -> None:
        inode = self._inode(fd)
        if self.is_full and size > len(inode.cache):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._call("allocate", inode)
        if size > len(inode.cache):
            inode.cut(size)

    def fdatasync(self, fd: int) -> None:
        self._sync(fd, "fdatasync")

    def fsync(self, fd: int) -> None:
        self._sync(fd, "fsync")

    def _inode(self, fd: int) -> Inode:
        """An open file; a process that is gone writes nothing more."""
        if self.is_dead:
            raise Crash(is_power=False)
        return self._fds[fd]

    def _sync(self, fd: int, call: str) -> None:
        inode = self._inode(fd)
        try:
            self._call(call, inode)
        except OSError:
            inode.save([sector for sector in sorted(inode.dirty) if self._rng.random() < 0.3])
            inode.dirty.clear()
            raise
        except Crash:
            inode.save([sector for sector in sorted(inode.dirty) if self._rng.random() < 0.5])
            raise
        inode.sync(is_whole=call == "fsync")
        self.syncs += 1

    def monotonic(self) -> float:
        return self.clock_s()
