"""Session: where producers and consumers come from, and what a transaction spans (F-B1 to F-B8)."""

from collections.abc import Callable
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Self

from field_buffer.catalogue import (
    ConnectionClosed,
    IllegalState,
    InvalidArgument,
    NotSupported,
    SubscriptionNotFound,
    TransactionRolledBack,
)
from hms.client.browser import Browser
from hms.client.consumer import Consumer, now_ms, open_inbox
from hms.client.destinations import Destination, Queue, Topic, parse_destination
from hms.client.inbox import Inbox
from hms.client.listening import Listening
from hms.client.producer import Producer
from hms.client.sending import Sender
from hms.client.session_state import SessionState
from hms.client.streaming import send_options
from hms.constants import AckMode
from tpmon.asked import OnLoss, Pending
from tpmon.client import Connection
from tpmon.link import State
from tpmon.protocol.structures import OpenConsumer, OpenProducer, Unsubscribe

PREFETCH = 1000


class Session:
    """See hms.connect(...).session(). Leaving its block closes it; a transacted one commits first,
    or rolls back when an exception leaves."""

    def __init__(
        self, connection: Connection, state: SessionState, *, is_asynchronous: bool
    ) -> None:
        self.connection = connection
        self.state = state
        self.is_asynchronous = is_asynchronous
        self.listening = Listening(self)
        with connection.lock:
            connection.answer_to(state.open())

    @property
    def transacted(self) -> bool:
        """Whether its work takes effect at commit() only."""
        return self.state.is_transacted

    @property
    def ack_mode(self) -> AckMode:
        """How received messages are acknowledged."""
        return self.state.ack_mode

    # ---- what it makes

    def producer(
        self,
        dest: Destination | str,
        *,
        persistent: bool = True,
        ttl_s: float = 0,
        priority: int = 4,
        delay_s: float = 0,
        name: str = "",
    ) -> Producer:
        """A producer for a queue or topic; ttl_s 0: its messages never expire."""
        if delay_s:
            raise NotSupported(feature="delay_s", instead="Send the message when it is due.")
        options = send_options(persistent=persistent, ttl_s=ttl_s, priority=priority)
        destination = parse_destination(dest)
        connection, state = self.connection, self.state
        with connection.lock:
            self.check_open()
            link = connection.link
            number = link.new_handle()
            opening = OpenProducer(number, state.number, destination.kind, destination.name, name)
            sender = Sender(link, number, destination, monotonic, is_transacted=state.is_transacted)
            register = partial(state.register, sender, opening)
            pending = Pending("OpenProducer", OnLoss.REPEAT, then=register)
            connection.answer_to(link.request(opening, pending))
        return Producer(self, sender, options)

    def consumer(
        self,
        dest: Destination | str,
        *,
        selector: str | None = None,
        prefetch: int = PREFETCH,
        name: str = "",
        listener: str | None = None,
    ) -> Consumer:
        """A consumer of a queue, or a non-durable subscriber of a topic.

        prefetch: how many messages may be on their way to it; listener: the service to be called
        for every message, in an asynchronous session. SelectorSyntaxError, DestinationNotFound.
        """
        destination = parse_destination(dest)
        return self._consume(destination, selector, prefetch, name, listener)

    def subscriber(
        self,
        topic: Topic | str,
        *,
        durable: str | None = None,
        selector: str | None = None,
        no_local: bool = False,
        prefetch: int = PREFETCH,
        name: str = "",
        listener: str | None = None,
    ) -> Consumer:
        """A subscriber; durable: the name of a subscription that outlives it. no_local: not what
        this connection publishes. DurableNameInUse."""
        destination = Topic(topic.removeprefix("topic:")) if isinstance(topic, str) else topic
        if not isinstance(destination, Topic):
            raise InvalidArgument(what="subscriber()", detail=f"{destination} is not a topic")
        return self._consume(
            destination, selector, prefetch, name, listener, durable=durable, no_local=no_local
        )

    def _consume(
        self,
        destination: Destination,
        selector: str | None,
        prefetch: int,
        name: str,
        listener: str | None,
        durable: str | None = None,
        no_local: bool = False,
    ) -> Consumer:
        if bool(listener) is not self.is_asynchronous:
            detail = "a listener service belongs to an asynchronous session, and only to one"
            raise IllegalState(what="consumer()", detail=detail)
        connection, state = self.connection, self.state
        with connection.lock:
            self.check_open()
            opening = OpenConsumer(
                connection.link.new_handle(),
                state.number,
                destination.kind,
                destination.name,
                max(1, min(prefetch, connection.link.limits.prefetch_max)),
                name,
                selector or "",
                durable or "",
                no_local,
                listener or "",
            )
            inbox = Inbox(connection.link, opening, destination, now_ms, self)
            open_inbox(connection, state, inbox)
        return Consumer(self, inbox)

    def browser(
        self, queue: Queue | str, selector: str | None = None, oldest_first: bool = False
    ) -> Browser:
        """Look at the waiting messages of a queue without taking any; newest first (F-G1)."""
        destination = parse_destination(queue)
        if not isinstance(destination, Queue):
            raise InvalidArgument(what="browser()", detail=f"{destination} is not a queue")
        self.check_open()
        return Browser(self.connection, destination, selector or "", is_oldest_first=oldest_first)

    def unsubscribe(self, topic: Topic | str, name: str) -> None:
        """End a durable subscription; SubscriptionNotFound."""
        topic_name = topic.name if isinstance(topic, Topic) else topic.removeprefix("topic:")
        pending = Pending("Unsubscribe", OnLoss.REPEAT)
        with self.connection.lock:
            self.check_open()
            self.connection.link.request(Unsubscribe(topic_name, name), pending)
            try:
                self.connection.answer_to(pending)
            except SubscriptionNotFound:
                if not pending.is_repeated:  # else the first one, whose reply was lost, ended it
                    raise

    # ---- transactions and acknowledgement

    def commit(self) -> None:
        """Make the transaction's sends and receipts final; TransactionRolledBack if it is lost."""
        state, connection = self.state, self.connection
        with connection.lock:
            self.check_open()
            state.must_be_transacted("commit()")
            self.wait_for_sends()
            if state.is_doomed:
                self._roll_back()
                raise TransactionRolledBack(reason="the connection was lost while it was open")
            pending = state.commit()
            if pending is None:
                return
            try:
                connection.answer_to(pending)
            finally:
                state.forget_commit()

    def rollback(self) -> None:
        """Drop the transaction's sends and give back what it received; always completes."""
        with self.connection.lock:
            self.check_open()
            self.state.must_be_transacted("rollback()")
            self._roll_back()

    def _roll_back(self) -> None:
        self.wait_for_sends(is_enough=lambda: not self.connection.is_connected)
        pending = self.state.rollback()
        if pending is not None:
            self.connection.answer_to(pending)

    def recover(self) -> None:
        """Have all that was not acknowledged delivered again, from the oldest on (F-B8)."""
        with self.connection.lock:
            self.check_open()
            self.state.must_be_transacted("recover()", wanted=False)
            pending = self.state.recover()
            if pending is not None:
                self.connection.answer_to(pending)

    def ack(self) -> None:
        """CLIENT: acknowledge all that this session has consumed so far; waits until durable."""
        with self.connection.lock:
            self.check_open()
            if self.state.ack_mode is not AckMode.CLIENT:
                raise IllegalState(what="ack()", detail="the session acknowledges by itself")
            self.state.check_nothing_lost()
            seen = [(inbox, list(inbox.seen)) for inbox in self.state.inboxes.values()]
            self._acknowledge(seen)

    def acknowledge(self, inbox: Inbox, message_id: int, *, is_upthrough: bool) -> None:
        """CLIENT: acknowledge this message, or all of its consumer that were consumed up to it."""
        with self.connection.lock:
            seen = list(inbox.seen) if is_upthrough else [message_id]
            upto = seen.index(message_id) + 1 if message_id in seen else 0
            self._acknowledge([(inbox, seen[:upto])])

    def _acknowledge(self, seen: list[tuple[Inbox, list[int]]]) -> None:
        pending = self.state.acknowledge(seen)
        if pending is not None:
            self.connection.answer_to(pending)

    # ---- its end

    def close(self) -> None:
        """Wait for confirmations, settle what was received, close; a transaction rolls back."""
        connection, state = self.connection, self.state
        self.listening.stop()
        with connection.lock:
            if state.is_closed:
                return
            self.wait_for_sends(is_enough=lambda: connection.link.state is State.ENDED)
            pending = state.close()
            if connection.link.state is State.ENDED:
                return
            connection.answer_to(pending)

    def check_open(self) -> None:
        """ConnectionClosed when it is not."""
        if self.state.is_closed:
            raise ConnectionClosed(what="session")

    def wait_for_sends(self, is_enough: Callable[[], bool] = bool) -> None:
        """Until all of its sends have their outcome, lock held."""
        connection = self.connection
        senders = [sender for sender, _ in self.state.senders.values()]
        for sender in senders:
            sender.push()
        connection.flush()
        deadline = monotonic() + connection.request_timeout_s

        def is_settled() -> bool:
            return is_enough() or all(sender.is_idle for sender in senders)

        if not connection.wait_for(connection.link, is_settled, deadline):
            raise connection.too_late("send", connection.request_timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.state.is_transacted and not self.state.is_closed and error is None:
                self.commit()
        finally:
            self.close()


def open_session(
    connection: Connection,
    *,
    ack: AckMode = AckMode.AUTO,
    is_transacted: bool = False,
    is_xa: bool = False,
    is_asynchronous: bool = False,
) -> Session:
    """A session on any connection, also on the one of tpstart(); IllegalState, NotSupported."""
    mode = AckMode(ack)
    if is_xa:
        raise NotSupported(feature="an XA session", instead="Use a transacted session.")
    if mode not in (AckMode.AUTO, AckMode.CLIENT):
        raise NotSupported(feature=f"AckMode.{mode.name}", instead="Use AckMode.AUTO or CLIENT.")
    if mode is AckMode.CLIENT and (is_transacted or is_asynchronous):
        kind = "a transacted" if is_transacted else "an asynchronous"
        raise IllegalState(what="session()", detail=f"{kind} session acknowledges by itself")
    if is_transacted and is_asynchronous:
        raise IllegalState(what="session()", detail="it cannot be transacted and asynchronous")
    state = SessionState(
        connection.link, mode, is_transacted=is_transacted, is_asynchronous=is_asynchronous
    )
    return Session(connection, state, is_asynchronous=is_asynchronous)
