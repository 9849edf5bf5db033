"""Sending: messages of one producer, packed into frames, kept until confirmed. No socket or clock.

A message waits in the pack while frames are in flight, so that the busier the connection is, the
fuller its frames are; with nothing in flight it leaves at once. A frame leaves when the window has
room. It is kept, as bytes, until its CONFIRM; after a reconnect the link sends the same bytes
again, and the node recognises the numbers in it (F-D9).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from field_buffer.catalogue import TransactionRolledBack
from field_buffer.errors import HmsError
from field_buffer.packing import PRIORITY_DEFAULT, pack_messages
from hms.client.destinations import Destination
from hms.client.message import Message
from hms.client.receipt import Receipt
from tpmon.asked import Frame
from tpmon.link import Link, State
from tpmon.protocol.frames import Kind, SendHead, decode_confirm, encode_send
from tpmon.protocol.structures import decode_error

FRAME_MESSAGES_MAX = 256
FRAME_BYTES_MAX = 256 * 1024

Encoded = tuple[bytes, bytes, bytes]
"""Row, head and body of a message."""


class SendOptions(NamedTuple):
    """How messages are sent."""

    is_persistent: bool = True
    ttl_ms: int = 0
    priority: int = PRIORITY_DEFAULT


class Ticket:
    """What stands for consecutive messages of a frame until their outcome is known.

    messages: the application's own, with their places, to be marked as sent; a body that was given
    bare has none. future: where the outcome goes when no thread waits for it.
    """

    __slots__ = ("count", "error", "future", "is_done", "messages", "options", "receipts")

    def __init__(
        self,
        count: int,
        messages: Sequence[tuple[int, Message]],
        options: SendOptions,
        future: "Future[Receipt] | None" = None,
    ) -> None:
        self.count = count
        self.messages = messages
        self.options = options
        self.future = future
        self.is_done = False
        self.receipts: list[Receipt] = []
        self.error: HmsError | None = None


class SendFrame:
    """A SEND on its way."""

    __slots__ = ("frame", "handed_over_at", "sender", "tickets")

    def __init__(self, sender: "Sender", tickets: list[Ticket]) -> None:
        self.sender = sender
        self.tickets = tickets
        self.frame: Frame = ()
        self.handed_over_at = 0.0

    def answered(self, kind: Kind, payload: bytes) -> None:
        """CONFIRM or ERROR: the tickets get what it says."""
        if kind is Kind.CONFIRM:
            self.sender.confirmed(self, payload)
        else:
            self.failed(decode_error(payload))

    def lost(self, error: HmsError) -> bool:
        """Sent again, unless it belonged to a transaction: that one is gone."""
        if not self.sender.is_transacted:
            return True
        reason = f"the connection was lost ({error.fields.get('reason', error.symbol)})"
        self.failed(TransactionRolledBack(reason=reason))
        return False

    def failed(self, error: HmsError) -> None:
        """Every ticket gets the error."""
        self.sender.refused(self, error)


class Sender:
    """A producer's numbering and its pack; see the module.

    clock: for the elapsed time of receipts only.
    """

    def __init__(
        self,
        link: Link,
        number: int,
        destination: Destination,
        clock: Callable[[], float],
        *,
        is_transacted: bool,
    ) -> None:
        self.link = link
        self.number = number
        self.destination = destination
        self.is_transacted = is_transacted
        self.unconfirmed = 0
        self._clock = clock
        self._sequence = 1
        self._pack: list[Encoded] = []
        self._pack_bytes = 0
        self._pack_tickets: list[Ticket] = []
        self._pack_is_persistent = True

    @property
    def has_room(self) -> bool:
        """Whether the window lets another frame out."""
        link = self.link
        return link.sends_in_flight < link.limits.frames_in_flight_max or link.state is State.ENDED

    @property
    def has_pack(self) -> bool:
        """Whether messages wait to be sent."""
        return bool(self._pack)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self._pack and not self.unconfirmed

    def accepts(self, size: int, *, is_persistent: bool) -> bool:
        """Whether add() may be called: the message fits the pack, or the pack can leave."""
        return self._fits(size, is_persistent=is_persistent) or self.has_room

    def add(self, message: Encoded, ticket: Ticket, *, is_persistent: bool) -> None:
        """Put a message into the pack."""
        size = len(message[1]) + len(message[2])
        if not self._fits(size, is_persistent=is_persistent):
            self.push()
        self._pack.append(message)
        self._pack_bytes += size
        self._pack_tickets.append(ticket)
        self._pack_is_persistent = is_persistent
        self.link.on_room[self.number] = self.push

    def push(self) -> None:
        """Send the pack if the window has room; else it goes as soon as there is."""
        if not self._pack or not self.has_room:
            return
        pack, tickets = self._pack, self._pack_tickets
        self._pack, self._pack_tickets, self._pack_bytes = [], [], 0
        self.link.on_room.pop(self.number, None)
        is_persistent = self._pack_is_persistent
        self.submit(pack_messages(pack), len(pack), tickets, is_persistent=is_persistent)

    def submit(
        self, pack: bytes, count: int, tickets: list[Ticket], *, is_persistent: bool
    ) -> None:
        """Send a pack that was made elsewhere, now; there is room, and nothing of ours waits."""
        head = SendHead(self.number, count, self._sequence, is_persistent)
        self._sequence += count
        frame = SendFrame(self, tickets)
        frame.handed_over_at = self._clock()
        self.unconfirmed += 1
        self.link.sends_in_flight += 1
        self.link.unattended += sum(1 for ticket in tickets if ticket.future is not None)
        self.link.ask(Kind.SEND, encode_send(head, pack), frame, count)

    def withdraw(self, ticket: Ticket) -> None:
        """Nobody waits for it any longer: while there is no connection, do not send it later."""
        for asked in list(self.link.asked.values()):
            if isinstance(asked, SendFrame) and ticket in asked.tickets:
                self.link.abandon(asked)

    def confirmed(self, frame: SendFrame, payload: bytes) -> None:
        """The node has the messages of this frame."""
        first, timestamp_ms, _ = decode_confirm(payload)
        elapsed_s = self._clock() - frame.handed_over_at
        for ticket in frame.tickets:
            end = first + ticket.count
            ticket.receipts = [Receipt(f"{one:012x}", elapsed_s) for one in range(first, end)]
            for place, message in ticket.messages:
                self._mark(message, first + place, timestamp_ms, elapsed_s, ticket.options)
            self._end(ticket)
            first = end
        self._out_of_flight()

    def refused(self, frame: SendFrame, error: HmsError) -> None:
        """The node took none of the messages of this frame, or will not say."""
        for ticket in frame.tickets:
            ticket.error = error
            self._end(ticket)
        self._out_of_flight()

    def _fits(self, size: int, *, is_persistent: bool) -> bool:
        if not self._pack:
            return True
        is_small = self._pack_bytes + size <= FRAME_BYTES_MAX
        is_alike = is_persistent == self._pack_is_persistent
        return is_small and is_alike and len(self._pack) < FRAME_MESSAGES_MAX

    def _mark(
        self, message: Message, number: int, at_ms: int, elapsed_s: float, options: SendOptions
    ) -> None:
        message.mark_sent(
            self.destination,
            number,
            at_ms,
            ttl_ms=options.ttl_ms,
            priority=options.priority,
            is_persistent=options.is_persistent,
            elapsed_s=elapsed_s,
        )

    def _end(self, ticket: Ticket) -> None:
        ticket.is_done = True
        future = ticket.future
        if future is None:
            self.link.woken.append(ticket)
            return
        self.link.unattended -= 1
        error, receipts = ticket.error, ticket.receipts
        if error is not None:
            own = type(error)(**error.fields)
            self.link.calls.append(lambda: future.set_exception(own))
        else:
            self.link.calls.append(lambda: future.set_result(receipts[0]))

    def _out_of_flight(self) -> None:
        self.unconfirmed -= 1
        link = self.link
        link.sends_in_flight -= 1
        link.woken.append(link)
        for push in list(link.on_room.values()):
            push()
