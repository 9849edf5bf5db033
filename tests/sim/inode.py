"""A file of the simulated disk: what a reader sees, and what is there after the power was cut."""

from collections.abc import Sequence
from dataclasses import dataclass, field

SECTOR = 512


@dataclass(eq=False)
class Inode:
    """A file's contents. is_broken: a write or sync failed in this life of the node (P7)."""

    number: int
    cache: bytearray = field(default_factory=bytearray)
    safe: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    is_cut: bool = False
    is_broken: bool = False
    is_locked: bool = False

    def write(self, data: bytes, offset: int) -> None:
        """Into the cache."""
        if offset > len(self.cache):
            self.touch(len(self.cache), offset)
            self.cache.extend(bytes(offset - len(self.cache)))
        self.cache[offset : offset + len(data)] = data
        self.touch(offset, offset + len(data))

    def touch(self, start: int, end: int) -> None:
        """Sectors of these bytes are dirty."""
        self.dirty.update(range(start // SECTOR, -(-end // SECTOR)))

    def cut(self, size: int) -> None:
        """Cut or extend."""
        if size < len(self.cache):
            del self.cache[size:]
            self.is_cut = True
        elif size > len(self.cache):
            self.write(bytes(size - len(self.cache)), len(self.cache))

    def save(self, sectors: Sequence[int]) -> None:
        """These sectors are safe now."""
        for sector in sectors:
            start = sector * SECTOR
            data = self.cache[start : start + SECTOR]
            if data:
                if len(self.safe) < start:
                    self.safe.extend(bytes(start - len(self.safe)))
                self.safe[start : start + len(data)] = data

    def sync(self, *, is_whole: bool) -> None:
        """All is safe; that the file was cut only when is_whole (fsync)."""
        self.save(sorted(self.dirty))
        self.dirty.clear()
        if is_whole and self.is_cut:
            del self.safe[len(self.cache) :]
            self.is_cut = False
