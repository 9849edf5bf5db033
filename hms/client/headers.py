"""Header fields of a message: what its sender and the node say of it.

From the node, read-only: message_id, timestamp, destination, delivery_mode, expiration, priority,
redelivered, delivery_count; they are None (priority 4, counts 0) until a message is sent. From the
sender: correlation_id, reply_to, type. Each has a reserved property; three of these follow Tmax
where it differs from JMS:

    $TimeStamp    after a send the seconds from it to its reply, after a receive epoch seconds
    $Expiration   the time to live in seconds, 0.0 forever
    $Destination  the name alone
"""

from collections.abc import Callable

import hms.constants  # as an attribute of hms it would be looked for in modules that need this one
from field_buffer.types import FieldValue, String
from hms.client.destinations import Destination, Topic, parse_destination, topic_of
from hms.client.properties import Content
from hms.constants import DeliveryMode
from hms.errors.catalogue import (
    DestinationNameError,
    InvalidArgument,
    MessageFormatError,
    PropertyTypeError,
)
from hms.wire.packed_messages import (
    FLAG_IN_FLIGHT,
    FLAG_PERSISTENT,
    NODE_CLIENT,
    NODE_DELIVERY_TIME,
    NODE_RETAINED,
    NODE_TOPIC,
    NODE_USER,
    PRIORITY_DEFAULT,
    DeliveredRow,
)

_MS = 1000


class Headers:
    """The header fields; a Message is one of these."""

    __slots__ = ("_delay_ms", "_delivered", "_destination", "_elapsed_s", "_row")

    _row: DeliveredRow | None
    """What the node said last: of the delivery, or of the send when the message was sent since."""
    _delivered: DeliveredRow | None
    _destination: Destination | None
    _elapsed_s: float
    _delay_ms: int
    """Both there only after a send, so that a received message is not slower for them."""

    def readable(self) -> Content:
        """Properties and header texts, decoded when first asked for."""
        raise NotImplementedError

    @property
    def message_id(self) -> str | None:
        """12 hexadecimal digits, or None for a message that the node did not number (yet)."""
        row = self._row
        return f"{row.message_id:012x}" if row is not None and row.message_id else None

    @property
    def delivered_id(self) -> int:
        """The id under which it was delivered, also after it was sent on; 0 if it never was."""
        return 0 if self._delivered is None else self._delivered.message_id

    @property
    def destination(self) -> Destination | None:
        """Where it was sent to; of a subscriber with wildcards the very topic."""
        if isinstance(self._destination, Topic):
            return self.topic
        return self._destination

    @property
    def topic(self) -> Topic | None:
        """On which topic it was published, also where a subscription put it into a queue."""
        said = self._said_by_node(NODE_TOPIC)
        if isinstance(said, str):
            return topic_of(said)
        return self._destination if isinstance(self._destination, Topic) else None

    def _said_by_node(self, name: str) -> FieldValue | None:
        """What the node added to it, if it was delivered and not sent on since."""
        if self._delivered is None or self._row is not self._delivered:
            return None
        try:
            found: FieldValue | None = self.readable().node.get(name)
        except MessageFormatError:
            return None
        return found

    @property
    def is_retained(self) -> bool:
        """Whether its topic had kept it: it is no news."""
        return self._said_by_node(NODE_RETAINED) is True

    @property
    def timestamp_ms(self) -> int | None:
        """When the node took it, in milliseconds since 1970 UTC."""
        return None if self._row is None else self._row.timestamp_ms

    @property
    def timestamp(self) -> float | None:
        """When the node took it, in seconds since 1970 UTC."""
        return None if self._row is None else self._row.timestamp_ms / _MS

    @property
    def delivery_time_ms(self) -> int | None:
        """Before which time it is delivered to nobody (JMSDeliveryTime), in milliseconds since 1970
        UTC: when the node took it, later if it was sent with a delay."""
        if self._row is None:
            return None
        said = self._said_by_node(NODE_DELIVERY_TIME)
        if isinstance(said, int):
            return said
        if self._row is self._delivered:
            return self._row.timestamp_ms
        return self._row.timestamp_ms + (self._delay_ms or self.readable().delay_ms())

    @property
    def delivery_time(self) -> float | None:
        """The same in seconds since 1970 UTC."""
        at_ms = self.delivery_time_ms
        return None if at_ms is None else at_ms / _MS

    @property
    def expires_at_ms(self) -> int | None:
        """When it expires, in milliseconds since 1970 UTC; None for never."""
        return None if self._row is None else self._row.expires_at_ms or None

    @property
    def expiration(self) -> float | None:
        """When it expires, in seconds since 1970 UTC; None for never."""
        at_ms = self.expires_at_ms
        return None if at_ms is None else at_ms / _MS

    @property
    def delivery_mode(self) -> DeliveryMode | None:
        """Whether the node keeps it over a crash."""
        return None if self._row is None else DeliveryMode(self._row.flags & FLAG_PERSISTENT)

    @property
    def persistent(self) -> bool:
        """Whether the node keeps it over a crash; False until it is sent."""
        return self._row is not None and bool(self._row.flags & FLAG_PERSISTENT)

    @property
    def priority(self) -> int:
        """0 (last) to 9 (first)."""
        return PRIORITY_DEFAULT if self._row is None else self._row.priority

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included; 0 until it is."""
        return 0 if self._row is None else self._row.delivery_count

    @property
    def fencing_token(self) -> int:
        """Of a received persistent message: a number that rises with every delivery of the log it
        came from, also over restarts and when another machine takes over. A resource that keeps
        the highest one refuses a consumer that was overtaken. Else 0."""
        is_from_log = self._delivered is not None and self.persistent
        return self._delivered.fencing_token if self._delivered and is_from_log else 0

    @property
    def is_in_flight(self) -> bool:
        """Of a message that a browser shows: it is at a consumer, and not settled yet."""
        return self._delivered is not None and bool(self._delivered.flags & FLAG_IN_FLIGHT)

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before."""
        return self.delivery_count > 1

    @property
    def correlation_id(self) -> str | None:
        """What ties it to another message."""
        return self.readable().correlation_id

    @correlation_id.setter
    def correlation_id(self, text: str | None) -> None:
        self.readable().correlation_id = _text(text, hms.constants.HMSCorrelationID)

    @property
    def type(self) -> str | None:
        """The application's word for what it is."""
        return self.readable().type

    @type.setter  # noqa: A003 - JMS's name
    def type(self, text: str | None) -> None:
        self.readable().type = _text(text, hms.constants.HMSType)

    @property
    def reply_to(self) -> Destination | None:
        """Where an answer goes; a text such as "queue:answers" may be set too."""
        text = self.readable().reply_to
        try:
            return None if text is None else parse_destination(text)
        except DestinationNameError as fault:
            raise MessageFormatError(detail=f"its reply-to: {fault}") from fault

    @reply_to.setter
    def reply_to(self, destination: Destination | str | None) -> None:
        parsed = None if destination is None else parse_destination(destination)
        if isinstance(parsed, Topic) and parsed.is_joined:
            detail = "a topic object and a string; only the whole topic can be answered to"
            raise InvalidArgument(what="reply_to", detail=detail)
        self.readable().reply_to = None if parsed is None else _text(str(parsed), "$ReplyTo")

    def reserved(self, name: str) -> FieldValue | None:
        """The value of a reserved property, None when there is none."""
        reader = RESERVED.get(name)
        found: FieldValue | None = (
            self.readable().node.get(name) if reader is None else reader(self)
        )
        return found


def _text(text: str | None, name: str) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise PropertyTypeError(name=name, detail=f"a {type(text).__name__} is not a text")
    return str(String(text, name))


def _time_stamp(header: Headers) -> float | None:
    elapsed_s: float | None = getattr(header, "_elapsed_s", None)
    return header.timestamp if elapsed_s is None else elapsed_s


def _time_to_live_s(header: Headers) -> float | None:
    expires_at_ms, timestamp_ms = header.expires_at_ms, header.timestamp_ms
    if timestamp_ms is None:
        return None
    return 0.0 if expires_at_ms is None else (expires_at_ms - timestamp_ms) / _MS


def _destination_name(header: Headers) -> str | None:
    found = header.destination
    return found.said if isinstance(found, Topic) else None if found is None else found.name


def _delivery_mode(header: Headers) -> int | None:
    return None if header.delivery_mode is None else int(header.delivery_mode)


RESERVED: dict[str, Callable[[Headers], FieldValue | None]] = {
    hms.constants.HMSMessageID: lambda header: header.message_id,
    hms.constants.HMSTimeStamp: _time_stamp,
    hms.constants.HMSDestination: _destination_name,
    hms.constants.HMSDeliveryMode: _delivery_mode,
    hms.constants.HMSExpiration: _time_to_live_s,
    hms.constants.HMSCorrelationID: lambda header: header.correlation_id,
    hms.constants.HMSReplyTo: lambda header: header.readable().reply_to,
    hms.constants.HMSRedelivered: lambda header: header.redelivered,
    hms.constants.HMSType: lambda header: header.type,
    hms.constants.HMSPriority: lambda header: header.priority,
    hms.constants.HMSDeliveryCount: lambda header: header.delivery_count,
    NODE_DELIVERY_TIME: lambda header: header.delivery_time_ms,
    "JMSXDeliveryCount": lambda header: header.delivery_count,
    "JMSXUserID": lambda header: header.readable().node.get(NODE_USER),
    "JMSXAppID": lambda header: header.readable().node.get(NODE_CLIENT),
}
