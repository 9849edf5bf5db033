"""context(): connection and session in one object, for the simple case (F-B9, JMSContext)."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from hms.client.browser import Browser
from hms.client.connection import Connection, connect
from hms.client.consumer import Consumer
from hms.client.context_parts import ContextParts, Sharing, session_kind
from hms.client.destinations import Destination, Topic, parse_destination, place_of
from hms.client.message import Message
from hms.client.pack_building import Body
from hms.client.producer import Producer
from hms.client.public_names import public_names
from hms.client.receipt import Receipt
from hms.client.session import Session
from hms.constants import AckMode


class JMSContext(ContextParts[Producer, Consumer, Browser]):
    """One connection with one session; producers and consumers are made when first needed.

    Leaving its block commits if it is transacted (an exception rolls back), and closes all.
    """

    session: Session

    def __init__(
        self, connection: Connection, session: Session, sharing: Sharing | None = None
    ) -> None:
        super().__init__(sharing)
        self.connection = connection
        self.session = session

    def context(self, *, ack: AckMode | None = None, transacted: bool = False) -> "JMSContext":
        """A further context on the same connection, with a session of its own; the connection is
        closed with the last of them."""
        session = self.connection.session(**session_kind(ack, transacted))
        return JMSContext(self.connection, session, self._sharing.joined())

    def receive(
        self,
        dest: Destination | str,
        timeout_s: float | None = None,
        *,
        selector: str | None = None,
    ) -> Message | None:
        """The next message, or None when the time is over."""
        destination = parse_destination(dest)
        key = place_of(destination), selector
        if key not in self._consumers:
            self._consumers[key] = self.session.consumer(destination, selector=selector)
        return self._consumers[key].receive(timeout_s)

    def close(self) -> None:
        """Close the session and the connection."""
        try:
            self.session.close()
        finally:
            self._leave()

    def __enter__(self) -> Self:
        return self

    # ---- as in asyncio; made by scripts/generate-client

    def __dir__(self) -> list[str]:
        return public_names(self)

    def _leave(self, kind: type[BaseException] | None = None) -> None:
        if self._is_last():
            self.connection.__exit__(kind, None, None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.session.__exit__(kind, error, trace)
        finally:
            self._leave(kind)

    def send(
        self,
        dest: Destination | str,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Receipt:
        """Send a message; options as of Producer.send."""
        return self.session.send(dest, body, properties, **options)

    def unsubscribe(self, topic: Topic | str, name: str) -> None:
        """End a durable subscription; SubscriptionNotFound."""
        self.session.unsubscribe(topic, name)

    def ack(self, *, wait: bool = True) -> None:
        """CLIENT: acknowledge all that was received so far; wait as in Session.ack()."""
        self.session.ack(wait=wait)

    def recover(self) -> None:
        """Have all that was not acknowledged delivered again."""
        self.session.recover()

    def commit(self) -> None:
        """Commit its session."""
        self.session.commit()

    def rollback(self) -> None:
        """Roll its session back."""
        self.session.rollback()

    # ---- end of what is made


def context(
    address: str | Sequence[str] | None = None,
    *,
    ack: AckMode | None = None,
    transacted: bool = False,
    profile: str | None = None,
    **options: Any,
) -> JMSContext:
    """Connect and open a session; options as of hms.connect(). ack None: as the profile says, else
    AUTO."""
    connection = connect(address, profile=profile, **options)
    try:
        return JMSContext(connection, connection.session(**session_kind(ack, transacted)))
    except BaseException:
        connection.close()
        raise
