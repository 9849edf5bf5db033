"""hms store probe damage: bits of a copy of a store are flipped, and each must be detected."""

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hms.errors.catalogue import StoreCorrupt, StoreFormatUnknown, StoreLocked, StoreUnavailable
from hms.store.journal.disk import READ, REAL_DISK
from hms.store.journal.segment_walk import Walk, all_files, opened, read_info
from hms.store.journal.store_examination import examine, holder

__all__ = ["damage"]


def damage(path: Path, count: int, seed: int | None = None) -> tuple[dict[str, Any], bool]:
    """How many of so many flipped bits were detected, and whether all were. The store is only
    read; its copy lies beside it and is removed. StoreLocked, StoreUnavailable, OSError."""
    files = all_files(REAL_DISK, path)
    if not files:
        raise StoreUnavailable(path=str(path), detail="there is no log in it")
    user = holder(path)
    if user is not None:
        raise StoreLocked(path=str(path), pid=user)
    size, free = sum(file.stat().st_size for file in files.values()), shutil.disk_usage(path).free
    if size > free:
        detail = f"a copy of it takes {size} bytes, and {free} are free"
        raise StoreUnavailable(path=str(path), detail=detail)
    chosen = random.Random(seed)  # noqa: S311 - no secret
    with tempfile.TemporaryDirectory(prefix=".hms-probe-", dir=path.parent) as made:
        copy = Path(made) / "store"
        copy.mkdir()
        for file in files.values():
            shutil.copyfile(file, copy / file.name)
        found = examine(copy)
        before = found.verdict, found.records
        if found.damages:
            raise StoreUnavailable(path=str(path), detail="it is damaged; see hms store verify")
        ends = {number: _end_of(copy / file.name, number) for number, file in files.items()}
        flips = [_flip(chosen, copy, files, ends, before) for _ in range(count)]
    missed = [where for where, is_seen in flips if not is_seen]
    said = {"flipped": count, "detected": count - len(missed), "missed": missed}
    verdict = "some were not detected" if missed else "each flipped bit was detected"
    return said | {"segments": len(files), "verdict": verdict}, not missed


def _end_of(file: Path, number: int) -> int:
    """Where the last record of a segment ends: behind it nothing was written."""
    with opened(REAL_DISK, file, READ) as fd:
        walk = Walk(REAL_DISK, fd, read_info(REAL_DISK, file, number, is_last=True))
        for _ in walk.records():
            pass
        return walk.at


def _flip(
    chosen: random.Random,
    copy: Path,
    files: dict[int, Path],
    ends: dict[int, int],
    before: tuple[str, int],
) -> tuple[str, bool]:
    """Where, and whether that was detected; the bit is as it was then. In the last write of the log
    it is taken for one that was cut short, which is told too."""
    number = chosen.choices([*ends], [*ends.values()])[0]
    file, at, bit = copy / files[number].name, chosen.randrange(ends[number]), chosen.randrange(8)
    with file.open("r+b") as changed:
        changed.seek(at)
        byte = changed.read(1)[0]
        try:
            changed.seek(at)
            changed.write(bytes([byte ^ 1 << bit]))
            changed.flush()
            found = examine(copy)
            is_seen = bool(found.damages) or (found.verdict, found.records) != before
        except (StoreCorrupt, StoreFormatUnknown, StoreUnavailable):
            is_seen = True
        finally:
            changed.seek(at)
            changed.write(bytes([byte]))
    return f"{file.name} byte {at} bit {bit}", is_seen
