"""Session: where producers and consumers come from, and what a transaction spans (F-B1 to F-B8)."""

from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from hms.client.browse_pages import BrowsePages
from hms.client.browser import Browser
from hms.client.consumer import Consumer
from hms.client.core import current_transaction
from hms.client.core.blocking_connection import Connection
from hms.client.destinations import Destination, Queue, Topic
from hms.client.listener_thread import ListeningThread
from hms.client.opening_steps import Opening, new_session
from hms.client.own_destinations import creating, deleting_temporary, looking_up, making_temporary
from hms.client.pack_building import Body
from hms.client.pending_sends import SendOptions
from hms.client.prefetch_buffer import PrefetchBuffer
from hms.client.producer import Producer
from hms.client.public_names import public_names
from hms.client.receipt import Receipt
from hms.client.send_buffer import Sender
from hms.client.send_options import SendHow
from hms.client.session_members import SessionMembers
from hms.client.session_state import SessionState
from hms.client.xa_resource import HmsResource
from hms.constants import AckMode


class Session(SessionMembers[Producer, Consumer, Browser]):
    """See hms.connect(...).session(). Leaving its block closes it; a transacted one commits first,
    or rolls back when an Exception leaves: a failed attempt of what it received."""

    def __init__(
        self, connection: Connection, state: SessionState, *, is_asynchronous: bool
    ) -> None:
        super().__init__(connection.requests, state, is_asynchronous=is_asynchronous)
        self.connection = connection
        self._driver = connection.driver
        self.listening = ListeningThread(connection.driver, self)
        self._resource: HmsResource | None = None

    def __enter__(self) -> Self:
        return self

    # ---- what it makes

    def _producer(self, sender: Sender, options: SendOptions, opening: Opening) -> Producer:
        self._driver.run(opening.granted(self.requests))
        return Producer(self._driver, self, sender, options)

    def _consumer(self, prefetched: PrefetchBuffer, opening: Opening) -> Consumer:
        self._driver.run(opening.granted(self.requests))
        return Consumer(self._driver, self, prefetched, self.listening)

    def _browser(self, pages: BrowsePages) -> Browser:
        self._driver.run(pages.granted())
        return Browser(self._driver, pages)

    # ---- as in asyncio; made by scripts/generate-client

    def send(
        self,
        dest: Destination | str,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        **how: Unpack[SendHow],
    ) -> Receipt:
        """Send to any destination, as Producer.send() does; a producer for each of the last 64 is
        kept for the next time."""
        receipt = self._producer_to(dest).send(body, properties, **how)
        surplus = self._kept.surplus()
        if surplus is not None:
            surplus.close()
        return receipt

    def commit(self) -> None:
        """Make the transaction's sends and receipts final; TransactionRolledBack if it is lost."""
        self._driver.run(self.committing())

    def rollback(self, why: Exception | None = None) -> None:
        """Drop the transaction's sends and give back what it received; always completes.

        why: what went wrong; the $DeadText of a message whose last attempt this was. With
        hms.Reject the one message that the transaction received is a dead letter at once, with
        hms.Retry it is tried again after that delay; of several each is a failed attempt.
        InvalidArgument.
        """
        self._driver.run(self.rolling_back_for(why))

    def recover(self) -> None:
        """Have all that was not acknowledged delivered again, from the oldest on (F-B8)."""
        self._driver.run(self.recovering())

    def ack(self, *, wait: bool = True) -> None:
        """CLIENT: acknowledge all that this session has consumed so far; waits until durable.

        wait=False goes on at once, so that what is acknowledged meanwhile shares a sync: as in
        AUTO, what a failure leaves in doubt is told to the exception listener, message by message
        (F-K9), and comes again unless it was safe. A later ack() that waits answers for it too.
        """
        self._driver.run(self.acknowledging_all(wait=wait))

    @property
    def resource(self) -> HmsResource:
        """The node as a resource manager, whose branches this XA session works in (F-B6)."""
        if self._resource is None:
            self.state.must_be_xa()
            self._resource = HmsResource(self.connection, self)
        return self._resource

    def unsubscribe(self, topic: Topic | str, name: str, scheme: str = "TOPIC") -> None:
        """End a durable subscription, given as it was made; SubscriptionNotFound."""
        self._driver.run(self.unsubscribing(topic, name, scheme))

    def create_queue(self, text: str) -> Queue:
        """The queue "NAME"; "NAME?export-name=jms/N&max-messages=5" creates it, for as long as the
        node runs (F-C4). DestinationExists, ExportNameInUse."""
        made = self._driver.run(creating(self, "queue", text))
        assert isinstance(made, Queue)
        return made

    def create_topic(self, text: str) -> Topic:
        """The same of a topic."""
        made = self._driver.run(creating(self, "topic", text))
        assert isinstance(made, Topic)
        return made

    def temporary_queue(self) -> Queue:
        """A queue that lives as long as this connection; only it receives from it (F-C6)."""
        made = self._driver.run(making_temporary(self, "queue"))
        assert isinstance(made, Queue)
        return made

    def temporary_topic(self) -> Topic:
        """A topic that lives as long as this connection; only it receives from it (F-C6)."""
        made = self._driver.run(making_temporary(self, "topic"))
        assert isinstance(made, Topic)
        return made

    def delete_temporary(self, destination: Destination) -> None:
        """End a temporary destination now, and what waits in it; DestinationInUse while something
        receives from it."""
        self._driver.run(deleting_temporary(self, destination))

    def lookup(self, export_name: str) -> Destination:
        """The queue or topic with that export name, or that name (F-C7); ExportNameNotFound."""
        return self._driver.run(looking_up(self, export_name))

    def close(self) -> None:
        """Wait for a running listener and for confirmations, settle what was received, close; a
        transaction rolls back. A listener that closes its own session goes on; then its message is
        settled, and the session closes."""
        self.listening.close(self.closing)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.transacted and not self.state.is_closed and error is None:
                self.commit()
        finally:
            self.listening.close(partial(self.closing, left_by=error))

    def __dir__(self) -> list[str]:
        return public_names(self)

    # ---- end of what is made


def open_session(
    connection: Connection,
    *,
    ack: AckMode = AckMode.AUTO,
    is_transacted: bool = False,
    is_xa: bool = False,
    is_asynchronous: bool = False,
) -> Session:
    """A session on any connection, also on the one of tpstart(); IllegalState, NotSupported."""
    with connection.lock:
        connection.requests.check_open()
        state, opening = new_session(
            connection.link,
            ack,
            is_transacted=is_transacted,
            is_xa=is_xa,
            is_asynchronous=is_asynchronous,
        )
        connection.flush()
    connection.run(opening.granted(connection.requests))
    session = Session(connection, state, is_asynchronous=is_asynchronous)
    if is_xa:
        current_transaction.opened(session)
    return session
