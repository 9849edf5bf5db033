"""A consumer of the simulation: what its application takes, acknowledges and gives back."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from field_buffer.packing import DeliveredRow, decode_head
from hms.client.inbox import Delivered, Inbox
from hms.constants import AckMode
from tests.sim.entries import LETTER_QUEUES, Arrival, Receipt, Taken
from tpmon.asked import OnLoss
from tpmon.link import State
from tpmon.protocol.structures import CloseConsumer

if TYPE_CHECKING:
    from tests.sim.client import Condition
    from tests.sim.unit import Unit

EXCLUSIVE = ("queue:ledger", "sub:billing", "sub:audit", "sub:flash", "passing:")
"""Places that have one consumer at a time, so that order is promised."""


class Inbound:
    """See the module. seen: of a CLIENT session, what waits for its acknowledgement."""

    def __init__(self, unit: "Unit", inbox: Inbox, place: str) -> None:
        self.unit, self.inbox, self.place = unit, inbox, place
        self.seen: dict[int, Receipt] = {}
        self._said: list[tuple[int, Receipt]] = []
        """What was acknowledged without an answer, and in which incarnation."""

    @property
    def has_news(self) -> bool:
        """Whether a receive would return at once, or raise."""
        return bool(self.inbox.buffer) or self.inbox.error is not None

    def take(self) -> Receipt | None:
        """As Consumer.receive(0)."""
        inbox, state = self.inbox, self.unit.state
        if inbox.is_credit_due:
            state.settle(inbox)
        delivered = inbox.take()
        if delivered is None:
            state.settle(inbox)
            return None
        state.consumed(inbox, delivered[0].message_id)
        receipt = self.unit.books.received(self._arrival(delivered))
        self._note(delivered[0], receipt)
        return receipt

    def _note(self, row: DeliveredRow, receipt: Receipt) -> None:
        """What the session's mode means for the books."""
        state, books = self.unit.state, self.unit.books
        if state.is_transacted:
            books.acknowledging(receipt, self.unit.transaction)
        elif state.ack_mode is AckMode.CLIENT:
            self.seen[row.message_id] = receipt
        else:
            books.acknowledging(receipt)
            taken = Taken(self.unit.client.name, row.message_id, row.delivery_count)
            receipt.unanswered.append(taken)
            self._said.append((self.inbox.stamp.incarnation, receipt))

    def _arrival(self, delivered: Delivered) -> Arrival:
        row, head, body = delivered
        place = self.place
        if place.startswith("passing:"):  # every connection makes another subscription
            place = f"{place}.{self.inbox.number}.{self.inbox.stamp.incarnation}"
        color = self.inbox.opening.selector.removeprefix("color = '").rstrip("'")
        return Arrival(
            letter_place(place, head),
            row.message_id,
            row.delivery_count,
            body,
            color,
            place.startswith(EXCLUSIVE),
        )

    def acknowledge(self, count: int) -> "Iterator[Condition]":
        """The first of those that were seen, and wait until that is durable."""
        inbox, books = self.inbox, self.unit.books
        self.seen = {one: receipt for one, receipt in self.seen.items() if one in inbox.seen}
        chosen = dict(list(self.seen.items())[:count])
        for receipt in chosen.values():
            books.acknowledging(receipt)
        pending = self.unit.state.acknowledge([(inbox, list(chosen))])
        if pending is None:
            return
        for message_id in chosen:
            del self.seen[message_id]
        yield lambda: pending.is_done
        if pending.error is None:
            for receipt in chosen.values():
                books.acknowledged(receipt)

    def give_back(self) -> list[Receipt]:
        """What was seen and not acknowledged is about to be said to have failed."""
        failing = [receipt for one, receipt in self.seen.items() if one in self.inbox.seen]
        for receipt in failing:
            receipt.failures += 1
        self.seen.clear()
        return failing

    def close(self) -> "Iterator[Condition]":
        """As Consumer.close()."""
        unit, inbox = self.unit, self.inbox
        self.give_back()
        unit.state.settle()
        unit.state.give_back(inbox)
        unit.link.receivers.pop(inbox.number, None)
        unit.state.inboxes.pop(inbox.number, None)
        unit.inbounds.remove(self)
        unit.client.flush()
        if inbox.error is None and unit.link.state is State.UP:
            incarnation = inbox.stamp.incarnation
            pending = yield from unit.ask(CloseConsumer(inbox.number), OnLoss.DONE)
            if pending.is_answered:
                self.is_safe(incarnation)

    def is_safe(self, incarnation: int) -> None:
        """The node has answered that all is settled: what was said on this connection is safe."""
        for then, receipt in self._said:
            if then == incarnation:
                self.unit.books.acknowledged(receipt)


def letter_place(place: str, head: bytes) -> str:
    """A dead letter's place says where it came from: two subscriptions may give up one message."""
    if place not in LETTER_QUEUES:
        return place
    node = decode_head(head).node
    origin = f"sub:{node['$DeadSubscription']}" if "$DeadSubscription" in node else None
    return f"{place}<{origin or node['$DeadOrigin']}"
