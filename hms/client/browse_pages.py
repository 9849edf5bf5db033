"""Browse pages: what waits in a queue, page by page, for threads and for asyncio alike (F-G1)."""

import struct

from hms.client.core.link import State
from hms.client.core.operations import Steps
from hms.client.core.pending_requests import OnLoss, Pending, own_copy
from hms.client.core.requests import Requests
from hms.client.destinations import Queue
from hms.client.message import Message
from hms.client.session_steps import SessionSteps
from hms.errors.catalogue import ConnectionClosed
from hms.wire.frames import DELIVER_HEAD, decode_deliver
from hms.wire.packed_messages import unpack_delivered
from hms.wire.structures import Browse

PAGE_MESSAGES = 100
_POSITION = struct.Struct("<Q")

Page = tuple[list[Message], int]
"""Messages, and the position that they ended at; 0 when nothing follows."""


def place_pages(requests: Requests, place: str, selector: str, position: int) -> Steps[Page]:
    """A page of what a place has behind a position, delayed ones too: queue:NAME,
    subscription:NAME[@TOPIC] or retained:PATTERN. Position 0 when nothing follows."""
    asked = Browse(
        "",
        selector,
        is_oldest_first=True,
        after=position,
        count_max=PAGE_MESSAGES,
        place=place,
    )
    pending = requests.link.request(asked, Pending("Browse", OnLoss.REPEAT))
    return _page_of((yield from requests.answer_to(pending)).payload, Queue("place"), requests)


def _page_of(payload: bytes, queue: Queue, requests: Requests) -> Page:
    follows, _, count = decode_deliver(payload)
    (position,) = _POSITION.unpack_from(payload, DELIVER_HEAD.size)
    rows = unpack_delivered(payload, count, DELIVER_HEAD.size + _POSITION.size)
    if requests.link.restored is not None:
        rows = requests.link.restored.noted(rows)
    messages = [Message.received(*delivered, queue) for delivered in rows]
    return messages, position if follows else 0


class BrowsePages:
    """See the module. An empty page is asked for at once: a bad selector is refused then. Messages
    are read when a pass comes to them. is_in_flight: those at consumers are shown too, with a mark.
    """

    def __init__(
        self,
        session: SessionSteps,
        queue: Queue,
        selector: str,
        *,
        is_oldest_first: bool,
        is_in_flight: bool = False,
    ) -> None:
        self._session = session
        self._requests = session.requests
        self._is_oldest_first = is_oldest_first
        self._is_in_flight = is_in_flight
        self._is_closed = False
        self.queue = queue
        self.selector = selector
        self._granted = self._ask(0, 0)

    def first(self) -> Steps[Page]:
        """The first page of a new pass, as the queue is now."""
        self.check_open()
        return (yield from self._answer(self._ask(0)))

    def granted(self) -> Steps[None]:
        """Wait until the node has taken it; SelectorSyntaxError, DestinationNotFound."""
        yield from self._requests.answer_to(self._granted)

    def after(self, position: int) -> Steps[Page]:
        """The page behind that position."""
        self.check_open()
        return (yield from self._answer(self._ask(position)))

    def close(self) -> None:
        """Ask for no further page."""
        self._is_closed = True

    def _ask(self, after: int, count_max: int = PAGE_MESSAGES) -> Pending:
        browse = Browse(
            self.queue.name,
            self.selector,
            self._is_oldest_first,
            after,
            count_max,
            self._is_in_flight,
        )
        return self._requests.link.request(browse, Pending("Browse", OnLoss.REPEAT))

    def _answer(self, pending: Pending) -> Steps[Page]:
        answer = yield from self._requests.answer_to(pending)
        return _page_of(answer.payload, self.queue, self._requests)

    def check_open(self) -> None:
        """ConnectionClosed when it, its session or its connection is; the loss of that for good."""
        if self._is_closed:
            raise ConnectionClosed(what="browser")
        self._session.check_open()
        if self._requests.link.state is State.ENDED:
            raise own_copy(self._requests.link.error)
