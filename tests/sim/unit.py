"""A session of the simulation, with its producers and consumers: the library's shell, by hand.

A method that waits is a generator (see client.py). What the application does is written into
the books before it is said, and what it learns after it is known.
"""

from collections.abc import Generator, Iterator
from functools import partial

from field_buffer.catalogue import TransactionRolledBack
from field_buffer.errors import HmsError
from field_buffer.packing import ROW, Head, encode_head
from hms.client.destinations import Destination, Queue, Topic
from hms.client.inbox import Inbox
from hms.client.sending import Sender, SendOptions, Ticket
from hms.client.session_state import SessionState
from hms.constants import AckMode
from tests.sim.client import Client, Condition
from tests.sim.entries import FAIL, OK, Sending, Transaction
from tests.sim.inbound import Inbound
from tpmon.asked import OnLoss, Pending
from tpmon.link import State
from tpmon.protocol.structures import CloseProducer, OpenConsumer, OpenProducer, Request

Steps = Iterator[Condition]
PRIORITIES = (4, 4, 4, 4, 9, 0)


def destination_of(place: str) -> Destination:
    """A text such as "queue:NAME" or "topic:NAME"."""
    kind, _, name = place.partition(":")
    return Queue(name) if kind == "queue" else Topic(name)


class Unit:
    """One session."""

    def __init__(
        self,
        client: Client,
        ack: AckMode = AckMode.AUTO,
        *,
        is_transacted: bool = False,
        is_asynchronous: bool = False,
    ) -> None:
        self.client, self.world = client, client.world
        self.rng, self.books, self.link = client.world.rng, client.world.books, client.link
        self.state = SessionState(
            client.link, ack, is_transacted=is_transacted, is_asynchronous=is_asynchronous
        )
        self.inbounds: list[Inbound] = []
        self.outbounds: list[Outbound] = []
        self._transaction: Transaction | None = None

    @property
    def transaction(self) -> Transaction | None:
        """The open transaction, begun when it is first needed."""
        if self.state.is_transacted and self._transaction is None:
            self._transaction = self.books.begin()
        return self._transaction

    @property
    def has_poison(self) -> bool:
        """Whether the open transaction took what is always given back."""
        taken = self._transaction.acknowledged if self._transaction else ()
        return any(one.sending.is_poison for one in taken)

    def ask(
        self, request: Request, on_loss: OnLoss, then: object = None
    ) -> Generator[Condition, None, Pending]:
        """Ask the node and wait; raises its refusal."""
        pending = Pending(type(request).__name__, on_loss, then=then)
        self.link.request(request, pending)
        yield lambda: pending.is_done
        return pending.checked()

    # ---- open and close

    def open(self) -> Steps:
        """Open the session."""
        pending = self.state.open()
        yield lambda: pending.is_done
        pending.checked()

    def producer(self, place: str) -> Iterator[Condition]:
        """Open a producer; it is the last of `outbounds` then."""
        destination = destination_of(place)
        number = self.link.new_handle()
        opening = OpenProducer(number, self.state.number, destination.kind, destination.name)
        is_transacted = self.state.is_transacted
        clock = lambda: self.world.now_s  # noqa: E731
        sender = Sender(self.link, number, destination, clock, is_transacted=is_transacted)
        if is_transacted:
            self.world.transacted.add((self.client.uid, number))
        register = partial(self.state.register, sender, opening)
        yield from self.ask(opening, OnLoss.REPEAT, register)
        self.outbounds.append(Outbound(self, sender, place))

    def close_producer(self, outbound: "Outbound") -> Steps:
        """Wait for its confirmations, and close it."""
        outbound.sender.push()
        yield lambda: outbound.sender.is_idle
        outbound.look()
        self.outbounds.remove(outbound)
        if self.state.senders.pop(outbound.sender.number, None) and self.link.state is State.UP:
            yield from self.ask(CloseProducer(outbound.sender.number), OnLoss.DONE)

    def consumer(self, place: str, opening: OpenConsumer) -> Steps:
        """Open a consumer; it is the last of `inbounds` then. Raises what the node refuses."""
        destination = destination_of(f"{opening.kind}:{opening.destination}")
        clock_ms = lambda: self.world.now_ms  # noqa: E731
        inbox = Inbox(self.link, opening, destination, clock_ms, None)
        self.link.receivers[inbox.number] = inbox
        self.state.inboxes[inbox.number] = inbox
        self.world.places[self.client.uid, inbox.number] = place
        try:
            yield from self.ask(opening, OnLoss.REPEAT, inbox.opened)
        except HmsError:
            self.link.receivers.pop(inbox.number, None)
            self.state.inboxes.pop(inbox.number, None)
            raise
        self.inbounds.append(Inbound(self, inbox, place))

    def close(self) -> Steps:
        """Close the session; a transaction is rolled back."""
        yield from self.wait_for_sends()
        for inbound in self.inbounds:
            inbound.give_back()
        self._fail()
        incarnations = [inbound.inbox.stamp.incarnation for inbound in self.inbounds]
        pending = self.state.close()
        self._end(FAIL)
        yield lambda: pending.is_done
        if pending.is_answered:
            for inbound, incarnation in zip(self.inbounds, incarnations, strict=True):
                inbound.is_safe(incarnation)

    # ---- transactions

    def wait_for_sends(self) -> Steps:
        """Until all sends have their outcome."""
        for outbound in self.outbounds:
            outbound.sender.push()
        yield lambda: all(one.sender.is_idle for one in self.outbounds)
        for outbound in self.outbounds:
            outbound.look()

    def commit(self) -> Steps:
        """As Session.commit(); the books learn the outcome."""
        yield from self.wait_for_sends()
        if self.state.is_doomed:
            yield from self.rollback()
            return
        pending = self.state.commit()
        if pending is None:
            assert self._transaction is None, "the library knows of no work, the books do"
            return
        key = self.client.uid, self.state.number, self.state._commits
        self.books.committing(self.transaction, key)
        yield lambda: pending.is_done
        self.state.forget_commit()
        if pending.error is None:
            self._end(OK)
        elif isinstance(pending.error, TransactionRolledBack):
            self._end(FAIL)
        else:
            yield from self.rollback()

    def rollback(self) -> Steps:
        """As Session.rollback()."""
        for outbound in self.outbounds:
            outbound.sender.push()
        yield lambda: not self.client.is_up or all(one.sender.is_idle for one in self.outbounds)
        self._fail()
        is_counted = not self.state.is_doomed
        pending = self.state.rollback()
        if pending is not None:
            yield lambda: pending.is_done
            pending.checked()
            if is_counted and pending.is_answered:
                self._fail(is_known=True)
        for outbound in self.outbounds:
            outbound.look()
        self._end(FAIL)

    def _fail(self, *, is_known: bool = False) -> None:
        """What the transaction acknowledged is about to be given back as failed, or was."""
        for receipt in self._transaction.acknowledged if self._transaction else ():
            receipt.failures += not is_known
            receipt.failures_known += is_known

    def _end(self, outcome: str) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self.books.ended_as(transaction, outcome)


class Outbound:
    """One producer."""

    def __init__(self, unit: Unit, sender: Sender, place: str) -> None:
        self.unit, self.sender, self.place = unit, sender, place
        self._sequence = 0
        self._waiting: list[tuple[Ticket, Sending]] = []

    def send(self) -> Steps:
        """One message, of random kind, into the pack; its outcome comes later."""
        sending, options = self._make()
        rng = self.unit.rng
        head = encode_head(Head({"color": sending.color})) if rng.random() < 0.8 else b""
        if not head:
            sending.color = "none"
        row = ROW.pack(len(head), len(sending.body), options.ttl_ms, 0, options.priority, 0, 0, 0)
        size = len(head) + len(sending.body)
        sender, state = self.sender, self.unit.state
        yield lambda: sender.accepts(size, is_persistent=options.is_persistent)
        state.has_work = True
        sending.boot = self.unit.world.boots
        sending.transaction = self.unit.transaction
        self.unit.books.invoke(sending)
        ticket = Ticket(1, [], options)
        self._waiting.append((ticket, sending))
        sender.add((row, head, sending.body), ticket, is_persistent=options.is_persistent)
        if rng.random() < 0.6:
            sender.push()

    def _make(self) -> tuple[Sending, SendOptions]:
        rng, client = self.unit.rng, self.unit.client
        self._sequence += 1
        label = f"{client.name}.{self.sender.number}"
        priority, is_persistent = rng.choice(PRIORITIES), rng.random() < 0.8
        ttl_ms = rng.choice((1, 20, 200)) if rng.random() < 0.05 else 0
        key = f"{label}.{self._sequence}"
        size = rng.choice((0, 10, 60, 60, 300, 1_300))
        body = f"{key} {'.' * size}".encode()
        stream = (label, self.place, priority, is_persistent)
        sending = Sending(
            *(key, self.place, stream, self._sequence, body, is_persistent, ttl_ms),
            *(rng.choice(("red", "blue")), 0),
        )
        return sending, SendOptions(is_persistent, ttl_ms, priority)

    def look(self) -> None:
        """Tell the books what is known meanwhile."""
        waiting = []
        for ticket, sending in self._waiting:
            if ticket.is_done:
                self.unit.books.sent(sending, FAIL if ticket.error else OK)
            else:
                waiting.append((ticket, sending))
        self._waiting = waiting
