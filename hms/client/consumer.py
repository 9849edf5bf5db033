"""Consumer: receives from one queue, topic or durable subscription."""

from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Self

from field_buffer.catalogue import AcknowledgeLost, ConnectionClosed, IllegalState
from hms.client.destinations import Destination
from hms.client.inbox import Delivered, Inbox, Stamp
from hms.client.message import Message
from hms.client.opening import close_inbox
from hms.constants import AckMode
from tpmon.asked import own_copy
from tpmon.driver import FOREVER
from tpmon.link import State

if TYPE_CHECKING:
    from hms.client.session import Session


class Acknowledge:
    """What ack() of a received message does."""

    __slots__ = ("_consumer", "_stamp")

    def __init__(self, consumer: "Consumer", stamp: Stamp) -> None:
        self._consumer = consumer
        self._stamp = stamp

    def __call__(self, message: Message) -> None:
        """This message alone."""
        self._consumer.acknowledge(self._stamp, message, is_upthrough=False)

    def upthrough(self, message: Message) -> None:
        """This message and all that its consumer saw before it."""
        self._consumer.acknowledge(self._stamp, message, is_upthrough=True)


class Consumer:
    """See Session.consumer(). Iterating waits for ever, until the consumer or session is closed."""

    def __init__(self, session: "Session", inbox: Inbox) -> None:
        self._session = session
        self._connection = session.connection
        self._lock = session.connection.lock
        self._state = session.state
        self._inbox = inbox
        self._is_closed = False
        self._listener: Callable[[Message], object] | None = None
        self._is_client = session.state.ack_mode is AckMode.CLIENT
        self._acknowledge = Acknowledge(self, inbox.stamp)

    @property
    def destination(self) -> Destination:
        """Where it receives from."""
        return self._inbox.destination

    @property
    def selector(self) -> str:
        """Its selector, empty for none."""
        return self._inbox.opening.selector

    # ---- receiving

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when the time is over. Without a time it waits for ever, but no
        longer than request_timeout_s through an outage (F-K8): ConnectionLost."""
        with self._lock:
            self._check_receiving()
            delivered = self._next()
            if delivered is None:
                delivered = self._wait(timeout_s)
                if delivered is None:
                    return None
            self._state.consumed(self._inbox, delivered[0][0])
            self._connection.flush()
            stamp = self._inbox.stamp
        return self._message(delivered, stamp)

    def receive_nowait(self) -> Message | None:
        """The next message if one is here."""
        return self.receive(0)

    def __iter__(self) -> Iterator[Message]:
        while not self._is_over:
            try:
                message = self.receive()
            except ConnectionClosed:
                return
            if message is not None:
                yield message

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._state.is_closed

    def _next(self) -> Delivered | None:
        """The next one of the buffer; gives credit back before, so that the node keeps up."""
        inbox = self._inbox
        if inbox.is_credit_due:
            self._state.settle(inbox)
        return inbox.take()

    def _wait(self, timeout_s: float | None) -> Delivered | None:
        deadline = FOREVER if timeout_s is None else monotonic() + timeout_s
        connection, link = self._connection, self._connection.link
        while True:
            self._state.settle(self._inbox)
            connection.flush()
            patience = connection.outage_ends_by(connection.request_timeout_s)
            is_due = connection.wait_for(
                self._inbox, partial(self._is_due, link.state), min(deadline, patience)
            )
            delivered = self._next()
            if delivered is not None:
                return delivered
            self._check_receiving()
            if not is_due and patience <= deadline and not connection.is_connected:
                raise own_copy(link.error)
            if monotonic() >= deadline:
                return None

    def _is_due(self, state: State) -> bool:
        """Whether there is something to do but to wait while the link is in that state."""
        inbox = self._inbox
        is_new = bool(inbox.buffer) or inbox.error is not None
        return is_new or self._is_over or self._connection.link.state is not state

    def _check_receiving(self) -> None:
        if self._is_closed or self._state.is_closed:
            raise ConnectionClosed(what="consumer" if self._is_closed else "session")
        if self._inbox.buffer and self._listener is None:
            return
        if self._inbox.error is not None:
            raise own_copy(self._inbox.error)
        if self._connection.link.state is State.ENDED:
            raise own_copy(self._connection.link.error)
        if self._session.is_asynchronous:
            detail = "its messages go to the listener service"
            raise IllegalState(what="receive()", detail=detail)
        if self._listener is not None and not self._session.listening.is_current_thread:
            raise IllegalState(what="receive()", detail="its messages go to its listener")

    def _message(self, delivered: Delivered, stamp: Stamp) -> Message:
        row, head, body = delivered
        acknowledge = Acknowledge(self, stamp) if self._is_client else self._acknowledge
        return Message.received(row, head, body, self._inbox.destination, acknowledge)

    # ---- acknowledging

    def acknowledge(self, stamp: Stamp, message: Message, *, is_upthrough: bool) -> None:
        """Acknowledge a message that was delivered at that time, or all that were seen up to it."""
        if not self._is_client:
            raise IllegalState(what="message.ack()", detail="the session acknowledges by itself")
        message_id, now = message.delivered_id, self._inbox.stamp
        if stamp.incarnation != now.incarnation:
            raise AcknowledgeLost(message_id=f"{message_id:012x}", when="before")
        if stamp != now:
            raise IllegalState(what="message.ack()", detail="recover() has given it back")
        if self._is_over:
            raise IllegalState(
                what="message.ack()", detail="its consumer is closed; it comes again"
            )
        self._session.acknowledge(self._inbox, message_id, is_upthrough=is_upthrough)

    # ---- a listener in this process

    def listen(self, listener: Callable[[Message], object] | None) -> None:
        """Have a function called for every message, one at a time per session, in order, on a
        thread of the session. It is acknowledged when the function returns; when it raises, the
        message comes again, or the transaction is rolled back. None: no longer."""
        with self._lock:
            if listener is not None:
                self._check_receiving()
            self._listener = listener
        self._session.listening.set(self, listener)

    @property
    def has_messages(self) -> bool:
        """Whether messages wait here."""
        return bool(self._inbox.buffer)

    def take_for_listener(self) -> Delivered | None:
        """The next message for the listener, lock held."""
        return self._next()

    def handle(self, delivered: Delivered, listener: Callable[[Message], object]) -> None:
        """Call the listener, and settle by how it ends."""
        with self._lock:
            stamp, inbox = self._inbox.stamp, self._inbox
            is_before = self._is_client or self._state.is_transacted
            if is_before:
                self._state.consumed(inbox, delivered[0][0])
        message = self._message(delivered, stamp)
        try:
            listener(message)
        except BaseException:
            self._failed(stamp, delivered[0][0])
            raise
        with self._lock:
            if not is_before and stamp == inbox.stamp:
                self._state.consumed(inbox, delivered[0][0])
                self._connection.flush()

    def _failed(self, stamp: Stamp, message_id: int) -> None:
        if self._state.is_transacted:
            self._session.rollback()
            return
        with self._lock:
            if stamp == self._inbox.stamp:
                self._state.fail(self._inbox, message_id)
                self._connection.flush()

    # ---- its end

    def close(self) -> None:
        """Close; what was seen and not acknowledged comes again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._session.listening.set(self, None)
        with self._lock:
            if not self._state.is_closed:
                close_inbox(self._connection, self._state, self._inbox)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
