"""A session of the simulation, with its producers and consumers, over the library's own operations.

A method that waits is a generator (see client.py). What the application does is written into
the books before it is said, and what it learns after it is known.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping

from hms.client.opening_steps import new_session
from hms.client.pending_sends import PendingSend
from hms.constants import AckMode
from hms.errors.catalogue import TransactionRolledBack
from hms.errors.tree import HmsError
from tests.sim.client import Client, Condition
from tests.sim.entries import FAIL, OK, Sending, Transaction
from tests.sim.inbound import Inbound
from tests.sim.ordering import draw_marks
from tests.sim.shell import Consumer, Producer, Session, Shell

Steps = Iterator[Condition]
RETAINING = "topic:notes/"
PRIORITIES = (4, 4, 4, 4, 9, 0)


class Unit:
    """One session."""

    def __init__(
        self,
        client: Client,
        ack: AckMode = AckMode.AUTO,
        *,
        is_transacted: bool = False,
        is_asynchronous: bool = False,
        is_xa: bool = False,
    ) -> None:
        self.client, self.world = client, client.world
        self.rng, self.books = client.world.rng, client.world.books
        self.shell = Shell(client)
        self.inbounds: list[Inbound] = []
        self.closed: list[Inbound] = []
        """What they have seen is given back with the session's recover() still."""
        self.outbounds: list[Outbound] = []
        self._kind = ack, is_transacted, is_asynchronous, is_xa
        self._transaction: Transaction | None = None

    @property
    def transaction(self) -> Transaction | None:
        """The open transaction, begun when it is first needed."""
        if self.state.is_transacted and self._transaction is None:
            self._transaction = self.books.begin()
        return self._transaction

    @property
    def current(self) -> Transaction | None:
        """The open transaction, if anything was done in it."""
        return self._transaction

    @property
    def has_poison(self) -> bool:
        """Whether the open transaction took what is always given back."""
        taken = self._transaction.acknowledged if self._transaction else ()
        return any(one.sending.is_poison for one in taken)

    @property
    def login(self) -> object:
        """The connection there is now; None for none. What is asked on one that is still there when
        it is answered, was answered by the node."""
        return self.client.link.welcome if self.client.is_up else None

    # ---- open and close

    def open(self) -> Steps:
        """Open the session."""
        ack, is_transacted, is_asynchronous, is_xa = self._kind
        self.state, opening = new_session(
            self.client.link,
            ack,
            is_transacted=is_transacted,
            is_xa=is_xa,
            is_asynchronous=is_asynchronous,
        )
        self.session = Session(self.shell.requests, self.state, is_asynchronous=is_asynchronous)
        yield from self.shell.drive(opening.granted(self.shell.requests))

    def producer(self, place: str) -> Steps:
        """Open a producer; it is the last of `outbounds` then."""
        producer = self.session.producer(place)
        if self.state.is_transacted or self.state.is_xa:
            self.world.transacted.add((self.client.uid, producer.sender.number))
        yield from self.shell.drive(producer.opening.granted(self.shell.requests))
        self.outbounds.append(Outbound(self, producer, place))

    def close_producer(self, outbound: "Outbound") -> Steps:
        """Wait for its confirmations, and close it."""
        self.outbounds.remove(outbound)
        yield from self.shell.drive(outbound.producer.closing())
        outbound.look()

    def consumer(self, place: str, make: Callable[[], Consumer]) -> Steps:
        """Open a consumer; it is the last of `inbounds` then. Raises what the node refuses. Whoever
        opens it may be cancelled, and tries again."""
        is_cancelled, rng = True, self.rng
        while is_cancelled:
            consumer, is_cancelled = make(), False
            consumer.prefetched._clock_ms = lambda: self.world.now_ms
            self.world.places[self.client.uid, consumer.prefetched.number] = place
            opening = consumer.opening.granted(self.shell.requests)
            try:
                yield from self.shell.drive(opening, is_cancelled=lambda: rng.random() < 0.02)
            except asyncio.CancelledError:
                is_cancelled = True
        self.inbounds.append(Inbound(self, consumer, place))

    def close(self) -> Steps:
        """Close the session; a transaction is rolled back, and what it received has not failed."""
        yield from self.wait_for_sends()
        self.end(FAIL)
        login, said = self.login, [one for inbound in self.inbounds for one in inbound.said()]
        yield from self.shell.drive(self.session.closing())
        if login is not None and self.login is login:
            for receipt in said:
                self.books.acknowledged(receipt)

    # ---- transactions

    def wait_for_sends(self) -> Steps:
        """Until all sends have their outcome."""
        yield from self.shell.drive(self.session.sends_settled())
        self.look()

    def look(self) -> None:
        """Tell the books what is known of sends."""
        for outbound in self.outbounds:
            outbound.look()

    def commit(self) -> Steps:
        """As Session.commit(); the books learn the outcome."""
        yield from self.wait_for_sends()
        if self.state.is_doomed or self.state.failed_send is not None:
            self.fail()
        elif self.state.has_work:
            key = self.client.uid, self.state.number, self.state._commits + 1
            self.books.committing(self.transaction, key)
        else:
            assert self._transaction is None, "the library knows of no work, the books do"
        try:
            yield from self.shell.drive(self.session.committing())
        except TransactionRolledBack:
            self.look()
            self.end(FAIL)
        except HmsError:
            yield from self.rollback()
        else:
            self.end(OK)

    def rollback(self) -> Steps:
        """As Session.rollback()."""
        is_enough = lambda: not self.client.is_up  # noqa: E731
        yield from self.shell.drive(self.session.sends_settled(is_enough))
        self.fail()
        is_counted, login = not self.state.is_doomed, self.login
        yield from self.shell.drive(self.session.rolling_back())
        if is_counted and login is not None and self.login is login:
            self.fail(is_known=True)
        self.look()
        self.end(FAIL)

    def fail(self, *, is_known: bool = False) -> None:
        """What the transaction acknowledged is about to be given back as failed, or was."""
        for receipt in self._transaction.acknowledged if self._transaction else ():
            receipt.failures += not is_known
            receipt.failures_known += is_known

    def end(self, outcome: str) -> None:
        """The open transaction is over."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self.books.ended_as(transaction, outcome)

    def recover(self) -> Steps:
        """As Session.recover()."""
        inbounds, self.closed = [*self.inbounds, *self.closed], []
        failing = [receipt for inbound in inbounds for receipt in inbound.give_back()]
        login = self.login
        yield from self.shell.drive(self.session.recovering())
        if login is not None and self.login is login:
            for receipt in failing:
                receipt.failures_known += 1


class Outbound:
    """One producer."""

    def __init__(self, unit: Unit, producer: Producer, place: str) -> None:
        self.unit, self.producer, self.place = unit, producer, place
        self._sequence = 0
        self._waiting: list[tuple[PendingSend, Sending]] = []

    def send(self, part: Mapping[str, str | int] | None = None) -> Steps:
        """One message, of random kind, into the pack; its outcome comes later. part: what makes it
        one of a list."""
        unit, rng = self.unit, self.unit.rng
        sending, priority = self._make()
        properties = {"color": sending.color} if rng.random() < 0.8 else {}
        if not properties:
            sending.color = "none"
        marks = part or draw_marks(rng)
        if marks:  # a group may go on while another is held up
            sending.stream = (f"{sending.stream[0]} {marks}", *sending.stream[1:])
            properties |= marks
        options = {
            "persistent": sending.is_persistent,
            "ttl_s": sending.ttl_ms / 1000,
            "priority": priority,
            "delay_s": max(0, sending.due_ms - unit.world.now_ms) / 1000,
        }
        if self.place.startswith(RETAINING) and not options["delay_s"] and rng.random() < 0.5:
            options["retain"] = True
        encoded, pending = self.producer.prepared(sending.body, properties, options)
        sending.transaction = unit.transaction
        unit.books.invoke(sending)
        self._waiting.append((pending, sending))
        yield from unit.shell.drive(self.producer.adding(encoded, pending))
        sending.boot = unit.world.boots
        if rng.random() < 0.6:
            self.producer.sender.push()

    def _make(self) -> tuple[Sending, int]:
        rng, client = self.unit.rng, self.unit.client
        self._sequence += 1
        label = f"{client.name}.{self.producer.sender.number}"
        priority, is_persistent = rng.choice(PRIORITIES), rng.random() < 0.8
        ttl_ms = rng.choice((1, 20, 200)) if rng.random() < 0.05 else 0
        key = f"{label}.{self._sequence}"
        size = rng.choice((0, 10, 60, 60, 300, 1_300))
        body = f"{key} {'.' * size}".encode()
        stream = (label, self.place, priority, is_persistent)
        delay_ms = rng.choice((2, 20, 150)) if rng.random() < 0.05 else 0
        if delay_ms:  # what comes later is in nobody's order
            stream = (f"{label} {key}", *stream[1:])
        sending = Sending(
            *(key, self.place, stream, self._sequence, body, is_persistent, ttl_ms),
            *(rng.choice(("red", "blue")), self.unit.world.boots),
            due_ms=self.unit.world.now_ms + delay_ms if delay_ms else 0,
        )
        return sending, priority

    def look(self) -> None:
        """Tell the books what is known meanwhile."""
        waiting = []
        for pending, sending in self._waiting:
            if pending.is_done:
                self.unit.books.sent(sending, FAIL if pending.error else OK)
            else:
                waiting.append((pending, sending))
        self._waiting = waiting
