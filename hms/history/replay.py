"""Replay: messages of the history, sent again.

Spark reads and filters, on as many cores or nodes as it has; one producer in this process sends, so
the messages arrive in the order in which they were sent first. Every run sends its whole window:
what a run that failed has sent already, a second one sends again.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from field_buffer.catalogue import HistoryError
from field_buffer.errors import HmsError
from hms.history.scan import PathName, plan, selector_test
from hms.history.scope import as_time_ms, parse_destination, parse_scope
from hms.history.spark import borrowed_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ReplayReport", "replay"]

BATCH_MAX = 2048
BATCH_BYTES = 16 * 1024 * 1024
"""So many messages, or bytes of bodies, are sent before their confirmation is awaited."""
_STEPS_PER_S = 10
"""How finely a rate is spread over a second."""
_DETAIL_MAX = 1000
_COLUMNS = "offset bigint, priority int, kind string, head binary, body binary"

When = str | int | datetime | None
SendBatch = Callable[[list[Any]], None]


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay did. rows: found in the history; sent: confirmed by the node, so equal to rows;
    offsets are those of the history, None when nothing was found."""

    rows: int
    sent: int
    first_offset: int | None
    last_offset: int | None
    seconds: float

    @property
    def rate(self) -> float:
        """Messages a second, reading included."""
        return self.sent / self.seconds if self.seconds else 0.0


def replay(
    spark: "SparkSession | None",
    path: PathName,
    *,
    address: str,
    destination: str,
    into: str,
    from_: When = None,
    to: When = None,
    selector: str = "",
    rate: float | None = None,
    master: str = "local[2]",
) -> ReplayReport:
    """Send the messages that were sent to a destination in [from_, to) into another one, in order.

    spark: None makes a session on `master`. path: the store's directory. destination, into:
    `queue:NAME`, `topic:NAME` or NAME. Times: ISO 8601, ms since 1970, or datetimes. rate: messages
    a second. An error of sending carries a note: up to which offset everything was confirmed.
    """
    if rate is not None and rate <= 0:
        raise HistoryError(detail=f"rate is a number of messages a second, not {rate}")
    directory = os.fspath(path)
    options = _checked(directory, _options(destination, from_, to, selector))
    with borrowed_session(spark, "hms-replay", master) as session:
        return _send_to(address, into, _read(session, directory, options), rate)


def _read(session: "SparkSession", path: str, options: dict[str, str]) -> Iterator[Any]:
    """The rows, segment by segment, the next one being read while this one is sent."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - pyspark has it
    from pyspark.errors import PySparkException  # noqa: PLC0415 - loads pyspark

    reader = session.read.format("hms").schema(_COLUMNS).options(**options)
    try:
        yield from reader.load(path).toLocalIterator(prefetchPartitions=True)
    except (PySparkException, Py4JError) as fault:
        raise HistoryError(detail=f"Spark failed: {str(fault).strip()[:_DETAIL_MAX]}") from fault


def _options(destination: str, from_: When, to: When, selector: str) -> dict[str, str]:
    given = {
        "destination": destination,
        "from": _time_text(from_),
        "to": _time_text(to),
        "selector": selector or "",
    }
    return {"view": "messages"} | {name: value for name, value in given.items() if value}


def _time_text(when: When) -> str:
    if isinstance(when, datetime):
        return str(as_time_ms(when))
    return "" if when is None else str(when)


def _checked(path: str, options: dict[str, str]) -> dict[str, str]:
    """The options; our own errors are raised here, before Spark wraps them in its own."""
    scope = parse_scope(options)
    if scope.selector:
        selector_test(scope.selector)
    plan(path, scope)
    return options


def _send_to(address: str, into: str, rows: Iterable[Any], rate: float | None) -> ReplayReport:
    from hms.history import resend  # noqa: PLC0415 - loads the client

    with resend.open_sender(address, parse_destination(into)) as send:
        return send_rows(rows, send, rate)


def send_rows(
    rows: Iterable[Any],
    send: SendBatch,
    rate: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplayReport:
    """Send rows in batches, not faster than the rate, and count what was confirmed."""
    began_s = clock()
    sent, first, last = 0, None, None
    for batch in _batches(rows, _batch_size(rate)):
        if rate is not None:
            sleep(max(0.0, began_s + sent / rate - clock()))
        try:
            send(batch)
        except HmsError as error:
            error.add_note(f"{sent} messages up to offset {last} were sent and confirmed before.")
            raise
        sent += len(batch)
        first = batch[0].offset if first is None else first
        last = batch[-1].offset
    return ReplayReport(sent, sent, first, last, clock() - began_s)


def _batch_size(rate: float | None) -> int:
    return BATCH_MAX if rate is None else min(BATCH_MAX, max(1, int(rate / _STEPS_PER_S)))


def _batches(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Batches of rows, whose offsets must rise: the order of the log is the order of sending."""
    batch: list[Any] = []
    newest, room = -1, BATCH_BYTES
    for row in rows:
        assert row.offset > newest, "the history came out of order"
        newest = row.offset
        batch.append(row)
        room -= len(row.body or b"")
        if len(batch) == size or room <= 0:
            yield batch
            batch, room = [], BATCH_BYTES
    if batch:
        yield batch
