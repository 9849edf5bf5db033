"""Sending again: messages of the history as the client sends messages, byte for byte."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import hms
from field_buffer.packing import KIND_CARRAY, ROW, DeliveredRow
from hms.client.message import Message
from hms.history.events import KINDS

__all__ = ["Original", "as_message", "open_sender"]

_KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}


class Original(Message):
    """A message that leaves with the very head, body, kind and priority that it came with.

    An ordinary message would be encoded anew: that costs time, and fails for a head that another
    client library wrote and this one cannot read.
    """

    __slots__ = ()

    def encode(
        self,
        ttl_ms: int = 0,
        delay_ms: int = 0,
        priority: int = 0,  # noqa: ARG002 - its own counts
        flags: int = 0,
    ) -> tuple[bytes, bytes, bytes]:
        """(row, head, body) for the client's packs."""
        own = self._delivered
        assert own is not None, "made by as_message()"
        head, body = self._head, self._body
        row = ROW.pack(len(head), len(body), ttl_ms, delay_ms, own.priority, own.kind, flags, 0)
        return row, head, body


def as_message(row: Any, destination: "hms.Queue | hms.Topic") -> Original:
    """The message of a row with the columns priority, kind, head and body."""
    head, body = bytes(row.head or b""), bytes(row.body or b"")
    kind = _KIND_NUMBERS.get(row.kind, KIND_CARRAY)
    said = DeliveredRow(0, 0, 0, 0, len(head), len(body), row.priority, kind, 0)
    return Original.received(said, head, body, destination)


@contextmanager
def open_sender(
    address: str, into: tuple[str | None, str]
) -> Iterator[Callable[[Sequence[Any]], None]]:
    """A function that sends rows and waits for their confirmation, on a connection of its own.

    into: (kind, name) of the destination; a queue unless kind says otherwise.
    """
    kind, name = into
    destination = hms.Topic(name) if kind == "topic" else hms.Queue(name)
    with (
        hms.connect(address, client_name="hms history replay") as connection,
        connection.session() as session,
        session.producer(destination) as producer,
    ):
        yield lambda rows: _send(producer, rows)


def _send(producer: "hms.Producer", rows: Sequence[Any]) -> None:
    producer.send_many([as_message(row, producer.destination) for row in rows])
