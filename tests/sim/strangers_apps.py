"""Applications of clients that may see two logs; each writes what it was told into the books."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hms.client.opening_steps import new_session
from hms.client.pending_sends import PendingSend
from hms.constants import AckMode
from hms.errors.catalogue import (
    AcknowledgeLost,
    CommitInDoubt,
    ConnectionLost,
    SendInDoubt,
    TransactionRolledBack,
)
from hms.errors.tree import HmsError
from tests.sim.client import Client, Condition
from tests.sim.shell import Consumer, Producer, Session, Shell
from tests.sim.strangers_books import DONE, DOUBT, NOTHING, Books

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.sim.strangers import Caller

SOURCE, TARGET = "queue:ticks", "queue:late"
"""Two queues that neither bound what waits nor give anything up."""
DAWDLING = 0.2
_IN_DOUBT = (SendInDoubt, CommitInDoubt, AcknowledgeLost, ConnectionLost)
Steps = Iterator["Condition"]


class Work:
    """A session, and what its application does in it."""

    def __init__(self, client: Client, *, is_transacted: bool = False) -> None:
        self.client, self.shell = client, Shell(client)
        ack = AckMode.AUTO if is_transacted else AckMode.CLIENT
        self.state, self._opening = new_session(client.link, ack, is_transacted=is_transacted)
        self.session = Session(self.shell.requests, self.state, is_asynchronous=False)
        self._count = 0

    def open(self) -> Steps:
        """Until it is granted."""
        yield from self.shell.drive(self._opening.granted(self.shell.requests))

    def producer(self, place: str) -> "Generator[Condition, None, Producer]":
        """A producer that was granted."""
        producer = self.session.producer(place)
        yield from self.shell.drive(producer.opening.granted(self.shell.requests))
        return producer

    def consumer(self, place: str) -> "Generator[Condition, None, Consumer]":
        """A consumer that was granted."""
        consumer = self.session.consumer(place, prefetch=self.client.world.rng.choice((1, 4, 20)))
        yield from self.shell.drive(consumer.opening.granted(self.shell.requests))
        return consumer

    def send(
        self, producer: Producer, key: str = ""
    ) -> "Generator[Condition, None, tuple[PendingSend, str]]":
        """One message, into the pack; its outcome comes later."""
        self._count += 1
        body = key or f"{self.client.name}.{self._count}"
        encoded, pending = producer.prepared(body.encode(), {}, {})
        yield from self.shell.drive(producer.adding(encoded, pending))
        return pending, body

    def take(self, consumer: Consumer) -> "Generator[Condition, None, list[tuple[int, str]]]":
        """Some of what waits: identifier and key of each."""
        found = yield from self.shell.drive(consumer.receiving_many(5, 0))
        return [(row.message_id, bytes(body).decode()) for row, _, body in found]

    def commit(self) -> "Generator[Condition, None, str]":
        """What it was told of the commit, at once or after a while."""
        world = self.client.world
        if world.rng.random() < DAWDLING:
            until_ms = world.now_ms + world.rng.choice((100, 500))
            yield lambda: world.now_ms >= until_ms
        try:
            yield from self.shell.drive(self.session.committing())
        except TransactionRolledBack:
            return NOTHING
        except _IN_DOUBT:
            return DOUBT
        return DONE


def send(client: "Caller", books: Books, *, is_transacted: bool = False) -> Steps:
    """Sends some, and waits for their outcome or commits them."""
    work, rng = Work(client, is_transacted=is_transacted), client.world.rng
    yield from work.open()
    producer = yield from work.producer(SOURCE)
    while not client.world.is_ending:
        sent = []
        for _ in range(rng.randint(1, 5)):
            sent.append((yield from work.send(producer)))
            if rng.random() < 0.3:
                producer.sender.push()
        if is_transacted:
            outcome = yield from work.commit()
            books.sent([key for _, key in sent], outcome)
            continue
        producer.sender.push()
        yield lambda sent=sent: all(pending.is_done for pending, _ in sent)
        for pending, key in sent:
            books.sent([key], _outcome(pending.error))


def _outcome(error: HmsError | None) -> str:
    if error is None:
        return DONE
    assert isinstance(error, _IN_DOUBT), repr(error)
    return DOUBT


def receive(client: "Caller", books: Books, *, is_transacted: bool = False) -> Steps:
    """Takes some, and acknowledges or commits them."""
    work = Work(client, is_transacted=is_transacted)
    yield from work.open()
    consumer = yield from work.consumer(SOURCE)
    while not client.world.is_ending:
        yield from _round(work, consumer, books)
        yield _later(client)
    yield from work.shell.drive(work.session.closing())


def _round(work: Work, consumer: Consumer, books: Books) -> Steps:
    found = yield from work.take(consumer)
    keys = [key for _, key in found]
    if not keys:
        return
    if work.state.is_transacted:
        outcome = yield from work.commit()
    else:
        steps = work.session.acknowledging(consumer.prefetched, found[-1][0], is_upthrough=True)
        try:
            yield from work.shell.drive(steps)
            outcome = DONE
        except AcknowledgeLost:
            outcome = DOUBT
    books.received(keys, outcome)


def relay(client: "Caller", books: Books) -> Steps:
    """Takes some from one queue and sends them to another, in one transaction."""
    work = Work(client, is_transacted=True)
    yield from work.open()
    consumer = yield from work.consumer(SOURCE)
    producer = yield from work.producer(TARGET)
    while not client.world.is_ending:
        found = yield from work.take(consumer)
        keys = [key for _, key in found]
        tries = [f"{client.name}:{key}:{client.world.now_ms}:{id_}" for id_, key in found]
        for one in tries:
            yield from work.send(producer, one)
        outcome = yield from work.commit()
        if keys:
            books.received(keys, outcome)
            books.sent(tries, outcome)
        yield _later(client)


def drain(client: "Caller", books: Books) -> Steps:
    """Takes what is left at one node, and acknowledges it."""
    work = Work(client)
    yield from work.open()
    for place in (SOURCE, TARGET):
        consumer = yield from work.consumer(place)
        while found := (yield from work.take(consumer)):
            books.left.update(key for _, key in found)
        yield from work.shell.drive(consumer.closing())


def _later(client: "Caller") -> "Condition":
    world = client.world
    return lambda: world.is_ending or world.rng.random() < 0.3
