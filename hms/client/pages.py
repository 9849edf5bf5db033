"""Pages: what waits in a queue, page by page, for threads and for asyncio alike (F-G1)."""

import struct

from field_buffer.catalogue import ConnectionClosed
from field_buffer.packing import unpack_delivered
from hms.client.destinations import Queue
from hms.client.message import Message
from tpmon.asked import OnLoss, Pending
from tpmon.asking import Asking
from tpmon.protocol.frames import DELIVER_HEAD, decode_deliver
from tpmon.protocol.structures import Browse
from tpmon.steps import Steps

PAGE_MESSAGES = 100
_POSITION = struct.Struct("<Q")

Page = tuple[list[Message], int]
"""Messages, and the position that they ended at; 0 when nothing follows."""


class Pages:
    """See the module. The first page is asked for at once: a bad selector is refused then."""

    def __init__(
        self, connection: Asking, queue: Queue, selector: str, *, is_oldest_first: bool
    ) -> None:
        self._connection = connection
        self._is_oldest_first = is_oldest_first
        self._is_closed = False
        self.queue = queue
        self.selector = selector
        self._first: Pending | None = self._ask(0)

    def first(self) -> Steps[Page]:
        """The first page of a new pass."""
        self._check_open()
        pending, self._first = self._first, None
        return (yield from self._answer(self._ask(0) if pending is None else pending))

    def granted(self) -> Steps[None]:
        """Wait for the first page; SelectorSyntaxError, DestinationNotFound."""
        if self._first is not None:
            yield from self._connection.answer_to(self._first)

    def after(self, position: int) -> Steps[Page]:
        """The page behind that position."""
        self._check_open()
        return (yield from self._answer(self._ask(position)))

    def close(self) -> None:
        """Ask for no further page."""
        self._is_closed = True

    def _ask(self, after: int) -> Pending:
        browse = Browse(self.queue.name, self.selector, self._is_oldest_first, after, PAGE_MESSAGES)
        return self._connection.link.request(browse, Pending("Browse", OnLoss.REPEAT))

    def _answer(self, pending: Pending) -> Steps[Page]:
        payload = (yield from self._connection.answer_to(pending)).payload
        follows, _, count = decode_deliver(payload)
        (position,) = _POSITION.unpack_from(payload, DELIVER_HEAD.size)
        rows = unpack_delivered(payload, count, DELIVER_HEAD.size + _POSITION.size)
        messages = [Message.received(*delivered, self.queue) for delivered in rows]
        return messages, position if follows else 0

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionClosed(what="browser")
