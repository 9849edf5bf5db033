"""Making: the producers, consumers, subscribers and browsers of a session."""

from typing import TYPE_CHECKING, Any, cast

from field_buffer.catalogue import (
    ConnectionClosed,
    IllegalState,
    InvalidArgument,
    NotSupported,
    SubscriptionNotFound,
)
from hms.client.browser import Browser
from hms.client.consumer import Consumer
from hms.client.destinations import Destination, Queue, Topic, parse_destination
from hms.client.opening import open_inbox, open_sender
from hms.client.producer import Producer
from hms.client.session_state import SessionState
from hms.client.streaming import send_options
from tpmon.asked import OnLoss, Pending
from tpmon.client import Connection
from tpmon.protocol.structures import OpenConsumer, Unsubscribe

if TYPE_CHECKING:
    from hms.client.session import Session

PREFETCH = 1000


class Making:
    """What a session makes; a Session is one of these."""

    connection: Connection
    state: SessionState
    is_asynchronous: bool

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
        with self.connection.lock:
            self.check_open()
            sender = open_sender(self.connection, self.state, destination, name)
        return Producer(cast("Session", self), sender, options)

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
        return self._consume(
            destination, prefetch, name=name, selector=selector or "", listener=listener or ""
        )

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
            destination,
            prefetch,
            name=name,
            selector=selector or "",
            durable=durable or "",
            is_no_local=no_local,
            listener=listener or "",
        )

    def _consume(self, destination: Destination, prefetch: int, **options: Any) -> Consumer:
        """A consumer; options: the further fields of OpenConsumer."""
        if bool(options["listener"]) is not self.is_asynchronous:
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
                **options,
            )
            inbox = open_inbox(connection, state, opening, destination, self)
        return Consumer(cast("Session", self), inbox)

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

    def check_open(self) -> None:
        """ConnectionClosed when it is not."""
        if self.state.is_closed:
            raise ConnectionClosed(what="session")
