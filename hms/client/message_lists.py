"""Lists: the messages of a gathered group, which come as one (F-C17).

The node marks them in their rows and sends them behind one another, in one frame or in several. The
application gets one message whose body is the list of them. It is settled by the id of its first
one; the node settles the others with it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hms.client.destinations import Destination
from hms.client.message import Message
from hms.wire.packed_messages import FLAG_LAST, FLAG_PART, DeliveredRow

Delivered = tuple[DeliveredRow, bytes, Any]
"""Row, head and body of a delivered message; the body of a list is all of its messages."""


class Lists:
    """begun: what came of a list whose end has still to come."""

    def __init__(self) -> None:
        self.begun: list[Delivered] = []

    def whole(self, messages: Sequence[Delivered]) -> list[Delivered]:
        """What came, with one message for each list that is whole now."""
        found: list[Delivered] = []
        for delivered in messages:
            flags = delivered[0].flags
            if not flags & FLAG_PART:
                found.append(delivered)
                continue
            self.begun.append(delivered)
            if flags & FLAG_LAST:
                found.append(_as_one(self.begun))
                self.begun = []
        return found


def _as_one(parts: list[Delivered]) -> Delivered:
    """It has the row and the head of its first message, and expires with the first that does."""
    row, head, _ = parts[0]
    ends = [part[0].expires_at_ms for part in parts if part[0].expires_at_ms]
    return row._replace(expires_at_ms=min(ends, default=0)), head, parts


def list_message(
    delivered: Delivered, destination: Destination, acknowledge: Callable[[Message], Any]
) -> Message:
    """The application's message. ack() of it, or of any in it, acknowledges all."""
    row, head, parts = delivered
    messages: list[Message] = []
    whole = Message.received_list(row, head, messages, destination, acknowledge)
    for row_of_one, head_of_one, body in parts:
        one = Message.received(row_of_one, head_of_one, body, destination, lambda _: whole.ack())
        messages.append(one)
    return whole
