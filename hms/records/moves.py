"""OFFERED, ARRIVED, OFFER_ENDED, PEERS and ENTRIES: what a node of a cluster has to remember.

The node that gives records what it offers, the one that takes records that it took or refused, and
the one that gives then records the end. PEERS tells what is still needed of all of them, once for
each boot and once for each turn of the log.
"""

from collections.abc import Sequence

import msgspec

from hms.records.kinds import Record, RecordType

_encode = msgspec.msgpack.Encoder().encode


class Offered(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a place are offered to a node and served by nobody until it has answered.

    peer: that node's index; store: the life of its store that is meant; offer: counted for each
    node, from 1; spans: ids of persistent ones.
    """

    place: int
    at_ms: int
    peer: int
    store: int
    offer: int
    spans: Sequence[tuple[int, int]] = ()


class Arrived(msgspec.Struct, frozen=True, array_like=True):
    """An offer of another node was taken, or refused for good.

    source: its index; store: the life of its store; place: of the queue; returned: (id, deliveries,
    attempts) of messages that had been delivered there before.
    """

    source: int
    store: int
    offer: int
    is_accepted: bool
    at_ms: int
    place: int = 0
    returned: Sequence[tuple[int, int, int]] = ()


class OfferEnded(msgspec.Struct, frozen=True, array_like=True):
    """An offer was answered. is_redelivered: its outcome is not known, so it is delivered again."""

    peer: int
    offer: int
    is_accepted: bool
    at_ms: int
    is_redelivered: bool = False


class PeerMemory(msgspec.Struct, frozen=True, array_like=True):
    """What is known with a node.

    next_offer: the number of the next offer to it; target: the life of the store it is meant for.
    store, floor, decided: of its own offers, made by that life of its store: all below the floor
    are done with, of later ones (number, whether it was accepted).
    """

    peer: int
    next_offer: int = 1
    target: int = 0
    store: int = 0
    floor: int = 1
    decided: Sequence[tuple[int, bool]] = ()


class Peers(msgspec.Struct, frozen=True, array_like=True):
    """life: when this store came to be; incarnation: how often it was booted."""

    life: int
    incarnation: int
    peers: Sequence[PeerMemory] = ()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A destination that was created, altered or deleted at run time, as the cluster has it.

    version: grows with each change; node: the index of the node that made it.
    """

    kind: str
    name: str
    version: int
    node: int
    is_deleted: bool
    attributes: dict[str, str | int | float | bool] = {}
    topic_string: str = ""
    paused: str = ""


def offered(content: Offered) -> Record:
    """An OFFERED record."""
    return Record(RecordType.OFFERED, 1, (_encode(content),))


def arrived(content: Arrived) -> Record:
    """An ARRIVED record."""
    return Record(RecordType.ARRIVED, 1, (_encode(content),))


def offer_ended(content: OfferEnded) -> Record:
    """An OFFER_ENDED record."""
    return Record(RecordType.OFFER_ENDED, 1, (_encode(content),))


def peers(content: Peers) -> Record:
    """A PEERS record."""
    return Record(RecordType.PEERS, 1, (_encode(content),))


def decode_offered(payload: bytes | memoryview) -> Offered:
    """An OFFERED record's payload."""
    return msgspec.msgpack.decode(payload, type=Offered)


def decode_arrived(payload: bytes | memoryview) -> Arrived:
    """An ARRIVED record's payload."""
    return msgspec.msgpack.decode(payload, type=Arrived)


def decode_offer_ended(payload: bytes | memoryview) -> OfferEnded:
    """An OFFER_ENDED record's payload."""
    return msgspec.msgpack.decode(payload, type=OfferEnded)


def decode_peers(payload: bytes | memoryview) -> Peers:
    """A PEERS record's payload."""
    return msgspec.msgpack.decode(payload, type=Peers)


def entries(content: Sequence[Entry]) -> Record:
    """An ENTRIES record."""
    return Record(RecordType.ENTRIES, 1, (_encode(content),))


def decode_entries(payload: bytes | memoryview) -> list[Entry]:
    """An ENTRIES record's payload."""
    return msgspec.msgpack.decode(payload, type=list[Entry])
