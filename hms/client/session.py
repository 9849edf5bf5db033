"""Session: where producers and consumers come from, and what a transaction spans (F-B1 to F-B8)."""

from types import TracebackType
from typing import Self

from hms.client.browser import Browser
from hms.client.consumer import Consumer
from hms.client.destinations import Topic
from hms.client.inbox import Inbox
from hms.client.listening_thread import ListeningThread
from hms.client.making import Making
from hms.client.opening import Opening, new_session
from hms.client.pages import Pages
from hms.client.producer import Producer
from hms.client.sending import Sender
from hms.client.session_state import SessionState
from hms.client.tickets import SendOptions
from hms.constants import AckMode
from tpmon.client import Connection


class Session(Making[Producer, Consumer, Browser]):
    """See hms.connect(...).session(). Leaving its block closes it; a transacted one commits first,
    or rolls back when an exception leaves."""

    connection: Connection

    def __init__(
        self, connection: Connection, state: SessionState, *, is_asynchronous: bool
    ) -> None:
        super().__init__(connection, state, is_asynchronous=is_asynchronous)
        self.listening = ListeningThread(self)

    def commit(self) -> None:
        """Make the transaction's sends and receipts final; TransactionRolledBack if it is lost."""
        self.connection.run(self.committing())

    def rollback(self) -> None:
        """Drop the transaction's sends and give back what it received; always completes."""
        self.connection.run(self.rolling_back())

    def recover(self) -> None:
        """Have all that was not acknowledged delivered again, from the oldest on (F-B8)."""
        self.connection.run(self.recovering())

    def ack(self) -> None:
        """CLIENT: acknowledge all that this session has consumed so far; waits until durable."""
        self.connection.run(self.acknowledging_all())

    def unsubscribe(self, topic: Topic | str, name: str, scheme: str = "TOPIC") -> None:
        """End a durable subscription, given as it was made; SubscriptionNotFound."""
        self.connection.run(self.unsubscribing(topic, name, scheme))

    def close(self) -> None:
        """Wait for confirmations, settle what was received, close; a transaction rolls back."""
        self.listening.stop()
        self.connection.run(self.closing())

    def __enter__(self) -> Self:
        return self

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
            self.close()

    # ---- what it makes

    def _producer(self, sender: Sender, options: SendOptions, opening: Opening) -> Producer:
        self.connection.run(opening.granted(self.connection))
        return Producer(self, sender, options)

    def _consumer(self, inbox: Inbox, opening: Opening) -> Consumer:
        self.connection.run(opening.granted(self.connection))
        return Consumer(self, inbox)

    def _browser(self, pages: Pages) -> Browser:
        self.connection.run(pages.granted())
        return Browser(self.connection, pages)


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
        state, opening = new_session(
            connection.link,
            ack,
            is_transacted=is_transacted,
            is_xa=is_xa,
            is_asynchronous=is_asynchronous,
        )
        connection.flush()
    connection.run(opening.granted(connection))
    return Session(connection, state, is_asynchronous=is_asynchronous)
