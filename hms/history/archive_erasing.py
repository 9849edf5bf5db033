"""Erasing from an archive: files with something to erase are replaced by files where it is blank.

    1. a new file beside each, with the same rows: heads say nothing, bodies are zeros;
    2. the next version of the manifest names these: from here on they are the archive;
    3. the old ones are removed at once, and what a merge has replaced and still keeps.

A run that dies leaves files that nobody names, old ones or new ones, which the next run removes. A
reading that was planned before ends with an error that says so, and is begun again.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hms.errors.catalogue import SparkMissing
from hms.history.archive_place import ArchivePlace, LocalPlace
from hms.history.archive_write import DATA, DRAFT
from hms.history.erasing import Content, Erasure, blank_head
from hms.history.heads import HEAD_FIELDS, head_fields
from hms.history.manifest import ArchiveFile, Manifest, load_manifest, store_manifest
from hms.history.scope import WITH_HEAD

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["ErasedArchive", "erase_archive", "remove_unnamed"]

_JUDGED = ("message_id", "timestamp", "expiration", "priority", "head")


class ErasedArchive(NamedTuple):
    """What was found; faults: of files that could not be looked through, or replaced."""

    ids: frozenset[int]
    faults: list[str]


def erase_archive(place: ArchivePlace, erasure: Erasure, *, is_dry: bool) -> ErasedArchive:
    """Blank what is chosen, in every file; nobody else may work on the archive meanwhile. is_dry:
    only look. ArchiveError, ArchiveBusy."""
    manifest = load_manifest(place)
    if manifest is None:
        return ErasedArchive(frozenset(), [])
    if not is_dry:
        remove_unnamed(place, manifest)
    ids: set[int] = set()
    faults: list[str] = []
    by_day = sorted(manifest.files, key=lambda one: (one.day, one.name))
    for _, files in groupby(by_day, key=lambda one: one.day):
        found = list(_found(place, [one for one in files if _has_heads(one)], erasure, faults))
        ids.update(*(of_file for _, of_file in found))
        if found and not is_dry:
            manifest = _replace(place, manifest, [file for file, _ in found], erasure)
    for name, _ in manifest.dropped:
        with suppress(FileNotFoundError):
            of_file = _looked_through(place, name, erasure, faults)
            ids.update(of_file)
            if of_file and not is_dry:
                place.remove(name)
    return ErasedArchive(frozenset(ids), faults)


def remove_unnamed(place: ArchivePlace, manifest: Manifest) -> None:
    """Remove what runs that died have left."""
    known = {file.name for file in manifest.files}
    known.update(name for name, _ in manifest.dropped)
    place.remove(DRAFT)
    for name in place.files(DATA):
        if name not in known:
            place.remove(name)


def _has_heads(file: ArchiveFile) -> bool:
    return file.events is None or not WITH_HEAD.isdisjoint(file.events)


def _found(
    place: ArchivePlace, files: Iterable[ArchiveFile], erasure: Erasure, faults: list[str]
) -> Iterator[tuple[ArchiveFile, list[int]]]:
    for file in files:
        ids = _looked_through(place, file.name, erasure, faults, is_named=True)
        if ids:
            yield file, ids


def _looked_through(
    place: ArchivePlace, name: str, erasure: Erasure, faults: list[str], *, is_named: bool = False
) -> list[int]:
    """The ids to erase in a file. One that cannot be read is told, and the others are looked at."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    try:
        parquet = _opened(place, name)
        groups = range(parquet.num_row_groups)
        return [id_ for at in groups for id_ in _chosen(parquet, at, erasure).values()]
    except FileNotFoundError:
        if not is_named:
            raise
        faults.append(f"{name}: it is not there")
    except (OSError, pa.ArrowException) as fault:
        faults.append(f"{name}: {fault}")
    return []


def _opened(place: ArchivePlace, name: str) -> "pq.ParquetFile":
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional package
        import pyarrow.parquet as pq  # noqa: PLC0415 - an optional package
    except ImportError as fault:
        raise SparkMissing(what="an archive", package="pyarrow") from fault
    if isinstance(place, LocalPlace):
        return pq.ParquetFile(place.path(name))
    return pq.ParquetFile(pa.BufferReader(place.read(name)))


def _chosen(parquet: "pq.ParquetFile", group: int, erasure: Erasure) -> dict[int, int]:
    """Which rows of a group are to be erased, with their messages' ids. Bodies are read of a group
    that has some."""
    rows = parquet.read_row_group(group, columns=list(_JUDGED))
    columns = [_plain(rows.column(name)) for name in _JUDGED]
    found = {}
    for row, (id_, sent_ms, until_ms, priority, head) in enumerate(zip(*columns, strict=True)):
        if head is not None:
            one = Content(int(id_, 16), sent_ms or 0, until_ms or 0, priority or 0, head, b"")
            if erasure.chooses(one):
                found[row] = one
    if not found:
        return {}
    bodies = parquet.read_row_group(group, columns=["body"]).column("body")
    whole = {row: one._replace(body=bodies[row].as_py() or b"") for row, one in found.items()}
    return {row: one.id for row, one in whole.items() if not one.is_blank}


def _plain(column: "pa.ChunkedArray") -> list[Any]:
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _replace(
    place: ArchivePlace, manifest: Manifest, files: list[ArchiveFile], erasure: Erasure
) -> Manifest:
    """The version of the manifest that names other files instead of these."""
    new = {file.name: _blanked(place, file, erasure) for file in files}
    changed = msgspec.structs.replace(
        manifest,
        version=manifest.version + 1,
        files=[new.get(file.name, file) for file in manifest.files],
    )
    store_manifest(place, changed)
    for name in new:
        place.remove(name)
    return changed


def _blanked(place: ArchivePlace, file: ArchiveFile, erasure: Erasure) -> ArchiveFile:
    """Write a file like it in which what is chosen is blank."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional package

    parquet, sink = _opened(place, file.name), pa.BufferOutputStream()
    with pq.ParquetWriter(sink, parquet.schema_arrow, compression="zstd") as writer:
        for at in range(parquet.num_row_groups):
            rows = parquet.read_row_group(at)
            rows = _with_blank(rows, _chosen(parquet, at, erasure))
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))
    data = sink.getvalue().to_pybytes()
    folder, _, old = file.name.rpartition("/")
    name = f"{folder}/{old.partition('-')[0]}-{uuid.uuid4().hex[:12]}-00000.parquet"
    place.create(name, data)
    return msgspec.structs.replace(file, name=name, size=len(data))


def _with_blank(rows: "pa.Table", chosen: Collection[int]) -> "pa.Table":
    """The same rows, of which some say nothing, as the log's reader shows a blank message."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    if not chosen:
        return rows
    heads = rows.column("head").to_pylist()
    for at, field in enumerate(rows.schema):
        if field.name not in ("head", "body", *HEAD_FIELDS):
            continue
        values = rows.column(at).to_pylist()
        for row in chosen:
            head = blank_head(len(heads[row] or b""))
            if field.name == "head":
                values[row] = head
            elif field.name == "body":
                values[row] = None if values[row] is None else bytes(len(values[row]))
            else:
                value = head_fields(head)[HEAD_FIELDS.index(field.name)]
                values[row] = list(value.items()) if isinstance(value, dict) else value
        rows = rows.set_column(at, field, pa.array(values, field.type))
    return rows
