"""What each record means, in one place: for the engine that reads a log and for a store in tables.

A transition decodes its record and tells a `Target` what it changes there. What keeps the state is
a target: the recovery of the engine (hms/engine/log/recovery.py), which may follow a log that
still grows, and the rows of a database (hms/store/database/translation.py).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Protocol

from hms.records.definitions import (
    Definition,
    NodeEvent,
    Terms,
    decode_definition,
    decode_dictionary,
    decode_node_event,
    decode_number,
)
from hms.records.groups import decode_group
from hms.records.identity import Identity, decode_identity
from hms.records.kept import Kept, Memory, decode_memory, decode_moved
from hms.records.kinds import RecordType
from hms.records.message_states import STEPS, Steps
from hms.records.ranges import Ranges, decode_ranges
from hms.records.sent import Sent, decode_sent
from hms.wire.packed_messages import ROW

__all__ = ["TABLE_TRANSITIONS", "Payload", "Tables", "Target", "Transition", "transitions_of"]

Payload = bytes | memoryview


class Tables(Protocol):
    """The state of a node beside messages: definitions, numbers, identity, and what was taken."""

    def at(self, now_ms: int) -> None:
        """The time that a record names."""

    def numbered(self, *, ids_below: int = 0, next_number: int = 0, next_seq: int = 0) -> None:
        """Numbers below these may have been given away: of messages, places, and in the order of
        arrival."""

    def identified(self, identity: Identity) -> None:
        """The identity of the store."""

    def audited(self, number: int, head: bytes) -> None:
        """How long the audit's chain is, and what its next record continues."""

    def led(self, terms: Terms) -> None:
        """Who leads the copies of this log, and how often that changed; nobody: not known."""

    def node_event(self, event: NodeEvent) -> None:
        """The node booted or stopped."""

    def define(self, definition: Definition) -> None:
        """A place exists, with this definition; it may be known already."""

    def undefine(self, number: int) -> None:
        """A place is gone with all that it holds."""

    def committed(self, client_uid: int, session: int, number: int) -> None:
        """A session's commit took effect."""

    def remember(self, content: Memory) -> None:
        """Sends, commits and branches that were taken, written again."""


class Target(Tables, Protocol):
    """The same with messages. Positions say where bytes lie in the log."""

    def apply(self, kind: int, payload: Payload, position: int) -> None:
        """A record of a group; its payload lies at that position."""

    def sent(self, record: Sent, position: int) -> None:
        """Messages came; the head of the first one lies at that position."""

    def taken(self, record: Sent) -> None:
        """A producer's batch was taken."""

    def moved(self, kept: Sequence[Kept], payload: Payload, start: int, position: int) -> None:
        """Messages are as this says, whatever was known of them. The head of the first one begins
        at `start` in the payload, and lies at that position."""

    def step(self, kind: RecordType, steps: Steps, told: Ranges) -> None:
        """Messages at a place went out, or came back."""

    def leave(self, told: Ranges) -> None:
        """Messages left a place for good."""


Transition = Callable[[Payload, int], None]
"""Takes a record's payload and the position where it lies."""
_OfTables = Callable[[Tables, Payload, int], None]
_OfMessages = Callable[[Target, Payload, int], None]


def _defined(tables: Tables, payload: Payload, _position: int) -> None:
    tables.define(decode_definition(payload))


def _undefined(tables: Tables, payload: Payload, _position: int) -> None:
    tables.undefine(decode_number(payload))


def _sent(target: Target, payload: Payload, position: int) -> None:
    record = decode_sent(payload)
    count = record.message_count
    if not record.is_forwarded:  # another node's clock may have said when that was sent
        target.at(record.timestamp_ms)
    target.numbered(next_seq=record.first_seq + count)
    target.sent(record, position + record.pack_offset + ROW.size * count)
    if record.first_sequence:
        target.taken(record)


def _step(kind: RecordType) -> _OfMessages:
    steps = STEPS[kind]

    def step(target: Target, payload: Payload, _position: int) -> None:
        told = decode_ranges(payload)
        target.at(told.at_ms)
        target.step(kind, steps, told)

    return step


def _left(target: Target, payload: Payload, _position: int) -> None:
    told = decode_ranges(payload)
    target.at(told.at_ms)
    target.leave(told)


def _group(target: Target, payload: Payload, position: int) -> None:
    group = decode_group(payload)
    for record, offset in zip(group.records, group.offsets, strict=True):
        target.apply(record.type, record.parts[0], position + offset)
    if group.commit:
        target.committed(group.client_uid, group.session, group.commit)


def _reserved(tables: Tables, payload: Payload, _position: int) -> None:
    tables.numbered(ids_below=decode_number(payload))


def _dictionary(tables: Tables, payload: Payload, _position: int) -> None:
    content = decode_dictionary(payload)
    for definition in content.definitions:
        tables.define(definition)
    tables.numbered(
        ids_below=content.ids_below, next_number=content.next_number, next_seq=content.next_seq
    )
    tables.at(content.now_ms)
    if content.identity.store:
        tables.identified(content.identity)
    tables.audited(content.audit_number, content.audit_head)
    tables.led(content.terms)


def _node(tables: Tables, payload: Payload, _position: int) -> None:
    event = decode_node_event(payload)
    tables.at(event.at_ms)
    tables.node_event(event)
    tables.led(event.terms)


def _identity(tables: Tables, payload: Payload, _position: int) -> None:
    tables.identified(decode_identity(payload))


def _moved(target: Target, payload: Payload, position: int) -> None:
    kept, start = decode_moved(payload)
    target.numbered(next_seq=max([one.seq + 1 for one in kept], default=0))
    target.moved(kept, payload, start, position + start)


def _memory(tables: Tables, payload: Payload, _position: int) -> None:
    tables.remember(decode_memory(payload))


TABLE_TRANSITIONS: Mapping[int, _OfTables] = MappingProxyType(
    {
        RecordType.DEFINED: _defined,
        RecordType.UNDEFINED: _undefined,
        RecordType.RESERVED: _reserved,
        RecordType.DICTIONARY: _dictionary,
        RecordType.NODE: _node,
        RecordType.IDENTITY: _identity,
        RecordType.MEMORY: _memory,
    }
)
_MESSAGE_TRANSITIONS: Mapping[int, _OfMessages] = MappingProxyType(
    {
        RecordType.SENT: _sent,
        **{kind: _step(kind) for kind in STEPS},
        RecordType.ACKNOWLEDGED: _left,
        RecordType.DISCARDED: _left,
        RecordType.GROUP: _group,
        RecordType.MOVED: _moved,
    }
)


def transitions_of(target: Target) -> dict[int, Transition]:
    """By type of record, what it does to that target. What records say of branches, of moves and in
    the audit is not among them: only the engine makes more of it than a record to keep."""
    every: Mapping[int, _OfMessages] = {**TABLE_TRANSITIONS, **_MESSAGE_TRANSITIONS}
    return {kind: partial(transition, target) for kind, transition in every.items()}
