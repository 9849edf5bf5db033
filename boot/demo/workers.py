"""Consumers that keep books: what they saw, and whether a second copy was flagged as such."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import hms
from hms.client.connection import Connection
from hms.client.message import Message

BATCH = 100


class Seen:
    """Message ids that were handled; a repeated one must say that it is redelivered."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.repeated = 0
        self.unflagged: list[str] = []

    def add(self, message_id: str, is_redelivered: bool) -> None:
        """A message was handled."""
        if message_id in self.ids:
            self.repeated += 1
            if not is_redelivered:
                self.unflagged.append(message_id)
        self.ids.add(message_id)

    def add_message(self, message: Message) -> None:
        """A message was handled."""
        assert message.message_id is not None
        self.add(message.message_id, message.redelivered)


def read_handled(file: Path) -> Seen:
    """What the service process says it handled."""
    seen = Seen()
    for line in file.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        seen.add(entry["id"], entry["redelivered"])
    return seen


class Worker:
    """A consumer in a thread of its own with a connection of its own, until it is told to stop."""

    def __init__(
        self, address: str | Sequence[str], work: Callable[[Connection, "Worker"], None]
    ) -> None:
        self.seen = Seen()
        self.messages: list[Message] = []
        self.is_stopping = False
        self.fault: BaseException | None = None
        self._address = address
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Stop, and raise what went wrong in the thread."""
        self.is_stopping = True
        self._thread.join(timeout_s)
        if self.fault is not None:
            raise self.fault
        assert not self._thread.is_alive(), "a consumer of the demonstration does not end"

    def _run(self) -> None:
        try:
            with hms.connect(self._address, profile="", reconnect_interval_s=0.5) as connection:
                self._work(connection, self)
        except BaseException as fault:  # noqa: BLE001 - finish() raises it where it is seen
            self.fault = fault


def transacted(queue: str) -> Callable[[Connection, Worker], None]:
    """Takes messages in transactions; what was rolled back comes again."""

    def work(connection: Connection, worker: Worker) -> None:
        session = connection.session(transacted=True)
        consumer = session.consumer(hms.Queue(queue))
        while True:
            batch = _take(consumer.receive, BATCH)
            try:
                session.commit()
            except hms.TransactionRolledBack:
                continue
            for message in batch:
                worker.seen.add_message(message)
            if worker.is_stopping and not batch:
                return

    return work


def client_acknowledged(queue: str, count: int) -> Callable[[Connection, Worker], None]:
    """Takes about so many messages and leaves the rest waiting."""

    def work(connection: Connection, worker: Worker) -> None:
        session = connection.session(ack=hms.AckMode.CLIENT)
        consumer = session.consumer(hms.Queue(queue), prefetch=BATCH)
        is_done = False
        while not is_done:
            batch = _take(consumer.receive, BATCH)
            for message in batch:
                worker.seen.add_message(message)
            try:
                session.ack()
                is_done = len(worker.seen.ids) >= count
            except hms.AcknowledgeLost:
                is_done = False  # they come again, flagged

    return work


def durable(topic: str, name: str, selector: str) -> Callable[[Connection, Worker], None]:
    """Collects what a durable subscription with a selector gets."""

    def work(connection: Connection, worker: Worker) -> None:
        session = connection.session()
        subscriber = session.subscriber(hms.Topic(topic), durable=name, selector=selector)
        while True:
            message = subscriber.receive(timeout_s=0.5)
            if message is not None:
                if message.message_id not in worker.seen.ids:
                    worker.messages.append(message)
                worker.seen.add_message(message)
            elif worker.is_stopping:
                return

    return work


def _take(receive: Callable[[float], Message | None], count: int) -> list[Message]:
    """Up to count messages, or what comes within a moment."""
    batch: list[Message] = []
    while len(batch) < count:
        message = receive(0.5)
        if message is None:
            break
        batch.append(message)
    return batch
