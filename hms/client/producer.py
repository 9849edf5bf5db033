"""Producer: sends to one queue or topic."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, Unpack

from hms.client.core.thread_driver import ThreadDriver
from hms.client.message import Message
from hms.client.pack_building import Body
from hms.client.pending_sends import PendingSend, SendOptions
from hms.client.producer_steps import ProducerSteps
from hms.client.public_names import public_names
from hms.client.receipt import LaterReceipt, Receipt, Receipts
from hms.client.schedules import Recurrence, Schedule
from hms.client.send_buffer import Sender
from hms.client.send_options import SendHow
from hms.client.session_steps import SessionSteps
from hms.constants import BodyKind


class Producer(ProducerSteps):
    """See Session.producer()."""

    def __init__(
        self, driver: ThreadDriver, session: SessionSteps, sender: Sender, options: SendOptions
    ) -> None:
        super().__init__(session, sender, options)
        self._driver = driver

    def send(
        self,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        **how: Unpack[SendHow],
    ) -> Receipt:
        """Send and wait until the node has it; a str is a text; how: see SendHow.
        MessageTooLarge, QueueFull.

        In a session with AckMode.NONE it does not wait, and the receipt has no message_id. In a
        local transaction a body that is no Message is not waited for either: the receipt waits
        when it is read, and what the send fails with is raised by the next one, or by commit() as
        the cause of TransactionRolledBack."""
        if isinstance(body, Message) and body.kind is BodyKind.FILE:
            return self._driver.run(self.sending_file(body, properties, how))
        encoded, send = self.prepared(body, properties, how)
        if self._is_in_transaction and not send.messages:
            self._driver.run(self.sending_in_transaction(encoded, send))
            return LaterReceipt(lambda: self._driver.run(self.confirmed(send)))
        return self._driver.run(self.sending(encoded, send))

    def send_async(
        self,
        body: Body,
        properties: Mapping[str, Any] | None = None,
        **how: Unpack[SendHow],
    ) -> "Future[Receipt]":
        """Send without waiting; the order of this producer is kept. Blocks only while the window is
        full (F-D6)."""
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()
        encoded, send = self.prepared(body, properties, how, future)
        driver = self._driver
        with driver.lock:
            is_added = self.added(encoded, send)
            driver.flush()
        if not is_added:
            driver.run(self.adding(encoded, send))
        return future

    def submit_packs(self, packs: Iterable[tuple[bytes, int]]) -> list[PendingSend]:
        """Submit packs of messages that were made elsewhere, given with their counts; each becomes
        a frame, taken whole or refused whole. Returns before they are confirmed: see settle()."""
        return self._driver.run(self.submitting_packs(packs))

    def settle(self, sends: list[PendingSend]) -> None:
        """Wait until the node has what was submitted; raises the first error that it had."""
        self._driver.run(self.settling(sends))

    def __enter__(self) -> Self:
        return self

    # ---- as in asyncio; made by scripts/generate-client

    def send_many(self, bodies: Iterable[Body]) -> Receipts:
        """Send all, pipelined, and wait until the node has them.

        The first error is raised after the rest of what is on its way is settled; its attribute
        `receipts` then has a Receipt or None for each message that was sent.
        """
        return self._driver.run(self.sending_many(bodies))

    def schedule(
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
        return self._driver.run(self.scheduling(name, body, properties, how, recurrence))

    def close(self) -> None:
        """Wait for the confirmation of what was sent, and close."""
        self._driver.run(self.closing())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._driver.run(self.closing(is_hasty=kind is not None))

    def __dir__(self) -> list[str]:
        return public_names(self)

    # ---- end of what is made
