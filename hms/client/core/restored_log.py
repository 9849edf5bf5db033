"""A restored log: messages that were in a backup say so.

The node tells in its WELCOME from which backup its store was restored, and below which id it gave
ids before that. The client notes it in the heads of such messages as they come, so neither the node
nor a client of another log does anything for it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from hms.errors.catalogue import MessageFormatError
from hms.wire.packed_messages import (
    DELIVERED_ROW,
    HEAD_BYTES_READ_MAX,
    ID_COUNTER_BITS,
    NODE_RESTORED,
    DeliveredRow,
    decode_head,
    encode_head,
)
from hms.wire.structures import InvokeHead, Welcome

__all__ = ["RestoredLog"]

_Delivered = tuple[DeliveredRow, bytes, bytes]


class RestoredLog(NamedTuple):
    """said: the backup, and the moment; first, below: the ids that the node gave before."""

    said: str
    first: int
    below: int

    @classmethod
    def told_by(cls, welcome: Welcome) -> "RestoredLog | None":
        """None for a node whose store was never restored."""
        below = welcome.restored_below
        if not below:
            return None
        return cls(welcome.restored_from, below >> ID_COUNTER_BITS << ID_COUNTER_BITS, below)

    def noted(self, delivered: Iterable[_Delivered]) -> list[_Delivered]:
        """With heads that say so of each message whose id was given before."""
        return [
            self._noted(*one) if self.first <= one[0].message_id < self.below else one
            for one in delivered
        ]

    def invoked(self, head: InvokeHead) -> InvokeHead:
        """The same of a listener's message."""
        row = DeliveredRow._make(DELIVERED_ROW.unpack(head.delivered))
        ((row, data, _),) = self.noted([(row, head.head, b"")])
        return replace(head, head=data, delivered=DELIVERED_ROW.pack(*row))

    def _noted(self, row: DeliveredRow, data: bytes, body: bytes) -> _Delivered:
        try:
            head = decode_head(data)
        except MessageFormatError:
            return row, data, body  # its reader is told so when it asks
        made = encode_head(replace(head, node={**head.node, NODE_RESTORED: self.said}))
        if len(made) > HEAD_BYTES_READ_MAX:
            return row, data, body
        return row._replace(head_bytes=len(made)), made, body
