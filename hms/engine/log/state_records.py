"""Records that change the node's tables: definitions, identity, decisions, moves, audit.

The function that applies such a record is the same live and in recovery: who writes one lets
`write` apply it, and changes the tables by nothing else. So a record says all that it means.
What happens to messages is not among them: live it is the work of pending lists and consumers, and
a log that is read back has neither (recovery.py; docs/decisions/0053).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hms.engine.effects import Effects
from hms.engine.queue.destinations import Queue, Subscription
from hms.engine.state import State
from hms.records import (
    Definition,
    Identity,
    Memory,
    NodeEvent,
    Record,
    RecordType,
    Terms,
    decode_arrived,
    decode_decided,
    decode_offered,
)
from hms.records.audit import decode_audit
from hms.records.moves import decode_entries, decode_peers
from hms.records.transitions import TABLE_TRANSITIONS, Payload

__all__ = ["STATE_TRANSITIONS", "StateTables", "applied", "write"]


class StateTables:
    """The tables of an engine's state, as records change them."""

    def __init__(self, state: State) -> None:
        self.state = state

    def at(self, now_ms: int) -> None:
        """Time never runs backwards."""
        self.state.now_ms = max(self.state.now_ms, now_ms)

    def numbered(self, *, ids_below: int = 0, next_number: int = 0, next_seq: int = 0) -> None:
        """The largest of all; ids of other nodes do not count."""
        state = self.state
        state.ids.reserved(ids_below)
        state.next_number = max(state.next_number, next_number)
        state.next_seq = max(state.next_seq, next_seq)

    def identified(self, identity: Identity) -> None:
        """The last one holds."""
        self.state.identity = identity

    def audited(self, number: int, head: bytes) -> None:
        """The chain goes on there."""
        self.state.audit.restore(number, head)

    def led(self, terms: Terms) -> None:
        """The last one that is known."""
        if terms.leader:
            self.state.terms = terms

    def node_event(self, event: NodeEvent) -> None:
        """The last boot or stop is known."""
        if event.what in ("booted", "stopped"):
            self.state.last_event = event.what

    def define(self, definition: Definition) -> None:
        """A segment's dictionary tells again what was defined before it, and may be taken just
        before the record that it tells of."""
        state = self.state
        known = state.places.get(definition.number)
        if isinstance(known, Subscription):
            state.redefine(known, definition)
        elif known is None and not state.space.defines(definition.number):
            state.define(definition)
        elif definition.kind in ("queue", "topic"):
            topic = state.space.numbered(definition.number)
            state.reconfigure(known if isinstance(known, Queue) else topic, definition)

    def undefine(self, number: int) -> None:
        """It is not found by its number any more."""
        state = self.state
        place = state.places.get(number)
        if isinstance(place, Subscription):
            state.undefine(place)
        elif place is not None:
            state.undefine_destination(place)
        elif state.space.defines(number):
            state.undefine_destination(state.space.numbered(number))

    def committed(self, client_uid: int, session: int, number: int) -> None:
        """Who asks again is told so."""
        self.state.memories.committed(client_uid, session, number)

    def remember(self, content: Memory) -> None:
        """What it says of a producer takes the place of what was known."""
        self.state.memories.restore(content)
        for xid in content.branches:
            self.state.branches.remember(xid)


def _audit(tables: StateTables, payload: Payload, _position: int) -> None:
    tables.state.audit.read_back(decode_audit(payload))


def _decided(tables: StateTables, payload: Payload, _position: int) -> None:
    content = decode_decided(payload)
    tables.at(content.at_ms)
    tables.state.decisions.keep(content)


def _forgotten(tables: StateTables, payload: Payload, _position: int) -> None:
    tables.state.decisions.drop(bytes(payload))


def _offered(tables: StateTables, payload: Payload, _position: int) -> None:
    told = decode_offered(payload)
    tables.state.moves.numbered(told.peer, told.store, told.offer)


def _arrived(tables: StateTables, payload: Payload, _position: int) -> None:
    told = decode_arrived(payload)
    tables.at(told.at_ms)
    said = told.source, told.store, told.offer
    tables.state.moves.answered(*said, is_accepted=told.is_accepted)


def _peers(tables: StateTables, payload: Payload, _position: int) -> None:
    tables.state.moves.restore(decode_peers(payload))


def _entries(tables: StateTables, payload: Payload, _position: int) -> None:
    known = tables.state.moves.directory
    known.update(((one.kind, one.name), one) for one in decode_entries(payload))


STATE_TRANSITIONS: Mapping[int, Callable[[StateTables, Payload, int], None]] = MappingProxyType(
    {
        **TABLE_TRANSITIONS,
        RecordType.AUDIT: _audit,
        RecordType.DECIDED: _decided,
        RecordType.FORGOTTEN: _forgotten,
        RecordType.OFFERED: _offered,
        RecordType.ARRIVED: _arrived,
        RecordType.PEERS: _peers,
        RecordType.ENTRIES: _entries,
    }
)


def write(state: State, record: Record, fx: Effects) -> None:
    """A record goes to the log, and what it says holds from now on."""
    fx.records.append(applied(state, record))


def applied(state: State, record: Record) -> Record:
    """A record that is written with others; what it says holds from now on."""
    STATE_TRANSITIONS[record.type](StateTables(state), record.parts[0], 0)
    return record
