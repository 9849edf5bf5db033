"""Browser: the waiting messages of a queue, page by page, none of them consumed (F-G1)."""

import struct
from collections.abc import Iterator
from typing import Self

from field_buffer.catalogue import ConnectionClosed
from field_buffer.packing import unpack_delivered
from hms.client.destinations import Queue
from hms.client.message import Message
from tpmon.asked import OnLoss, Pending
from tpmon.client import Connection
from tpmon.protocol.frames import DELIVER_HEAD, decode_deliver
from tpmon.protocol.structures import Browse

PAGE_MESSAGES = 100
_POSITION = struct.Struct("<Q")


class Browser:
    """See Session.browser(). Iterating begins anew each time and sees what waits at that moment."""

    def __init__(
        self, connection: Connection, queue: Queue, selector: str, *, is_oldest_first: bool
    ) -> None:
        self._connection = connection
        self._is_oldest_first = is_oldest_first
        self._is_closed = False
        self.queue = queue
        self.selector = selector
        self._pass: Iterator[Message] | None = None
        self._first: tuple[list[Message], int] | None = self._page(0)

    def __iter__(self) -> Iterator[Message]:
        page = self._first or self._page(0)
        self._first = None
        while True:
            messages, position = page
            yield from messages
            if not position:
                return
            page = self._page(position)

    def next_message(self) -> Message | None:
        """The next message of one pass over the queue, or None at its end."""
        if self._pass is None:
            self._pass = iter(self)
        return next(self._pass, None)

    def _page(self, after: int) -> tuple[list[Message], int]:
        """The messages of a page, and the position it ended at; 0 when nothing follows."""
        if self._is_closed:
            raise ConnectionClosed(what="browser")
        browse = Browse(self.queue.name, self.selector, self._is_oldest_first, after, PAGE_MESSAGES)
        pending = Pending("Browse", OnLoss.REPEAT)
        with self._connection.lock:
            self._connection.link.request(browse, pending)
            payload = self._connection.answer_to(pending).payload
        follows, _, count = decode_deliver(payload)
        (position,) = _POSITION.unpack_from(payload, DELIVER_HEAD.size)
        rows = unpack_delivered(payload, count, DELIVER_HEAD.size + _POSITION.size)
        messages = [Message.received(*delivered, self.queue) for delivered in rows]
        return messages, position if follows else 0

    def close(self) -> None:
        """Nothing is held at the node; only forbids further pages."""
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
