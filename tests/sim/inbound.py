"""A consumer of the simulation: what its application takes, acknowledges and gives back."""

import asyncio
import contextlib
import random
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from hms.client.prefetch_buffer import Delivered
from hms.constants import AckMode
from hms.errors.catalogue import AcknowledgeLost
from hms.errors.tree import HmsError
from hms.wire.packed_messages import FLAG_PART, DeliveredRow, decode_head
from tests.sim.entries import LETTER_QUEUES, Arrival, Receipt, Taken
from tests.sim.occurrences import numbered
from tests.sim.ordering import torn_list

if TYPE_CHECKING:
    from tests.sim.client import Condition
    from tests.sim.shell import Consumer
    from tests.sim.unit import Unit

EXCLUSIVE = ("queue:ledger", "sub:billing", "sub:audit", "sub:flash", "sub:wide", "passing:")
"""Places that have one consumer at a time, so that order is promised."""


class Inbound:
    """See the module. seen: of a CLIENT session, what waits for its acknowledgement."""

    def __init__(self, unit: "Unit", consumer: "Consumer", place: str) -> None:
        self.unit, self.consumer, self.place = unit, consumer, place
        self.prefetched = consumer.prefetched
        self.seen: dict[int, list[Receipt]] = {}
        self._counts = random.Random(self.prefetched.number)  # drawn beside it: seeds stay as told
        self._said: list[tuple[int, Receipt]] = []
        """What was acknowledged without an answer, and in which incarnation."""

    @property
    def has_news(self) -> bool:
        """Whether a receive would return at once, or raise; who waits for that in a receive gives
        back what was taken."""
        prefetched, unit = self.prefetched, self.unit
        is_waiting = not prefetched.buffer and prefetched.error is None and unit.client.is_up
        if is_waiting and prefetched.window.taken(0):
            unit.state.want_more(prefetched)
            unit.shell.flush()
        return bool(prefetched.buffer) or prefetched.error is not None

    def take(self) -> "Generator[Condition, None, Receipt | None]":
        """As Consumer.receive(0), or receive_many(); of several a poisonous one, or the first."""
        if self.prefetched.error is not None and not self.prefetched.buffer:
            return None
        drive, count = self.unit.shell.drive, self._counts.choice((1, 1, 2, 7))
        try:
            if count == 1:
                return self._took((yield from drive(self.consumer.receiving(0))))
            found = yield from drive(self.consumer.receiving_many(count, 0))
        except HmsError:
            if self.prefetched.error is None:
                raise
            return None  # the node closed it while it was asked
        receipts = [receipt for one in found if (receipt := self._took(one)) is not None]
        first = receipts[0] if receipts else None
        return next((one for one in receipts if one.sending.is_poison), first)

    def wait(self) -> "Iterator[Condition]":
        """As Consumer.receive(), cancelled sooner or later: then it has taken nothing."""
        rng, world = self.unit.rng, self.unit.world
        is_enough = lambda: world.is_ending or rng.random() < 0.02  # noqa: E731
        receiving = self.consumer.receiving(None)
        with contextlib.suppress(asyncio.CancelledError):
            self._took((yield from self.unit.shell.drive(receiving, is_cancelled=is_enough)))

    def _took(self, delivered: Delivered | None) -> Receipt | None:
        if delivered is None:
            return None
        row, _, body = delivered
        parts = body if row.flags & FLAG_PART else [delivered]
        if row.flags & FLAG_PART:
            self.unit.books.faults += torn_list(self.place, parts)
        arrivals = [self._arrival(part) for part in parts]
        others = [one._replace(color="") for one in arrivals[1:]]  # a list's first one is selected
        receipts = [self.unit.books.received(one) for one in (arrivals[0], *others)]
        for receipt, arrival in zip(receipts, arrivals, strict=True):
            if receipt.sending.due_ms > self.unit.world.now_ms:
                self.unit.books.faults.append(f"early: {receipt.sending.key} at {self.place}")
            self._note(row, receipt, arrival.count)
        return next((one for one in receipts if one.sending.is_poison), receipts[0])

    def _note(self, row: DeliveredRow, receipt: Receipt, count: int) -> None:
        """What the session's mode means for the books; a list is settled by its first message, but
        each of its messages counts its own deliveries."""
        state, books = self.unit.state, self.unit.books
        if state.is_transacted:
            books.acknowledging(receipt, self.unit.transaction)
        elif state.ack_mode is AckMode.CLIENT:
            self.seen.setdefault(row.message_id, []).append(receipt)
        else:
            books.acknowledging(receipt)
            taken = Taken(self.unit.client.name, row.message_id, count)
            receipt.unanswered.append(taken)
            self._said.append((self.prefetched.stamp.incarnation, receipt))

    def _arrival(self, delivered: Delivered) -> Arrival:
        row, head, body = delivered
        place = self.place
        if place.startswith("passing:"):  # every connection makes another subscription
            place = f"{place}.{self.prefetched.number}.{self.prefetched.stamp.incarnation}"
        color = self.prefetched.opening.selector.removeprefix("color = '").rstrip("'")
        return Arrival(
            letter_place(place, head),
            row.message_id,
            row.delivery_count,
            numbered(head, body),
            color,
            place.startswith(EXCLUSIVE),
        )

    def acknowledge(self, count: int) -> "Iterator[Condition]":
        """The first of those that were seen, or one of them, and wait until that is durable; or be
        cancelled."""
        unit, prefetched, books, rng = self.unit, self.prefetched, self.unit.books, self.unit.rng
        chosen = list(prefetched.seen)[:count]
        if not chosen:
            return
        is_one = rng.random() < 0.2
        chosen = chosen[-1:] if is_one else chosen
        receipts = [receipt for one in chosen for receipt in self.seen.pop(one)]
        for receipt in receipts:
            books.acknowledging(receipt)
        steps = unit.session.acknowledging(prefetched, chosen[-1], is_upthrough=not is_one)
        with contextlib.suppress(AcknowledgeLost, asyncio.CancelledError):
            yield from unit.shell.drive(steps, is_cancelled=lambda: rng.random() < 0.01)
            for receipt in receipts:
                books.acknowledged(receipt)

    def give_back(self) -> list[Receipt]:
        """What was seen and not acknowledged is about to be said to have failed."""
        known = [receipts for one, receipts in self.seen.items() if one in self.prefetched.seen]
        failing = list(dict.fromkeys(receipt for receipts in known for receipt in receipts))
        for receipt in failing:
            receipt.failures += 1
        self.seen.clear()
        return failing

    def said(self) -> list[Receipt]:
        """What was acknowledged without an answer on this connection."""
        incarnation = self.prefetched.stamp.incarnation
        return [receipt for then, receipt in self._said if then == incarnation]

    def close(self) -> "Iterator[Condition]":
        """As Consumer.close(); once the node has answered, what was acknowledged is safe. What was
        seen in CLIENT may be acknowledged still; else it comes again when the session closes, and
        has not failed."""
        unit, login, said = self.unit, self.unit.login, self.said()
        unit.inbounds.remove(self)
        unit.closed.append(self)
        is_open = self.prefetched.error is None
        yield from unit.shell.drive(self.consumer.closing())
        if is_open and login is not None and unit.login is login:
            for receipt in said:
                unit.books.acknowledged(receipt)
        if self._counts.random() < 0.5:
            yield from self.acknowledge(len(self.prefetched.seen))


def letter_place(place: str, head: bytes) -> str:
    """A dead letter's place says where it came from: two subscriptions may give up one message."""
    if place not in LETTER_QUEUES:
        return place
    node = decode_head(head).node
    origin = f"sub:{node['$DeadSubscription']}" if "$DeadSubscription" in node else None
    return f"{place}<{origin or node['$DeadOrigin']}"
