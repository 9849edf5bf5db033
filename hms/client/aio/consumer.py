"""Consumer: receives from one queue, topic or durable subscription."""

import os
from collections.abc import AsyncIterator, Awaitable
from typing import BinaryIO

from hms.client.aio.listener_task import ListeningTask
from hms.client.aio.opened import Opened
from hms.client.consumer_steps import ConsumerSteps, Listener, check_count
from hms.client.core import tracing
from hms.client.core.loop_driver import LoopDriver
from hms.client.file_bodies import FileInfo
from hms.client.message import Message
from hms.client.opening_steps import Opening
from hms.client.prefetch_buffer import PrefetchBuffer, Stamp
from hms.client.public_names import public_names
from hms.client.session_steps import SessionSteps
from hms.errors.catalogue import ConnectionClosed


class Consumer(Opened, ConsumerSteps):
    """See Session.consumer(). Iterating ends when the consumer or session is closed."""

    def __init__(
        self,
        driver: LoopDriver,
        session: SessionSteps,
        prefetched: PrefetchBuffer,
        opening: Opening,
        listening: ListeningTask,
    ) -> None:
        super().__init__(session, prefetched)
        self._driver = driver
        self._listening = listening
        self._opening = opening

    @property
    def _is_in_listener(self) -> bool:
        return self._listening.is_current

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when the time is over. Cancelled, it has taken none. Without a
        time it waits forever, but no longer than request_timeout_s through an outage (F-K8)."""
        steps = self.receiving(timeout_s)
        return await self._driver.run(steps if tracing.tracer is None else self.traced(steps))

    async def receive_nowait(self) -> Message | None:
        """The next message; None when the node has none for this consumer: it is asked."""
        return await self.receive(0)

    async def receive_many(self, count: int, timeout_s: float | None = None) -> list[Message]:
        """Up to `count` messages in order: waits for the first, and takes what is here behind it;
        empty when the time is over. Cancelled, it has taken none. AUTO acknowledges all of them
        now. A file or a gathered group only ever comes first. InvalidArgument."""
        check_count(count)
        steps = self.receiving_many(count, timeout_s)
        return await self._driver.run(steps if tracing.tracer is None else self.traced(steps))

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self.is_over:
            try:
                message = await self.receive()
            except ConnectionClosed:
                return
            if message is not None:
                yield message

    async def acknowledge(self, stamp: Stamp, message: Message, *, is_upthrough: bool) -> None:
        """What `await message.ack()` does."""
        await self._driver.run(self.acknowledging(stamp, message, is_upthrough=is_upthrough))

    async def save(
        self, message: Message, info: FileInfo, target: "str | os.PathLike[str] | BinaryIO"
    ) -> None:
        """What `await message.save()` does."""
        await self._driver.run(self.saving(message, info, target))

    async def request_retained(self) -> int:
        """Have the topic's retained publications delivered, again or for the first time; how many.
        NoRetainedMessage."""
        return await self._driver.run(self.requesting_retained())

    def listen(self, listener: Listener | None) -> Awaitable[None]:
        """Have a function or coroutine function called for every message, one at a time per
        session, in order. The message is acknowledged when it ends well; when it raises, the
        message comes again, or the transaction is rolled back. None: no longer; who awaits that
        waits until the last call has ended."""
        return self._listening.set(self, listener)

    async def close(self) -> None:
        """Close, when its running listener has ended; a listener that closes its own consumer goes
        on, and then its message is settled."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._listening.close(self.closing, self)

    def __dir__(self) -> list[str]:
        return public_names(self)
