"""context(): connection and session in one object, for the simple case (F-B9, JMSContext)."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from hms.client.aio.browser import Browser
from hms.client.aio.connection import Connection, connect
from hms.client.aio.consumer import Consumer
from hms.client.aio.producer import Producer
from hms.client.aio.session import Session
from hms.client.context_parts import ContextParts, Sharing, session_kind
from hms.client.destinations import Destination, Topic, parse_destination, place_of
from hms.client.message import Message
from hms.client.pack_building import Body
from hms.client.public_names import public_names
from hms.client.receipt import Receipt
from hms.constants import AckMode
from hms.errors.catalogue import IllegalState

_K = TypeVar("_K")
_T = TypeVar("_T")


class JMSContext(ContextParts[Producer, Consumer, Browser]):
    """One connection with one session; producers and consumers are made when first needed.

    Leaving its block commits if it is transacted (an exception rolls back), and closes all.
    """

    def __init__(
        self,
        connection: Connection,
        ack: AckMode | None,
        *,
        is_transacted: bool,
        sharing: Sharing | None = None,
    ) -> None:
        super().__init__(sharing)
        self.connection = connection
        self._kind = session_kind(ack, is_transacted)
        self._session: Session | None = None
        self._making = asyncio.Lock()

    @property
    def session(self) -> Session:  # type: ignore[override]  # there is none before it is awaited
        """Its session; IllegalState before it was awaited."""
        if self._session is None:
            raise IllegalState(what="the context", detail="it was not awaited, so it is not open")
        return self._session

    def context(self, *, ack: AckMode | None = None, transacted: bool = False) -> "JMSContext":
        """A further context on the same connection, with a session of its own: await it, or enter
        its block. The connection is closed with the last of them."""
        sharing = self._sharing.joined()
        return JMSContext(self.connection, ack, is_transacted=transacted, sharing=sharing)

    def __dir__(self) -> list[str]:
        return public_names(self)

    # ---- open and close

    async def open(self) -> Self:
        """Connect and open the session; ConnectionRefused, or the node's own refusal."""
        await self.connection.open()
        if self._session is None:
            try:
                self._session = await self.connection.session(**self._kind)
            except BaseException:
                await self._leave()
                raise
        return self

    async def close(self) -> None:
        """Close the session and the connection."""
        try:
            if self._session is not None:
                await self._session.close()
        finally:
            await self._leave()

    async def _leave(self, kind: type[BaseException] | None = None) -> None:
        if self._is_last():
            await self.connection.__aexit__(kind, None, None)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.session.__aexit__(kind, error, trace)
        finally:
            await self._leave(kind)

    # ---- messages

    async def send(
        self,
        dest: Destination | str,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Receipt:
        """Send a message; options as of Producer.send."""
        return await self.session.send(dest, body, properties, **options)

    async def receive(
        self,
        dest: Destination | str,
        timeout_s: float | None = None,
        *,
        selector: str | None = None,
    ) -> Message | None:
        """The next message, or None when the time is over. Cancelled, it has taken none."""
        destination, make = parse_destination(dest), self.session.consumer
        consumer = await self._made(
            self._consumers,
            (place_of(destination), selector),
            lambda: make(destination, selector=selector),
        )
        return await consumer.receive(timeout_s)

    async def _made(self, known: dict[_K, _T], key: _K, make: Callable[[], Awaitable[_T]]) -> _T:
        """What is known, or made now by one task for all; what was refused is not kept."""
        if key not in known:
            async with self._making:
                if key not in known:
                    known[key] = await make()
        return known[key]

    # ---- the session

    async def unsubscribe(self, topic: Topic | str, name: str) -> None:
        """End a durable subscription; SubscriptionNotFound."""
        await self.session.unsubscribe(topic, name)

    async def ack(self, *, wait: bool = True) -> None:
        """CLIENT: acknowledge all that was received so far; wait as in Session.ack()."""
        await self.session.ack(wait=wait)

    async def recover(self) -> None:
        """Have all that was not acknowledged delivered again."""
        await self.session.recover()

    async def commit(self) -> None:
        """Commit its session."""
        await self.session.commit()

    async def rollback(self) -> None:
        """Roll its session back."""
        await self.session.rollback()


def context(
    address: str | Sequence[str] | None = None,
    *,
    ack: AckMode | None = None,
    transacted: bool = False,
    profile: str | None = None,
    **options: Any,
) -> JMSContext:
    """A connection with a session: await it, or enter its block; options as of connect(). ack None:
    as the profile says, else AUTO."""
    connection = connect(address, profile=profile, **options)
    return JMSContext(connection, ack, is_transacted=transacted)
