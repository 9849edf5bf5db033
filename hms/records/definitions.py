"""Records that define places and numbers, by which other records name them."""

import struct
from collections.abc import Sequence

import msgspec

from hms.records.identity import Identity
from hms.records.kinds import Record, RecordType
from hms.records.sent import PLACEMENT_BYTES_MAX

_NUMBER = struct.Struct("<Q")
CHANGES_BYTES = 64
"""Growth of a definition that is not checked: its number, and the word for a pause."""
_encode = msgspec.msgpack.Encoder().encode


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place that the log speaks of by its number.

    kind: "queue", "topic", "subscription" (a durable one; topic is then the number of the topic
    whose attributes it has, 0 for the node's) or "retained". topic_string: of a topic where it is
    not its name, of a subscription where it is not its topic's; scheme: how its wildcards are
    written. queue: where what it takes is put; retained, life_ms: see Subscription. altered: what
    was set on a queue or topic while the node ran; paused, made: see Control. owner: the user who
    made a subscription, where logins are checked; client_uid: the client that made a temporary
    destination.
    """

    number: int
    kind: str
    name: str
    topic: int = 0
    selector: str = ""
    is_no_local: bool = False
    client_id: str = ""
    is_shared: bool = False
    is_configured: bool = False
    topic_string: str = ""
    scheme: str = ""
    queue: int = 0
    correlation_id: str = ""
    retained: str = ""
    created_ms: int = 0
    life_ms: int = 0
    altered: dict[str, str | int | float | bool] = {}
    paused: str = ""
    made: str = ""
    owner: str = ""
    client_uid: int = 0

    @property
    def size_bytes(self) -> int:
        """What it takes in a segment at most: in the dictionary, also with another number and when
        it is paused, and, of a subscription, in each record of a publication."""
        place = PLACEMENT_BYTES_MAX if self.kind == "subscription" else 0
        return len(_encode(self)) + CHANGES_BYTES + place


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """leader: the replica that leads; take_overs: how often another one had led before and did not
    hand over; switchovers: how often it did; both since the log began."""

    leader: str = ""
    take_overs: int = 0
    switchovers: int = 0

    def led_by(self, leader: str, *, is_planned: bool) -> "Terms":
        """As it is when that one leads; the first one takes nothing over."""
        if not self.leader or self.leader == leader:
            return Terms(leader, self.take_overs, self.switchovers)
        return Terms(
            leader, self.take_overs + (not is_planned), self.switchovers + bool(is_planned)
        )


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """What opens every segment, so that it reads alone, and a log whose beginning was retired
    still knows which numbers were given."""

    definitions: Sequence[Definition]
    ids_below: int = 0
    next_number: int = 0
    next_seq: int = 0
    now_ms: int = 0
    identity: Identity = Identity()
    audit_number: int = 0
    audit_head: bytes = b""
    terms: Terms = Terms()


class NodeEvent(msgspec.Struct, frozen=True):
    """what: "booted", "stopped" or "configured"; boot: "WARM" or "COLD"; copies: which ones count
    from here on, who leads them in which epoch, and why; terms: how often that changed."""

    what: str
    at_ms: int
    boot: str = ""
    version: str = ""
    copies: str = ""
    terms: Terms = Terms()


def defined(definition: Definition) -> Record:
    """A place was created."""
    return Record(RecordType.DEFINED, 1, (_encode(definition),))


def undefined(number: int) -> Record:
    """A place was deleted."""
    return Record(RecordType.UNDEFINED, 1, (_NUMBER.pack(number),))


def decode_definition(payload: bytes | memoryview) -> Definition:
    """A DEFINED record's payload."""
    return msgspec.msgpack.decode(payload, type=Definition)


def decode_number(payload: bytes | memoryview) -> int:
    """The payload of UNDEFINED (a place's number) or RESERVED (a message id)."""
    number: int = _NUMBER.unpack(payload)[0]
    return number


def reserved(below: int) -> Record:
    """Message ids below this one are never assigned again."""
    return Record(RecordType.RESERVED, 1, (_NUMBER.pack(below),))


def dictionary(content: Snapshot) -> Record:
    """The first record of a segment."""
    return Record(RecordType.DICTIONARY, 1, (_encode(content),))


def decode_dictionary(payload: bytes | memoryview) -> Snapshot:
    """A DICTIONARY record's payload."""
    return msgspec.msgpack.decode(payload, type=Snapshot)


def node_event(event: NodeEvent) -> Record:
    """The node booted or stopped, or the set of copies that count has changed."""
    return Record(RecordType.NODE, 1, (_encode(event),))


def decode_node_event(payload: bytes | memoryview) -> NodeEvent:
    """A NODE record's payload."""
    return msgspec.msgpack.decode(payload, type=NodeEvent)
