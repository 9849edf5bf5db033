"""Consumer: receives from one queue, topic or durable subscription."""

import os
from collections.abc import Iterator
from typing import BinaryIO, Self

from hms.client.consumer_steps import Acknowledge, ConsumerSteps, Listener, check_count
from hms.client.core import tracing
from hms.client.core.thread_driver import ThreadDriver
from hms.client.file_bodies import FileInfo
from hms.client.listener_thread import ListeningThread
from hms.client.message import Message
from hms.client.prefetch_buffer import PrefetchBuffer, Stamp
from hms.client.public_names import public_names
from hms.client.session_steps import SessionSteps
from hms.errors.catalogue import ConnectionClosed

__all__ = ["Acknowledge", "Consumer"]


class Consumer(ConsumerSteps):
    """See Session.consumer(). Iterating ends when the consumer or session is closed."""

    def __init__(
        self,
        driver: ThreadDriver,
        session: SessionSteps,
        prefetched: PrefetchBuffer,
        listening: ListeningThread,
    ) -> None:
        super().__init__(session, prefetched)
        self._driver = driver
        self._listening = listening

    @property
    def _is_in_listener(self) -> bool:
        return self._listening.is_current

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when the time is over. Without a time it waits forever, but no
        longer than request_timeout_s through an outage (F-K8): ConnectionLost."""
        driver = self._driver
        if tracing.tracer is not None:
            return driver.run(self.traced(self.receiving(timeout_s)))
        if self._prefetched.buffer:  # looked at again under the lock
            with driver.lock:
                message = self.at_hand()
                if message is not None:
                    return message
                message = self.taken()
                if message is not None:
                    driver.flush()
                    return message
        return driver.run(self.receiving(timeout_s))

    def receive_many(self, count: int, timeout_s: float | None = None) -> list[Message]:
        """Up to `count` messages in order: waits for the first as receive() does, and takes what
        is here behind it, which is never more than was prefetched. Empty when the time is over.

        What is said of a message that was received holds for each: AUTO acknowledges them now, so
        a program that may fail between them acknowledges by hand or uses a transaction.
        A file or a gathered group only ever comes first. InvalidArgument for a count
        below one.
        """
        check_count(count)
        driver = self._driver
        if tracing.tracer is not None:
            return driver.run(self.traced(self.receiving_many(count, timeout_s)))
        with driver.lock:
            first = self.at_hand() or self.taken()
            if first is not None:
                found = self.with_more(first, count)
                driver.flush()
                return found
        return driver.run(self.receiving_many(count, timeout_s))

    def listen(self, listener: Listener | None) -> None:
        """Have a function called for every message, one at a time per session, in order, on a
        thread of the session. It is acknowledged when the function returns; when it raises, the
        message comes again, or the transaction is rolled back. None: no longer."""
        self._listening.set(self, listener)

    def close(self) -> None:
        """Close, when its running listener has ended; a listener that closes its own consumer goes
        on, and then its message is settled."""
        with self._driver.lock:  # not during a receive
            if self._is_closed:
                return
            self._is_closed = True
        self._listening.close(self.closing, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ---- as in asyncio; made by scripts/generate-client

    def receive_nowait(self) -> Message | None:
        """The next message; None when the node has none for this consumer: it is asked."""
        return self.receive(0)

    def __iter__(self) -> Iterator[Message]:
        while not self.is_over:
            try:
                message = self.receive()
            except ConnectionClosed:
                return
            if message is not None:
                yield message

    def acknowledge(self, stamp: Stamp, message: Message, *, is_upthrough: bool) -> None:
        """What `message.ack()` does."""
        self._driver.run(self.acknowledging(stamp, message, is_upthrough=is_upthrough))

    def save(
        self, message: Message, info: FileInfo, target: "str | os.PathLike[str] | BinaryIO"
    ) -> None:
        """What `message.save()` does."""
        self._driver.run(self.saving(message, info, target))

    def request_retained(self) -> int:
        """Have the topic's retained publications delivered, again or for the first time; how many.
        NoRetainedMessage."""
        return self._driver.run(self.requesting_retained())

    def __dir__(self) -> list[str]:
        return public_names(self)

    # ---- end of what is made
