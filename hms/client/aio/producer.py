"""Producer: sends to one queue or topic."""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Unpack

from hms.client.aio.opened import Opened
from hms.client.core.loop_driver import LoopDriver
from hms.client.message import Message
from hms.client.opening_steps import Opening
from hms.client.pack_building import Body
from hms.client.pending_sends import SendOptions
from hms.client.producer_steps import ProducerSteps
from hms.client.public_names import public_names
from hms.client.receipt import Receipt, Receipts
from hms.client.schedules import Recurrence, Schedule
from hms.client.send_buffer import Sender
from hms.client.send_options import SendHow
from hms.client.session_steps import SessionSteps
from hms.constants import BodyKind
from hms.errors.catalogue import TooManyRequests

WAITING_MAX = 16_384
"""The most messages of send_async() that may wait for room."""


class Producer(Opened, ProducerSteps):
    """See Session.producer()."""

    def __init__(
        self,
        driver: LoopDriver,
        session: SessionSteps,
        sender: Sender,
        options: SendOptions,
        opening: Opening,
    ) -> None:
        super().__init__(session, sender, options)
        self._driver = driver
        self._opening = opening

    async def send(
        self,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        **how: Unpack[SendHow],
    ) -> Receipt:
        """Send and wait until the node has it; a str is a text; how: see SendHow.
        MessageTooLarge, QueueFull. When it
        is cancelled, the message has been sent or not. In a session with AckMode.NONE it does not
        wait, and the receipt has no message_id."""
        if isinstance(body, Message) and body.kind is BodyKind.FILE:
            return await self._driver.run(self.sending_file(body, properties, how))
        encoded, send = self.prepared(body, properties, how)
        return await self._driver.run(self.sending(encoded, send))

    def send_async(
        self,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        **how: Unpack[SendHow],
    ) -> "asyncio.Future[Receipt]":
        """Send without waiting; order is kept (F-D6). Await the futures, or some of them: when
        16,384 messages wait for room it raises TooManyRequests."""
        future: asyncio.Future[Receipt] = self._driver.event_loop.create_future()
        count = self._sender.waiting_count
        if count >= WAITING_MAX:
            raise TooManyRequests(what="send_async()", count=count, limit=WAITING_MAX)
        self.added(*self.prepared(body, properties, how, future), needs_room=False)
        self._driver.flush()
        return future

    async def send_many(self, bodies: Iterable[Body]) -> Receipts:
        """Send all, pipelined, and wait until the node has them.

        The first error is raised after the rest of what is on its way is settled; its attribute
        `receipts` then has a Receipt or None for each message that was sent.
        """
        return await self._driver.run(self.sending_many(bodies))

    async def schedule(
        self,
        name: str,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        *,
        persistent: bool | None = None,
        ttl_s: float | None = None,
        priority: int | None = None,
        **recurrence: Unpack[Recurrence],
    ) -> Schedule:
        """Have the node send a message again and again, until conn.cancel_schedule(name): see
        Recurrence (F-D4). InvalidSchedule, ScheduleExists, ScheduleLimit, SendInDoubt."""
        how: SendHow = {"persistent": persistent, "ttl_s": ttl_s, "priority": priority}
        return await self._driver.run(self.scheduling(name, body, properties, how, recurrence))

    async def close(self) -> None:
        """Wait for the confirmation of what was sent, and close."""
        await self._driver.run(self.closing())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._driver.run(self.closing(is_hasty=kind is not None))

    def __dir__(self) -> list[str]:
        return public_names(self)
