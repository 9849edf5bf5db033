"""Global order: messages that are handed out strictly one after the other (F-C16).

The sender names the order in a property and marks the row. The node stamps each message, when it
is stored, with the time of its *order clock*: the milliseconds since 1970 UTC and, below them, a
count, always higher than any that it has seen. So within a node the clock is the order of arrival,
and nodes that show each other their messages can put them in one order, by clock and message id,
that agrees with what was sent because of what (docs/decisions/0026).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from hms.errors.catalogue import InvalidArgument, MessageFormatError, MessageTooLarge
from hms.wire.packed_messages import (
    FLAG_ORDER,
    HEAD_BYTES_MAX,
    NODE_ORDER_CLOCK,
    PROPERTY_GLOBAL_ORDER,
    ROW,
    Row,
    decode_head,
    encode_head,
    with_heads,
)

if TYPE_CHECKING:
    from hms.engine.groups.message_groups import MessageGroups
    from hms.engine.state import State

ORDER_STAMP_BYTES = 64
"""More than what the clock takes in a head."""
_COUNT_BITS = 16
_FLAGS_AT = 26
"""Where in a row its flags stand."""

__all__ = ["check_order", "is_ordered", "stamp_bytes", "stamped_with_clock"]


def is_ordered(pack: bytes | memoryview, count: int) -> bool:
    """Whether some message of a batch belongs to a global order."""
    if count == 1:
        return bool(pack[_FLAGS_AT] & FLAG_ORDER)
    flags = memoryview(pack)[_FLAGS_AT : count * ROW.size : ROW.size]
    return any(flags) and any(each & FLAG_ORDER for each in flags)


def stamp_bytes(pack: bytes | memoryview, count: int) -> int:
    """What the stamps of a batch add to it."""
    return ORDER_STAMP_BYTES * count if is_ordered(pack, count) else 0


def check_order(rows: Sequence[Row], pack: bytes | memoryview) -> None:
    """Refuse a message that is marked and names no order; InvalidArgument, MessageTooLarge."""
    limit = HEAD_BYTES_MAX - ORDER_STAMP_BYTES
    for row, head in zip(rows, heads_of(rows, pack), strict=True):
        if not row.flags & FLAG_ORDER:
            continue
        if row.head_bytes > limit:
            raise MessageTooLarge(size=row.head_bytes, limit=limit)
        try:
            name = decode_head(head).properties.get(PROPERTY_GLOBAL_ORDER)
        except MessageFormatError as fault:
            raise InvalidArgument(what="global order", detail=str(fault)) from fault
        if not isinstance(name, str) or not name:
            detail = f"the message does not name it in {PROPERTY_GLOBAL_ORDER}"
            raise InvalidArgument(what="global order", detail=detail)


def heads_of(rows: Sequence[Row], pack: bytes | memoryview) -> list[bytes]:
    """The heads of a batch; no body is copied."""
    view, at = memoryview(pack), len(rows) * ROW.size
    heads = []
    for row in rows:
        heads.append(bytes(view[at : at + row.head_bytes]))
        at += row.head_bytes + row.body_bytes
    return heads


def stamped_with_clock(
    state: "State",
    rows: Sequence[Row],
    pack: bytes | memoryview,
    groups: "MessageGroups | None" = None,
) -> tuple[list[Row], memoryview]:
    """The batch with heads that say when their messages were taken, by the order clock; groups: of
    the queue, which may have messages of another node whose clock is ahead."""
    if groups is not None:
        state.order_clock = max(state.order_clock, groups.clock)

    def stamped(row: Row, head: bytes) -> bytes:
        if not row.flags & FLAG_ORDER:
            return head
        state.order_clock = max(state.order_clock + 1, state.now_ms << _COUNT_BITS)
        return _with_clock(head, state.order_clock)

    return with_heads(rows, pack, stamped)


def _with_clock(data: bytes, clock: int) -> bytes:
    head = decode_head(data)  # it was readable when it was checked
    node = dict(head.node) | {NODE_ORDER_CLOCK: clock}
    return encode_head(msgspec.structs.replace(head, node=node))
