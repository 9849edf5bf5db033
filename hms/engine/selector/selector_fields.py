"""Header fields that a selector may name, and what it sees under each name (JMS 3.1 §3.8.1.1).

Each field has JMS's name and ours, which begins with $. Where the two differ, each says what a
receiver reads under it. A name that looks like a header field and is none is refused when the
selector is given: it would be absent from every message, and the selector silently false.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from hms.engine.messages import StoredMessage, message_id_text
from hms.engine.selector import Selector
from hms.engine.selector.lexer import read_tokens
from hms.errors.catalogue import SelectorSyntaxError
from hms.wire.packed_messages import (
    NODE_CLIENT,
    NODE_DELIVERY_TIME,
    NODE_FILE,
    NODE_FILE_BYTES,
    NODE_FILE_DIGEST,
    NODE_FILE_NAME,
    NODE_FILE_URL,
    NODE_IMPORTED_ID,
    NODE_ORDER_CLOCK,
    NODE_RETAINED,
    NODE_TOPIC,
    NODE_USER,
    Head,
)

_MS = 1000
_SETTABLE = frozenset(("JMSXGroupID", "JMSXGroupSeq"))
"""Properties that a sender sets; so are all that begin with JMS_."""

_Field = Callable[[StoredMessage, Head], object]


def _delivery_time(message: StoredMessage, head: Head) -> object:
    return head.node.get(NODE_DELIVERY_TIME, message.timestamp_ms)


def _time_to_live_s(message: StoredMessage, _: Head) -> float:
    return max(0, message.expires_at_ms - message.timestamp_ms) / _MS


_FIELDS: dict[str, _Field] = {
    "JMSMessageID": lambda m, _: message_id_text(m.id),
    "$MessageID": lambda m, _: message_id_text(m.id),
    "JMSTimestamp": lambda m, _: m.timestamp_ms,
    "$TimeStamp": lambda m, _: m.timestamp_ms / _MS,
    "JMSPriority": lambda m, _: m.priority,
    "$Priority": lambda m, _: m.priority,
    "JMSDeliveryMode": lambda m, _: "PERSISTENT" if m.is_persistent else "NON_PERSISTENT",
    "$DeliveryMode": lambda m, _: int(m.is_persistent),
    "JMSExpiration": lambda m, _: m.expires_at_ms,
    "$Expiration": _time_to_live_s,
    "JMSDeliveryTime": _delivery_time,
    NODE_DELIVERY_TIME: _delivery_time,
    "JMSCorrelationID": lambda _, head: head.correlation_id,
    "$CorrelationID": lambda _, head: head.correlation_id,
    "JMSType": lambda _, head: head.type,
    "$Type": lambda _, head: head.type,
    "JMSReplyTo": lambda _, head: head.reply_to,
    "$ReplyTo": lambda _, head: head.reply_to,
    "JMSXUserID": lambda _, head: head.node.get(NODE_USER),
    "JMSXAppID": lambda _, head: head.node.get(NODE_CLIENT),
}
ADDED = frozenset(
    (
        *(NODE_TOPIC, NODE_RETAINED, NODE_ORDER_CLOCK, NODE_USER, NODE_CLIENT),
        *(NODE_FILE, NODE_FILE_BYTES, NODE_FILE_DIGEST, NODE_FILE_NAME, NODE_FILE_URL),
        *("$DeadReason", "$DeadOrigin", "$DeadTime", "$DeadCount", "$DeadSubscription"),
        *("$ReturnCount", NODE_IMPORTED_ID),
        *("$OriginalMessageID", "$ScheduleName", "$ScheduledTime", "$ScheduleCount"),
    )
)
"""What the node adds to some messages, and only to them."""
NAMES = frozenset(_FIELDS) | ADDED
_OF_A_DELIVERY = frozenset(
    f"{prefix}{name}"
    for prefix in ("JMS", "JMSX", "$")
    for name in ("Destination", "Redelivered", "DeliveryCount", "RestoredFrom")
)


def selector_view(message: StoredMessage, names: AbstractSet[str]) -> dict[str, object]:
    """The values that a selector over these names sees: properties and header fields."""
    head = message.head()
    view: dict[str, object] = dict(head.properties)
    for name in names:
        reader = _FIELDS.get(name)
        if reader is not None:
            value = reader(message, head)
            if value is not None:
                view[name] = value
        elif name in head.node:
            view[name] = head.node[name]
    return view


def checked_selector(text: str) -> Selector | None:
    """The selector that somebody gives, None for a blank one; SelectorSyntaxError also for a name
    that looks like a header field and is none."""
    selector = Selector(text)
    for token in read_tokens(text) if selector.names else ():
        if token.kind == "name" and not _is_name(token.text):
            detail = f"there is no header field {token.text}"
            if token.text in _OF_A_DELIVERY:
                detail = f"{token.text} belongs to a delivery, not to the message"
            raise SelectorSyntaxError(position=token.position, detail=detail)
    return selector if text.strip() else None


def _is_name(name: str) -> bool:
    """Whether a message may have a property or header field of that name."""
    if not name.startswith(("$", "JMS")) or name.startswith("JMS_"):
        return True
    return name in NAMES or name in _SETTABLE
