"""Which directories a power cut may leave: the legal crash states of a trace.

As ALICE and CrashMonkey do, with a weak file system. Of what was not synced, any sector of 512
bytes is the old one, the new one, or one between; space that is new may hold stale bytes; a file's
size is any that it had since; each change of names is there or not, for itself, until every
directory that it touches was synced. A failed sync gives its writes up: they may be lost for ever,
though readers see them, until they are written again.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.crash.recording import (
    DirSynced,
    Named,
    Noted,
    RecordingDisk,
    Resized,
    Step,
    Synced,
    Written,
    apply_names,
    resize,
    write_into,
)
from tests.sim.inode import SECTOR, Inode

PAGE_SECTORS = 8
STALE = b"\xd7" * SECTOR
NAMES_EXHAUSTIVE = 4
TORN_EVERY = 8
Files = dict[str, bytes]
Choice = dict[tuple[int, int], int]
"""By file and sector: which of its versions is on the disk; what is not named is the old one."""


class TracedFile(Inode):
    """An Inode that knows every content that a sector, and the size, had since it was safe."""

    def __init__(self, number: int, data: bytes = b"") -> None:
        super().__init__(number, bytearray(data), bytearray(data))
        self.versions: dict[int, list[bytes]] = {}
        self.sizes = [len(data)]

    def write(self, data: bytes, offset: int) -> None:
        """Into the cache; every sector gets one more version."""
        touched = range(min(offset, len(self.cache)) // SECTOR, -(-(offset + len(data)) // SECTOR))
        super().write(data, offset)
        for sector in touched:
            fresh = [STALE] if sector * SECTOR >= len(self.safe) else []
            content = bytes(self.cache[sector * SECTOR : (sector + 1) * SECTOR])
            self.versions.setdefault(sector, fresh).append(content)
        self._resized()

    def cut(self, size: int) -> None:
        """Cut or extend."""
        super().cut(size)
        self._resized()

    def _resized(self) -> None:
        if self.sizes[-1] != len(self.cache):
            self.sizes.append(len(self.cache))

    def sync(self, *, is_whole: bool) -> None:
        """What is dirty is safe now; what a failed sync gave up is not dirty, and stays open."""
        for sector in self.dirty:
            self.versions.pop(sector, None)
        super().sync(is_whole=is_whole)
        self.sizes = [len(self.safe)] if len(self.safe) >= len(self.cache) else []
        self._resized_to_cache()

    def _resized_to_cache(self) -> None:
        if not self.sizes or self.sizes[-1] != len(self.cache):
            self.sizes.append(len(self.cache))

    def content(self, kept: dict[int, int], size: int) -> bytes:
        """With these versions of sectors, and this size."""
        data = bytearray(self.safe)
        for sector, version in kept.items():
            if version:
                write_into(data, sector * SECTOR, self.versions[sector][version - 1])
        resize(data, size)
        return bytes(data)


class Legal:
    """What is safe and what is open at the present place of a trace."""

    def __init__(self, disk: RecordingDisk) -> None:
        """From a disk that has no steps yet: all it holds is safe."""
        assert not disk.steps
        self._files = {n: TracedFile(n, bytes(data)) for n, data in disk.data.items()}
        self._safe_names = dict(disk.names)
        self._open: list[tuple[Named, set[str]]] = []
        self._last: tuple[int, bytes, Written] | None = None

    def apply(self, step: Step) -> None:
        """One step further."""
        self._last = None
        if isinstance(step, Written):
            file = self._file(step.file)
            self._last = step.file, bytes(file.cache), step
            file.write(step.data, step.offset)
        elif isinstance(step, Resized):
            self._file(step.file).cut(step.size)
        elif isinstance(step, Synced):
            self._sync(step)
        elif isinstance(step, Named):
            touched = {str(Path(name).parent) for name, _ in step.names}
            self._open.append((step, touched))
        elif isinstance(step, DirSynced):
            self._sync_dir(step.directory)
        else:
            assert isinstance(step, Noted)

    def _file(self, number: int) -> TracedFile:
        return self._files.setdefault(number, TracedFile(number))

    def _sync(self, step: Synced) -> None:
        file = self._file(step.file)
        if step.is_good:
            file.sync(is_whole=step.is_whole)
        else:
            file.dirty.clear()

    def _sync_dir(self, directory: str) -> None:
        """Changes become safe in their order, once every directory they touch was synced."""
        left = []
        for change, touched in self._open:
            touched.discard(directory)
            if touched:
                left.append((change, touched))
            else:
                apply_names(self._safe_names, change.names)
        self._open = left

    # ---- states

    def states(self, chance: random.Random, most: int) -> Iterator[Files]:
        """Up to `most` of the legal states of this place, the plainest first."""
        picked = self._plain()
        rest = list(self._structured()) + [self._any(chance) for _ in range(most)]
        chance.shuffle(rest)
        picked += rest[: max(most - len(picked), 0)]
        for names, choice, sizes in picked:
            yield self._state(names, choice, sizes)
        yield from self._torn(chance, most)

    def _plain(self) -> list[tuple[int, Choice, int]]:
        """Everything is there; nothing is."""
        return [(self._all_names, self._newest(), -1), (0, {}, 0)]

    @property
    def _all_names(self) -> int:
        return (1 << len(self._open)) - 1

    def _newest(self) -> Choice:
        return {
            (number, sector): len(versions)
            for number, file in self._files.items()
            for sector, versions in file.versions.items()
        }

    def _structured(self) -> Iterator[tuple[int, Choice, int]]:
        """Names in every combination; sectors cut off before or behind, one missing, one alone."""
        newest = self._newest()
        choices = [newest, {}, *_parts(sorted(newest), newest)]
        for names in self._name_choices():
            for choice in choices:
                yield names, choice, -1
                yield names, choice, 0

    def _name_choices(self) -> list[int]:
        if len(self._open) <= NAMES_EXHAUSTIVE:
            return list(range(self._all_names + 1))
        singles = [1 << n for n in range(len(self._open))]
        firsts = [one - 1 for one in singles]
        return [self._all_names, *singles, *firsts, *(self._all_names ^ one for one in singles)]

    def _any(self, chance: random.Random) -> tuple[int, Choice, int]:
        newest = self._newest()
        choice = {place: chance.randint(0, count) for place, count in newest.items()}
        return chance.randint(0, self._all_names), choice, chance.choice((-1, 0, 1))

    def _torn(self, chance: random.Random, most: int) -> Iterator[Files]:
        """The last write, torn between any two words: its first or its last part is there."""
        if self._last is None:
            return
        number, before, step = self._last
        cuts = list(range(TORN_EVERY, len(step.data), TORN_EVERY))
        for cut in chance.sample(cuts, min(len(cuts), most)):
            state = self._state(self._all_names, self._newest(), -1, without=number)
            for part, offset in ((step.data[:cut], 0), (step.data[cut:], cut)):
                data = bytearray(before)
                write_into(data, step.offset + offset, part)
                yield state | self._named(number, bytes(data))

    def _named(self, number: int, data: bytes) -> Files:
        names = self._names(self._all_names)
        return {name: data for name, other in names.items() if other == number}

    def _names(self, chosen: int) -> dict[str, int]:
        names = dict(self._safe_names)
        for n, (change, _) in enumerate(self._open):
            if chosen >> n & 1:
                apply_names(names, change.names)
        return names

    def _state(self, names: int, choice: Choice, size: int, without: int = -1) -> Files:
        found = self._names(names)
        kept: dict[int, dict[int, int]] = {}
        for (number, sector), version in choice.items():
            kept.setdefault(number, {})[sector] = version
        return {
            name: self._content(number, kept.get(number, {}), size)
            for name, number in found.items()
            if number != without
        }

    def _content(self, number: int, kept: dict[int, int], size: int) -> bytes:
        file = self._file(number)
        return file.content(kept, file.sizes[size % len(file.sizes)])


def _parts(places: Sequence[tuple[int, int]], newest: Choice) -> Iterator[Choice]:
    """Parts of what is open: each first and last part, by sector and page, each one of two."""
    for n in range(len(places)):
        alone, first, last = places[n : n + 1], places[:n], places[n:]
        page = [
            place for place in places if place[1] // PAGE_SECTORS == places[n][1] // PAGE_SECTORS
        ]
        for part in (alone, first, last, page):
            yield {place: newest[place] for place in part}
            yield {place: newest[place] for place in places if place not in part}
