"""Cluster messages: what nodes send one another over their links.

One is a head, typed and bounded, and for an offer the heads and bodies of its messages behind it.
Times in it are durations, never points in time: the clocks of two nodes may differ.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated

import msgspec

from hms.errors.catalogue import ProtocolError
from hms.records import Entry
from hms.wire.packed_messages import KIND_COMPRESSED, KIND_NONE

_LENGTH = struct.Struct("<I")
WORD_BYTES_MAX = 1 << 20
"""The head of a word; a state of a thousand queues takes a tenth of it."""
POLICY_BYTES_MAX = WORD_BYTES_MAX - 1024
MESSAGES_PER_OFFER_MAX = 1024
VERSION_END = 1 << 48
"""Versions of an entry are below: each change makes one more of them."""
HEADS_MAX = 4
"""So many records of its audit a node remembers of another one."""
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
_Hash = Annotated[bytes, msgspec.Meta(max_length=32)]
_Name = Annotated[str, msgspec.Meta(max_length=1024)]
_encode = msgspec.msgpack.Encoder().encode


class QueueState(msgspec.Struct, frozen=True, array_like=True):
    """One global queue of the node that speaks."""

    name: _Name
    length: _Count
    consumers: _Count = 0
    rate: _Count = 0
    bytes: _Count = 0
    is_taking: bool = True


class Gossip(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """What a node has. is_whole: queues that it does not name have nothing and want nothing, else
    they are as they were told before. after: offers up to that number are counted in it."""

    number: _Count
    is_whole: bool
    after: _Count
    queues: Sequence[QueueState] = ()
    is_drained: bool = False


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """Count more messages of a queue are wanted than came with all offers up to that number. It
    replaces what was asked before. selectors: of the only consumers there; none takes all."""

    queue: _Name
    count: _Count
    after: _Count
    selectors: Sequence[str] = ()


class Moving(msgspec.Struct, frozen=True, array_like=True):
    """One message of an offer. age_ms, left_ms: since it was sent, until it expires (0: never)."""

    id: _Count
    timestamp_ms: _Count
    age_ms: _Count
    left_ms: _Count
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)]
    kind: Annotated[int, msgspec.Meta(ge=0, le=KIND_COMPRESSED | KIND_NONE)]
    head_bytes: _Count
    body_bytes: _Count
    is_persistent: bool
    deliveries: _Count = 0
    attempts: _Count = 0


class Offer(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    """Messages that their node serves no more and that the other one may have.

    store: the life of the other one's store that is meant; floor: offers below are answered.
    """

    number: _Count
    floor: _Count
    store: _Count
    queue: _Name
    messages: Sequence[Moving]


class Wish(msgspec.Struct, frozen=True, array_like=True, order=True):
    """What a subscriber of the node that speaks wants. is_durable: it is to be kept for it."""

    pattern: Annotated[str, msgspec.Meta(max_length=20_000)]
    scheme: _Name
    is_durable: bool
    selector: Annotated[str, msgspec.Meta(max_length=65_536)] = ""


class Interest(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """All that subscribers of the node want of global topics; it replaces what was told before."""

    wishes: Sequence[Wish] = ()


class DirectoryEntries(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """What the node that speaks knows of destinations that were changed at run time."""

    entries: Sequence[Entry] = ()


class Policy(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """The security document of the node that speaks, as its file has it. node: the one that made
    this version, as far as it is known. Said over encrypted links alone."""

    version: _Count
    node: _Count
    text: Annotated[str, msgspec.Meta(max_length=POLICY_BYTES_MAX)] = ""


class AuditHead(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """The last record of the audit of the node that speaks, and one that it remembers of the node
    that hears; number 0: none. shown: those of its own that it was asked for so, as they are now;
    the release before shows none."""

    number: _Count
    head: _Hash
    known_number: _Count = 0
    known_head: _Hash = b""
    shown: Annotated[tuple[tuple[_Count, _Hash], ...], msgspec.Meta(max_length=HEADS_MAX)] = ()


class AuditAsk(msgspec.Struct, frozen=True, array_like=True, tag="u"):
    """The node that hears is to verify its audit, which was to have that record when the one that
    asks last heard of it; number 0 of a record: none."""

    number: _Count
    known_number: _Count = 0
    known_head: _Hash = b""


class AuditTold(msgspec.Struct, frozen=True, array_like=True, tag="v"):
    """What a node has found of its own audit. number: of the question; broken: the first record
    that is not as it was; older: one that another node remembers, and that is not there; both 0
    when it is whole; why: in words."""

    number: _Count
    records: _Count = 0
    first: _Count = 0
    last: _Count = 0
    head: _Hash = b""
    broken: _Count = 0
    older: _Count = 0
    why: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """What became of an offer; recorded before it is said."""

    number: _Count
    is_accepted: bool
    reason: str = ""


Comparing = Policy | AuditHead | AuditAsk | AuditTold
"""What is said of policies and audits."""
ClusterMessage = Gossip | Ask | Offer | Answer | Interest | DirectoryEntries | Comparing
_decode = msgspec.msgpack.Decoder(ClusterMessage).decode


def encode_message(word: ClusterMessage, payloads: Sequence[bytes] = ()) -> bytes:
    """A cluster message as a link carries it."""
    head = _encode(word)
    return b"".join((_LENGTH.pack(len(head)), head, *payloads))


def decode_message(data: bytes) -> tuple[ClusterMessage, list[bytes]]:
    """A cluster message and what came with it, heads and bodies; ProtocolError for other bytes."""
    if len(data) < _LENGTH.size:
        raise ProtocolError(detail=f"a cluster message of {len(data)} bytes")
    (size,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + size
    if size > WORD_BYTES_MAX or start > len(data):
        raise ProtocolError(detail=f"a head of {size} bytes in a cluster message of {len(data)}")
    try:
        word = _decode(data[_LENGTH.size : start])
    except Exception as fault:  # msgspec also raises RecursionError and UnicodeDecodeError
        raise ProtocolError(detail=f"a cluster message that cannot be read: {fault}") from fault
    if isinstance(word, DirectoryEntries) and not all(
        0 <= one.version < VERSION_END for one in word.entries
    ):
        raise ProtocolError(detail="the version of an entry is out of range")
    return word, _payloads(word, data, start)


def _payloads(word: ClusterMessage, data: bytes, start: int) -> list[bytes]:
    messages = word.messages if isinstance(word, Offer) else ()
    if len(messages) > MESSAGES_PER_OFFER_MAX:
        raise ProtocolError(detail=f"an offer of {len(messages)} messages")
    lengths = [one.head_bytes + one.body_bytes for one in messages]
    if start + sum(lengths) != len(data):
        detail = f"a message of {len(data)} bytes says that it has {start + sum(lengths)}"
        raise ProtocolError(detail=detail)
    ends = accumulate(lengths, initial=start)
    return [data[a:b] for a, b in pairwise(ends)]
