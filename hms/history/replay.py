"""Replay: messages of the history, sent again, each once.

Spark reads, chooses, marks and packs, on as many cores or nodes as it has; a thread of this process
does where all that is read is one log. One sender in this process forwards the packs, chunk by
chunk, in the order of the log. Each chunk is one transaction with the entry in the ledger that says
so (see ledger.py): a run that was interrupted goes on where it was, and one that is complete sends
nothing when it is asked for again.
"""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hms.errors.catalogue import HistoryError, ReplayGap
from hms.history.chunks import Chunker
from hms.history.forward import forward
from hms.history.identity import check_writer, writer_before
from hms.history.local_rows import is_read_here
from hms.history.pace import Pace, Show
from hms.history.reading import (
    end_offset,
    first_offset,
    spark_faults,
)
from hms.history.scan import PathName, plan
from hms.history.scope import parse_scope
from hms.history.selection import selector_test
from hms.history.spark import borrowed_session, is_spark_there, require_spark
from hms.history.wanted import Wanted, When, time_text
from hms.records import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hms.history.ledger import Entry
    from hms.history.resend import Resender

__all__ = ["ReplayReport", "replay"]

CHUNK_ROWS = 4096
CHUNK_BYTES = 4 * 1024 * 1024
"""So many messages, or bytes of them, are one transaction."""
_STEPS_PER_S = 10
"""How finely a rate is spread over a second."""


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay did.

    sent: messages that the node confirmed, now; before: those of the same run's earlier attempts;
    copies: messages left out because a replay had brought them; unmarked: sent without a mark of
    their origin, because their head is not readable or has no room; files: left out because their
    content was in a file, which the history does not have; offsets are those of the history, None
    when nothing was found.
    """

    run: str
    sent: int
    before: int
    copies: int
    unmarked: int
    first_offset: int | None
    last_offset: int | None
    seconds: float
    files: int = 0

    @property
    def rate(self) -> float:
        """Messages a second, reading included."""
        return self.sent / self.seconds if self.seconds else 0.0


def replay(
    spark: "SparkSession | None",
    path: PathName,
    *,
    address: str,
    destination: str = "",
    into: str,
    from_: When = None,
    to: When = None,
    selector: str = "",
    rate: float | None = None,
    run_id: str = "",
    takes_copies: bool = False,
    master: str | None = None,
    show: Show | None = None,
) -> ReplayReport:
    """Send the messages that were sent to destinations in [from_, to) into others, in order, once.

    spark: None takes the session that runs, or makes one on `master`; where there is none of
    these, a log without an archive is read in this process, without Spark. path: the store's
    directory. destination: a comma list of `queue:NAME`, `topic:NAME`, NAME or patterns with * in
    them, "" for all; into: one of those names, in which {destination} stands for where a message
    was sent. Times: ISO 8601, ms since 1970, or datetimes. rate: messages a second. run_id: the
    name of the run, else one that follows from these arguments; the same run again goes on, or does
    nothing when it is complete.
    takes_copies: also messages that an earlier replay brought. show: called with the Progress.
    An error of sending carries a note: how far the run has come.
    """
    _check_rate(rate)
    wanted = Wanted(into, wanted_options(destination, from_, to, selector), takes_copies, run_id)
    source = source_name(path)
    check(source, wanted.options)
    is_wanted = spark is not None or master is not None or is_spark_there()
    if not is_wanted and is_read_here(source):
        require_spark(["pyarrow"])
        return _run(None, source, address, wanted, rate, show)
    with borrowed_session(spark, "hms-replay", master) as session:
        return _run(session, source, address, wanted, rate, show)


def wanted_options(destination: str, from_: When, to: When, selector: str) -> dict[str, str]:
    """The options of the source for a replay."""
    given = {
        "destination": destination,
        "from": time_text(from_),
        "to": time_text(to),
        "selector": selector or "",
    }
    return {name: value for name, value in given.items() if value}


def source_name(path: PathName) -> str:
    """Which history it is: the whole path of a directory, or a URL."""
    text = os.fspath(path)
    return text if "://" in text else os.path.realpath(text)


def check(source: str, options: Mapping[str, str]) -> None:
    """Raise our own errors here, before Spark starts and wraps them in its own."""
    scope = parse_scope(options)
    if scope.selector:
        selector_test(scope.selector)
    plan(source, scope)


def _check_rate(rate: float | None) -> None:
    if rate is not None and rate <= 0:
        raise HistoryError(detail=f"rate is a number of messages a second, not {rate}")


def _run(
    session: "SparkSession | None",
    source: str,
    address: str,
    wanted: Wanted,
    rate: float | None,
    show: Show | None,
) -> ReplayReport:
    from hms.history.resend import Resender  # noqa: PLC0415 - loads the client

    run = wanted.run_of(source)
    with Resender(address, run) as sender:
        begun = _begun(sender, run, source, wanted)
        pace = Pace(rate)
        if not begun.is_done:
            rows = CHUNK_ROWS if rate is None else max(1, min(CHUNK_ROWS, int(rate / _STEPS_PER_S)))
            chunker = Chunker(run, wanted.target, rows, CHUNK_BYTES, wanted.takes_copies)
            with nullcontext() if session is None else spark_faults():
                forward(session, wanted, chunker, sender, begun, pace, show)
        return _report(begun, sender.entry or begun, pace)


def _begun(sender: "Resender", run: str, source: str, wanted: Wanted) -> "Entry":
    """Where the run stands: as the node knows it, or at its beginning, its end fixed now."""
    from hms.history.ledger import Entry  # noqa: PLC0415 - loads the client

    first, known = first_offset(source), sender.entry
    if known is None:
        end = end_offset(source)
        writer = writer_before(source, end)._asdict()  # later than the end was found
        return Entry(run, source, wanted.meant, first, end, **writer)
    known.check(source, wanted.meant)
    end, told = known.until_offset, Writer(known.store, known.boot)
    check_writer(f"run {run}", source, end, told, writer_before(source, end))
    if not known.is_done and first > known.next_offset:
        raise ReplayGap(run=run, next=known.next_offset, first=first)
    return known


def _report(begun: "Entry", done: "Entry", pace: Pace) -> ReplayReport:
    return ReplayReport(
        run=done.run,
        sent=done.sent - begun.sent,
        before=begun.sent,
        copies=done.copies,
        unmarked=done.unmarked,
        first_offset=done.first_offset,
        last_offset=done.last_offset,
        seconds=pace.seconds,
        files=done.files,
    )
