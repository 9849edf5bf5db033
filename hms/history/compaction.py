"""Compaction: many small files of a day become few large ones, with the same proof as before.

The files that are replaced stay for a while, for readings that were planned before.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from hms.history.archive_place import ArchivePlace
from hms.history.archive_write import files_of, frame_of_files, summary, write_files
from hms.history.manifest import ArchiveFile, Manifest, store_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["forget", "steps"]

FILE_BYTES = 64 * 1024 * 1024
"""A file of this size is large."""
FILES_MIN = 8
"""So many small files of a day are merged."""
MERGE_BYTES = 512 * 1024 * 1024
"""So much of them at once."""
GRACE_MS = 3_600_000
"""A file that was replaced is removed after this time."""
_PACKED = 4
"""How many times smaller rows are here than in the log, about; it only sets how many files."""


def steps(spark: "SparkSession", place: ArchivePlace, manifest: Manifest) -> Iterator[Manifest]:
    """Versions to commit one after the other, each with some files replaced."""
    for day in sorted({file.day for file in manifest.files}):
        small = [file for file in manifest.files if file.day == day and file.size < FILE_BYTES]
        if len(small) >= FILES_MIN:
            manifest = _merge(spark, place, manifest, _some(small))
            yield manifest


def _some(files: list[ArchiveFile]) -> list[ArchiveFile]:
    """The oldest of them, up to a limit of their sizes."""
    chosen: list[ArchiveFile] = []
    size = 0
    for file in sorted(files, key=lambda one: one.first):
        size += file.size
        if len(chosen) > 1 and size > MERGE_BYTES:
            break
        chosen.append(file)
    return chosen


def _merge(
    spark: "SparkSession", place: ArchivePlace, manifest: Manifest, old: list[ArchiveFile]
) -> Manifest:
    rows = frame_of_files(spark, place, [file.name for file in old])
    first, last = min(file.first for file in old), max(file.last for file in old)
    names = write_files(rows, place, first, sum(file.size for file in old) * _PACKED)
    new = files_of(spark, place, names, summary(rows), (first, last))
    replaced = {file.name for file in old}
    now_ms = time.time_ns() // 1_000_000
    return msgspec.structs.replace(
        manifest,
        version=manifest.version + 1,
        files=[*(file for file in manifest.files if file.name not in replaced), *new],
        dropped=[*manifest.dropped, *((name, now_ms) for name in sorted(replaced))],
    )


def forget(place: ArchivePlace, manifest: Manifest) -> Manifest:
    """Remove files that were replaced long ago, and say so."""
    old_ms = time.time_ns() // 1_000_000 - GRACE_MS
    gone = [name for name, at_ms in manifest.dropped if at_ms <= old_ms]
    if not gone:
        return manifest
    left = [(name, at_ms) for name, at_ms in manifest.dropped if at_ms > old_ms]
    shorter = msgspec.structs.replace(manifest, version=manifest.version + 1, dropped=left)
    store_manifest(place, shorter)
    for name in gone:
        place.remove(name)
    return shorter
