"""Producer: sends to one queue or topic."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from field_buffer.catalogue import ConnectionClosed, MessageTooLarge
from field_buffer.errors import HmsError
from field_buffer.packing import pack_messages
from hms.client.destinations import Destination
from hms.client.message import Message
from hms.client.opening import close_sender
from hms.client.receipt import Receipt
from hms.client.sending import Encoded, Sender, SendOptions, Ticket
from hms.client.streaming import Body, as_message, frames_of, send_options
from tpmon.asked import own_copy
from tpmon.link import State

if TYPE_CHECKING:
    from hms.client.session import Session


class Producer:
    """See Session.producer()."""

    def __init__(self, session: "Session", sender: Sender, options: SendOptions) -> None:
        self._session = session
        self._connection = session.connection
        self._lock = session.connection.lock
        self._sender = sender
        self._options = options
        self._is_closed = False

    @property
    def destination(self) -> Destination:
        """Where it sends to."""
        return self._sender.destination

    def send(
        self,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        *,
        persistent: bool | None = None,
        ttl_s: float | None = None,
        priority: int | None = None,
    ) -> Receipt:
        """Send and wait until the node has it; a str is a text. MessageTooLarge, QueueFull."""
        options = self._with(persistent, ttl_s, priority)
        encoded, marked = self._encode(body, properties, options)
        ticket = Ticket(1, marked, options)
        with self._lock:
            self._add(encoded, ticket)
            self._sender.push()
            self._connection.flush()
            self._await(ticket)
        if ticket.error is not None:
            raise own_copy(ticket.error)
        return ticket.receipts[0]

    def send_async(
        self,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        *,
        persistent: bool | None = None,
        ttl_s: float | None = None,
        priority: int | None = None,
    ) -> "Future[Receipt]":
        """Send without waiting; order is kept. Blocks only while the window is full (F-D6)."""
        options = self._with(persistent, ttl_s, priority)
        encoded, marked = self._encode(body, properties, options)
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._add(encoded, Ticket(1, marked, options, future))
            if not self._connection.link.sends_in_flight:
                self._sender.push()
            self._connection.flush()
        return future

    def send_many(self, bodies: Iterable[Body]) -> list[Receipt]:
        """Send all, pipelined, and wait until the node has them.

        The first error is raised after the rest of what is on its way is settled; its attribute
        `receipts` then has a Receipt or None for each message that was sent.
        """
        tickets: list[Ticket] = []
        try:
            self._submit_all(bodies, tickets)
        except HmsError as error:
            self._settle(tickets, error)
            raise
        except BaseException:
            self._settle(tickets, None)
            raise
        first = next((ticket.error for ticket in self._settle(tickets, None) if ticket.error), None)
        if first is not None:
            raise _with_receipts(own_copy(first), tickets)
        return [receipt for ticket in tickets for receipt in ticket.receipts]

    def close(self) -> None:
        """Wait for the confirmation of what was sent, and close."""
        if self._is_closed:
            return
        self._is_closed = True
        connection, state = self._connection, self._session.state
        with self._lock:
            self._session.wait_for_sends(is_enough=lambda: connection.link.state is State.ENDED)
            if not state.is_closed:
                close_sender(connection, state, self._sender)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ---- one by one

    def _with(
        self, persistent: bool | None, ttl_s: float | None, priority: int | None
    ) -> SendOptions:
        if persistent is None and ttl_s is None and priority is None:
            return self._options
        own = self._options
        return send_options(
            persistent=own.is_persistent if persistent is None else persistent,
            ttl_s=own.ttl_ms / 1000 if ttl_s is None else ttl_s,
            priority=own.priority if priority is None else priority,
        )

    def _encode(
        self, body: Body, properties: Mapping[str, Any] | None, options: SendOptions
    ) -> tuple[Encoded, list[tuple[int, Message]]]:
        """The message's bytes, and the message itself if it is the application's own."""
        message = as_message(body, properties)
        encoded = message.encode(options.ttl_ms, 0, options.priority)
        size = len(encoded[1]) + len(encoded[2])
        limit = self._connection.link.limits.message_bytes_max
        if size > limit:
            raise MessageTooLarge(size=size, limit=limit)
        return encoded, [(0, message)] if message is body else []

    def _add(self, encoded: Encoded, ticket: Ticket) -> None:
        """Into the pack, as soon as there is room."""
        size = len(encoded[1]) + len(encoded[2])
        is_persistent = ticket.options.is_persistent
        self._wait_until(lambda: self._sender.accepts(size, is_persistent=is_persistent))
        self._sender.add(encoded, ticket, is_persistent=is_persistent)

    def _wait_until(self, may_send: Callable[[], bool]) -> None:
        """Until the window is open, lock held; RequestTimeout, ConnectionLost."""
        connection, state = self._connection, self._session.state
        if self._is_closed or state.is_closed:
            raise ConnectionClosed(what="producer" if self._is_closed else "session")
        if not may_send():
            connection.flush()
            deadline = monotonic() + connection.request_timeout_s
            if not connection.wait_for(connection.link, may_send, deadline):
                raise connection.too_late("send", connection.request_timeout_s)
        if connection.link.state is State.ENDED:
            raise own_copy(connection.link.error)
        state.has_work = True

    def _await(self, ticket: Ticket) -> Ticket:
        """Until its outcome is known, lock held."""
        connection = self._connection
        patience_s = connection.request_timeout_s
        if not connection.wait_for(ticket, lambda: ticket.is_done, monotonic() + patience_s):
            ticket.error = connection.too_late("send", patience_s)
            self._sender.withdraw(ticket)
        return ticket

    # ---- many

    def _submit_all(self, bodies: Iterable[Body], tickets: list[Ticket]) -> None:
        frames = frames_of(bodies, self._options, self._connection.link.limits.message_bytes_max)
        sender = self._sender
        for messages, marked in frames:
            pack = pack_messages(messages)
            ticket = Ticket(len(messages), marked, self._options)
            with self._lock:
                sender.push()
                self._wait_until(lambda: sender.has_room and not sender.has_pack)
                tickets.append(ticket)
                sender.submit(
                    pack, ticket.count, [ticket], is_persistent=ticket.options.is_persistent
                )
                self._connection.flush()
            if tickets[0].error is not None:
                break

    def _settle(self, tickets: list[Ticket], error: HmsError | None) -> list[Ticket]:
        """Wait for the outcome of all."""
        with self._lock:
            for ticket in tickets:
                self._await(ticket)
        if error is not None:
            _with_receipts(error, tickets)
        return tickets


def _with_receipts(error: HmsError, tickets: list[Ticket]) -> HmsError:
    """The error, with what became of each message."""
    receipts: list[Receipt | None] = []
    for ticket in tickets:
        receipts += ticket.receipts or [None] * ticket.count
    error.receipts = receipts  # type: ignore[attr-defined]
    return error
