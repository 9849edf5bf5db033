"""Producer: sends to one queue or topic."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Self

from hms.client.producer_steps import ProducerSteps
from hms.client.receipt import Receipt, Receipts
from hms.client.streaming import Body
from tpmon.client import Connection


class Producer(ProducerSteps):
    """See Session.producer()."""

    _connection: Connection

    def send(
        self,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        *,
        persistent: bool | None = None,
        ttl_s: float | None = None,
        priority: int | None = None,
        retain: bool | None = None,
    ) -> Receipt:
        """Send and wait until the node has it; a str is a text; retain: the topic keeps
        it for later subscribers. MessageTooLarge, QueueFull. In a
        session with AckMode.NONE it does not wait, and the receipt has no message_id."""
        encoded, ticket = self.prepared(body, properties, (persistent, ttl_s, priority, retain))
        return self._connection.run(self.sending(encoded, ticket))

    def send_async(
        self,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        *,
        persistent: bool | None = None,
        ttl_s: float | None = None,
        priority: int | None = None,
        retain: bool | None = None,
    ) -> "Future[Receipt]":
        """Send without waiting; order is kept. Blocks only while the window is full (F-D6)."""
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()
        how = persistent, ttl_s, priority, retain
        encoded, ticket = self.prepared(body, properties, how, future)
        connection = self._connection
        with connection.lock:
            is_added = self.added(encoded, ticket)
            connection.flush()
        if not is_added:
            connection.run(self.adding(encoded, ticket))
        return future

    def send_many(self, bodies: Iterable[Body]) -> Receipts:
        """Send all, pipelined, and wait until the node has them.

        The first error is raised after the rest of what is on its way is settled; its attribute
        `receipts` then has a Receipt or None for each message that was sent.
        """
        return self._connection.run(self.sending_many(bodies))

    def close(self) -> None:
        """Wait for the confirmation of what was sent, and close."""
        self._connection.run(self.closing())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
