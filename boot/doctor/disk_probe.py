"""What a disk does: how long appends, syncs and renames take, and whether its locks hold.

All of it happens in a folder of its own below the one that is probed, which is removed afterwards.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Latencies",
    "batch_curve",
    "folder_of",
    "is_lock_held",
    "killed_holder",
    "measure",
    "percentile",
]

BLOCK = 4096
MILLI = 1000
Sync = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of one kind of call, in milliseconds, in order of size."""

    name: str
    values: tuple[float, ...]

    def describe(self) -> dict[str, float | str | int]:
        """Percentiles."""
        return {
            "call": self.name,
            "count": len(self.values),
            "p50_ms": round(percentile(self.values, 0.5), 3),
            "p90_ms": round(percentile(self.values, 0.9), 3),
            "p99_ms": round(percentile(self.values, 0.99), 3),
            "max_ms": round(self.values[-1], 3),
        }


def percentile(values: tuple[float, ...], share: float) -> float:
    """Of values in order."""
    return values[min(len(values) - 1, int(share * len(values)))]


@contextmanager
def folder_of(where: Path) -> Iterator[Path]:
    """A folder to probe in; an OSError names what cannot be done there."""
    made = Path(tempfile.mkdtemp(prefix=".hms-probe-", dir=where))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _timed(name: str, count: int, call: Callable[[int], object]) -> Latencies:
    values = []
    for number in range(count):
        begun = time.perf_counter()
        call(number)
        values.append((time.perf_counter() - begun) * MILLI)
    return Latencies(name, tuple(sorted(values)))


def measure(folder: Path, count: int, sync: Sync = os.fdatasync) -> list[Latencies]:
    """Append and sync, overwrite and sync, rename and sync of the folder."""
    block = os.urandom(BLOCK)
    fd = os.open(folder / "append", os.O_RDWR | os.O_CREAT, 0o600)
    at_folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:

        def append(number: int) -> None:
            os.pwrite(fd, block, number * BLOCK)
            sync(fd)

        def overwrite(number: int) -> None:
            os.pwrite(fd, block, number % 16 * BLOCK)
            sync(fd)

        def rename(number: int) -> None:
            os.close(os.open(folder / "a", os.O_WRONLY | os.O_CREAT, 0o600))
            (folder / "a").rename(folder / f"b{number % 4}")
            os.fsync(at_folder)

        return [
            _timed("append and sync", count, append),
            _timed("overwrite and sync", count, overwrite),
            _timed("rename and sync of the folder", max(1, count // 4), rename),
        ]
    finally:
        os.close(fd)
        os.close(at_folder)


def batch_curve(folder: Path, count: int, sync: Sync = os.fdatasync) -> list[tuple[int, float]]:
    """Bytes of a batch, and the median of a write and sync of it in milliseconds."""
    curve = []
    for size in (BLOCK, 4 * BLOCK, 16 * BLOCK, 64 * BLOCK):
        data = os.urandom(size)
        fd = os.open(folder / "batch", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            found = _timed("batch", count, lambda _, fd=fd, data=data: _write(fd, data, sync))  # type: ignore[misc]
        finally:
            os.close(fd)
        curve.append((size, round(percentile(found.values, 0.5), 3)))
    return curve


def _write(fd: int, data: bytes, sync: Sync) -> None:
    os.pwrite(fd, data, 0)
    sync(fd)


def is_lock_held(folder: Path, lock: Callable[[int, int], None] = fcntl.flock) -> str:
    """The sequence of a store's lock: one holds it, another is refused, and gets it after that.
    Why not, or nothing."""
    path = folder / "lock"
    first = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    second = os.open(path, os.O_RDWR)
    try:
        lock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            lock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return "two had the lock at once"
        lock(first, fcntl.LOCK_UN)
        try:
            lock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "the lock was released and still held"
        return _survives_kill(path, second, lock)
    finally:
        os.close(first)
        os.close(second)


@contextmanager
def killed_holder(path: Path, lock: Callable[[int, int], None] = fcntl.flock) -> Iterator[None]:
    """Meanwhile a process of its own has the lock; at the end it is killed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            fd = os.open(path, os.O_RDWR)
            lock(fd, fcntl.LOCK_EX)
            os.write(writer, b"x")
            while True:
                time.sleep(60)
        finally:
            os._exit(1)
    try:
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        yield
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def _survives_kill(path: Path, ours: int, lock: Callable[[int, int], None]) -> str:
    """Whether the lock of a process that is killed is free at once."""
    lock(ours, fcntl.LOCK_UN)
    with killed_holder(path, lock):
        pass
    try:
        lock(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "the lock of a killed process was still held"
    return ""
