"""Forwarding: chunks go from Spark to the sender of a run, in order, each with its entry."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hms.errors.tree import HmsError
from hms.history.chunks import CHUNK_SCHEMA, Chunker
from hms.history.local_rows import ahead, rows_of
from hms.history.pace import Pace, Progress, Show
from hms.history.reading import Window, chosen, in_order, windows
from hms.history.resend import TOO_LARGE, smaller
from hms.history.wanted import Wanted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from hms.history.ledger import Entry
    from hms.history.resend import Chunk, Resender

__all__ = ["forward", "send_chunks"]


def forward(
    session: "SparkSession | None",
    wanted: Wanted,
    chunker: Chunker,
    sender: "Resender",
    begun: "Entry",
    pace: Pace,
    show: Show | None,
) -> None:
    """Send what is left of a run, read by Spark or, without a session, here; in smaller chunks when
    one is too large for the node, or for the room that its destination has."""
    while True:
        entry = sender.entry or begun
        try:
            with closing(_chunks(session, wanted, entry, chunker)) as chunks:
                send_chunks(chunks, sender, begun, pace, show)
        except TOO_LARGE as error:
            fitting = _smaller(chunker, error)
            if fitting is None:
                raise
            chunker = fitting
            sender.reopen()
        else:
            return


def _smaller(chunker: Chunker, error: HmsError) -> Chunker | None:
    """A chunker whose chunks may fit; None when none can."""
    found = smaller(chunker.rows_max, chunker.bytes_max, error)
    return None if found is None else replace(chunker, rows_max=found[0], bytes_max=found[1])


def _chunks(
    session: "SparkSession | None", wanted: Wanted, entry: "Entry", chunker: Chunker
) -> "Generator[Chunk, None, None]":
    """The chunks of what is left of a run, in order."""
    from hms.history.resend import Chunk  # noqa: PLC0415 - loads the client

    left = windows(entry.source, entry.next_offset, entry.until_offset)
    if session is None:
        for row in ahead(_chunks_here(wanted, entry, chunker, left)):
            yield Chunk.of(row)
        return

    def read(window: Window) -> "pa.Table":
        frame = chosen(session, entry.source, wanted.options, window)
        return frame.mapInArrow(chunker, CHUNK_SCHEMA).toArrow()

    for table in in_order(session, left, read):
        for row in table.to_pylist():
            yield Chunk.of(row)


def _chunks_here(
    wanted: Wanted, entry: "Entry", chunker: Chunker, left: Iterable[Window]
) -> Iterator[dict[str, Any]]:
    """The same as rows of CHUNK_SCHEMA, without Spark."""
    for window in left:
        yield from chunker.chunks(rows_of(entry.source, wanted.options, window))


def send_chunks(
    chunks: Iterable["Chunk"], sender: "Resender", begun: "Entry", pace: Pace, show: Show | None
) -> None:
    """Send chunk after chunk, and at the end note that the run is complete."""
    from hms.history.resend import NOTHING, told  # noqa: PLC0415 - loads the client

    entry = sender.entry or begun
    whole = begun.until_offset - begun.next_offset
    try:
        for chunk in chunks:
            assert chunk.first >= entry.next_offset, "the history came out of order"
            pace.await_turn(entry.sent - begun.sent)
            entry = _behind(entry, chunk)
            sender.send(chunk, entry)
            if show is not None:
                sent, done = entry.sent - begun.sent, entry.next_offset - begun.next_offset
                show(Progress(sent, done, whole, pace.seconds))
        if sender.entry is not None:  # what found nothing is no run yet
            entry = replace(entry, next_offset=entry.until_offset, is_done=True)
            sender.send(NOTHING, entry)
    except HmsError as error:
        raise told(error, sender.entry) from error.__cause__


def _behind(entry: "Entry", chunk: "Chunk") -> "Entry":
    """How far the run has come behind a chunk."""
    is_first = entry.first_offset is None and chunk.rows
    return replace(
        entry,
        next_offset=chunk.last + 1,
        sent=entry.sent + chunk.rows,
        copies=entry.copies + chunk.copies,
        unmarked=entry.unmarked + chunk.unmarked,
        files=entry.files + chunk.files,
        first_offset=chunk.first if is_first else entry.first_offset,
        last_offset=chunk.last if chunk.rows else entry.last_offset,
    )
