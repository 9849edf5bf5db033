"""Generations: who owns a shared directory, and how the next one takes it over."""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from hms.errors.catalogue import StoreUnavailable
from hms.store.journal.disk import CREATE, READ, REAL_DISK, UPDATE, Disk, write_all
from hms.store.journal.lock import LOCK_NAME
from hms.store.journal.segment import SPARE_NAME
from hms.store.journal.segment_walk import LOG_SUFFIX, segment_file, segment_numbers

__all__ = ["BEAT_NAME", "Generations", "Seen", "check_layout", "generation_of", "present_folder"]

BEAT_NAME: Final = "BEAT"
COPY_NAME: Final = "copy.tmp"
COPIED: Final = 2
"""The last segments: the one that was written, and the one before it, which may lack its seal."""
_NAME = re.compile(r"gen\.([1-9][0-9]{0,17})")
_CHUNK = 4 << 20


class Seen(NamedTuple):
    """What a standby saw of the owner: the same for a whole lease, and the owner is silent."""

    generation: int
    beat: bytes


def generation_of(folder: Path) -> int:
    """N of .../gen.N, 0 of any other folder."""
    found = _NAME.fullmatch(folder.name)
    return int(found[1]) if found else 0


def present_folder(base: Path) -> Path:
    """Where the store lies now; gen.1 before there is one."""
    return base / f"gen.{max(_present(base), 1)}"


def _present(base: Path, disk: Disk = REAL_DISK) -> int:
    try:
        return max((generation_of(Path(name)) for name in disk.list_dir(base)), default=0)
    except FileNotFoundError:
        return 0


def check_layout(base: Path, *, is_shared: bool, disk: Disk = REAL_DISK) -> None:
    """StoreUnavailable for the log of a node that was shared, and is not by now, or the other way
    round: a boot would not see it, and begin an empty one."""
    try:
        number = _present(base, disk)
        is_alone = bool(segment_numbers(disk, base, LOG_SUFFIX))
    except OSError:  # not there, or no folder: the store that is opened says so
        return
    if is_shared and is_alone and not number:
        detail = "it holds a log that is not shared: make the folder gen.1 in it and move all else "
        raise StoreUnavailable(path=str(base), detail=f"{detail}there, or leave shared out")
    if not is_shared and number and not is_alone:
        detail = f"it holds a shared log: set shared = true, or move what is in gen.{number} to it"
        raise StoreUnavailable(path=str(base), detail=detail)


class Generations:
    """A shared directory as one process sees it."""

    def __init__(self, base: Path, disk: Disk = REAL_DISK) -> None:
        self.base, self._disk = Path(os.path.abspath(base)), disk  # noqa: PTH100 - links stay

    def look(self) -> Seen:
        """The present generation and its owner's beat."""
        number = _present(self.base, self._disk)
        try:
            fd = self._disk.open(self._folder(number) / BEAT_NAME, READ)
        except OSError:
            return Seen(number, b"")
        try:
            return Seen(number, self._disk.pread(fd, 64, 0))
        finally:
            self._disk.close(fd)

    def is_locked(self, seen: Seen) -> bool:
        """Whether there is a lock, so that claim_free() told that a process has it; else somebody
        takes the store over, or died while it did."""
        return (self._folder(seen.generation) / LOCK_NAME).exists()

    def holder(self, seen: Seen) -> str:
        """The process that says that it owns a generation, for people."""
        try:
            text = (self._folder(seen.generation) / LOCK_NAME).read_text(errors="replace")
        except OSError:
            return "unknown"
        return text.strip() or "unknown"

    def claim_free(self, seen: Seen) -> Path | None:
        """Take a generation over whose owner is gone: its lock is to be had. The new folder."""
        disk = self._disk
        if seen.generation == 0:
            return self._begin()
        try:
            fd = disk.open(self._folder(seen.generation) / LOCK_NAME, UPDATE)
        except OSError:
            return None  # somebody is taking it over
        try:
            return self.claim(seen) if disk.lock(fd) else None
        finally:
            disk.close(fd)

    def claim(self, seen: Seen) -> Path | None:
        """Take a generation over, whatever its owner does. None: another one was first."""
        if seen.generation == 0:
            return self._begin()
        old, new = self._folder(seen.generation), self._folder(seen.generation + 1)
        try:
            self._disk.rename(old, new)
        except FileNotFoundError:
            return None
        # Before a lock that the caller may hold is let go: nobody else is to take it meanwhile.
        self._disk.unlink(new / LOCK_NAME)
        self._disk.fsync_dir(self.base)
        return new

    def _begin(self) -> Path | None:
        """The first generation; one mkdir wins."""
        first = self._folder(1)
        self._disk.make_dir(self.base)
        try:
            first.mkdir(mode=0o750)
        except FileExistsError:
            return None
        self._disk.fsync_dir(self.base)
        return first

    def settle(self, folder: Path) -> None:
        """Make what was claimed one's own: files that the old owner may have open are not read any
        more. Raises StoreUnavailable."""
        disk = self._disk
        try:
            for name in (SPARE_NAME, COPY_NAME):
                disk.unlink(folder / name)
            for number in segment_numbers(disk, folder, LOG_SUFFIX)[-COPIED:]:
                self._copy(segment_file(folder, number), folder / COPY_NAME)
            disk.fsync_dir(folder)
        except OSError as error:
            detail = f"it could not be taken over: {error.strerror or error}"
            raise StoreUnavailable(path=str(folder), detail=detail) from error

    def _copy(self, segment: Path, beside: Path) -> None:
        """The segment becomes another file with the same bytes."""
        disk = self._disk
        source, target = disk.open(segment, READ), disk.open(beside, CREATE)
        try:
            at, size = 0, disk.size(source)
            while at < size:
                data = disk.pread(source, _CHUNK, at)
                if not data:
                    break
                at = write_all(disk, target, [data], at)
            disk.ftruncate(target, size)
            disk.fsync(target)
        finally:
            disk.close(source)
            disk.close(target)
        disk.rename(beside, segment)

    def _folder(self, number: int) -> Path:
        return self.base / f"gen.{number}"
