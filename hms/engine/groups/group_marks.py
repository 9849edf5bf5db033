"""Marks: how a message says that it belongs to a group or to a global order.

Most messages say nothing of the kind, so a head is decoded only if the bytes of one of the names
are in it. What became a dead letter belongs to nothing any more.
"""

from typing import NamedTuple

from hms.engine.messages import StoredMessage
from hms.errors.catalogue import GroupMessageInvalid
from hms.wire.packed_messages import NODE_ORDER_CLOCK, PROPERTY_GLOBAL_ORDER, Head

GROUP_ID, GROUP_SEQ = "JMSXGroupID", "JMSXGroupSeq"
GROUP_MESSAGES_MAX = 1000
"""A gathered group is acknowledged by one record."""
_PREFIXES = ("", "JMS_HMS_MSG_", "JMS_JEUS_MSG_")
_NAME, _NUMBERING, _END = "GROUP_NAME", "GROUP_NUMBERING", "GROUP_END"
_ID_BYTES, _CLOCK_BYTES, _NAME_BYTES = (w.encode() for w in (GROUP_ID, NODE_ORDER_CLOCK, _NAME))
_DEAD = "$DeadReason"


class Mark(NamedTuple):
    """kind: "order", "group" or "gather". number: the clock of an order, or the place in a gathered
    group; is_end: the group ends with it."""

    kind: str
    name: str
    number: int = 0
    is_end: bool = False


def may_be_marked(pack: bytes) -> bool:
    """Whether a message of a pack may belong to a group or an order, where no place gathers."""
    return _CLOCK_BYTES in pack or _ID_BYTES in pack


def mark_of(message: StoredMessage, *, gathers: bool) -> Mark | None:
    """What a message belongs to; gathers: whether its place gathers groups."""
    payload, end = message.payload, message.head_bytes
    if payload.find(_CLOCK_BYTES, 0, end) >= 0 or payload.find(_ID_BYTES, 0, end) >= 0:
        return _mark(message.head(), gathers=gathers)
    if gathers and payload.find(_NAME_BYTES, 0, end) >= 0:
        return _mark(message.head(), gathers=gathers)
    return None


def _mark(head: Head, *, gathers: bool) -> Mark | None:
    if _DEAD in head.node:
        return None
    if gathers:
        found = gathered(head)
        if found is not None and not isinstance(found, str):
            return found
    name = head.properties.get(PROPERTY_GLOBAL_ORDER)
    clock = head.node.get(NODE_ORDER_CLOCK)
    if isinstance(name, str) and isinstance(clock, int):
        return Mark("order", name, clock)
    name = head.properties.get(GROUP_ID)
    if not isinstance(name, str) or not name:
        return None
    number = head.properties.get(GROUP_SEQ, 0)
    return Mark("group", name, is_end=isinstance(number, int) and number < 0)


def gathered(head: Head) -> Mark | str | None:
    """The place of a message in a group to be gathered; a text says what is wrong with it, None
    that it belongs to none."""
    own = head.properties
    prefix = next((p for p in _PREFIXES if p + _NAME in own), None)
    if prefix is None:
        return None
    name, number = own[prefix + _NAME], own.get(prefix + _NUMBERING)
    if not isinstance(name, str) or not name:
        return f"{prefix}{_NAME} is not a text"
    if isinstance(number, bool) or not isinstance(number, int):
        return f"{prefix}{_NUMBERING} is no whole number"
    if not 1 <= number <= GROUP_MESSAGES_MAX:
        return f"{prefix}{_NUMBERING} is {number}, not 1 to {GROUP_MESSAGES_MAX}"
    is_end = own.get(prefix + _END, False)
    if not isinstance(is_end, bool):
        return f"{prefix}{_END} is not a boolean"
    return Mark("gather", name, number, is_end)


def checked_mark(destination: str, head: Head) -> Mark | None:
    """The same for a message that is sent: GroupMessageInvalid."""
    found = gathered(head)
    if isinstance(found, str):
        raise GroupMessageInvalid(destination=destination, detail=found)
    return found
