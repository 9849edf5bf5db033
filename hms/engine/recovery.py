"""Recovery: the same state from the log (F-H1 … F-H4).

Records are applied in the order in which they were written. What a DELIVERED record had out and
nothing settled is put back at the end, flagged as redelivered: its consumer is gone (LOST). What
a transaction had not committed is not in the log at all.
"""

from collections.abc import Callable

from hms.engine.dispatch import discard
from hms.engine.effects import Effects
from hms.engine.line import Counters
from hms.engine.messages import StoredMessage, make_messages
from hms.engine.numbering import Taken
from hms.engine.places import Queue, Subscription
from hms.engine.records import (
    Cause,
    Definition,
    NodeEvent,
    RecordType,
    Sent,
    bits,
    decode_definition,
    decode_dictionary,
    decode_group,
    decode_number,
    decode_ranges,
    decode_sent,
    node_event,
    undefined,
)
from hms.engine.state import State


class Recovery:
    """Feed it every record of the log in order, then finish()."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._out: dict[int, dict[int, StoredMessage]] = {}
        self._apply: dict[int, Callable[[bytes | memoryview], None]] = {
            RecordType.DEFINED: self._defined,
            RecordType.UNDEFINED: self._undefined,
            RecordType.SENT: self._sent,
            RecordType.DELIVERED: self._delivered,
            RecordType.ACKNOWLEDGED: self._left,
            RecordType.DISCARDED: self._left,
            RecordType.FAILED: self._failed,
            RecordType.RELEASED: self._released,
            RecordType.GROUP: self._group,
            RecordType.RESERVED: self._reserved,
            RecordType.DICTIONARY: self._dictionary,
            RecordType.NODE: lambda _: None,
        }

    def apply(self, kind: int, payload: bytes | memoryview) -> None:
        """One record; a type that this version does not know raises KeyError."""
        self._apply[kind](payload)

    def finish(self) -> None:
        """What was out waits again; indexes and counters are those of a fresh node."""
        for number, out in self._out.items():
            place = self._state.places.get(number)
            if place is None:
                continue
            for message in out.values():
                deliveries, attempts = place.line.history.get(message.id, (0, 0))
                place.line.put_back(message, deliveries + 1, attempts)
        for place in self._state.places.values():
            place.line.counters = Counters()
            self._state.waiting_bytes += place.line.size_bytes
            place.line.close_index()

    # one method per record type

    def _defined(self, payload: bytes | memoryview) -> None:
        self._define(decode_definition(payload))

    def _dictionary(self, payload: bytes | memoryview) -> None:
        for definition in decode_dictionary(payload):
            self._define(definition)

    def _define(self, definition: Definition) -> None:
        """Only what is not known yet: a segment's dictionary tells again what was defined before
        it, and may be taken just before the record that it tells of."""
        topics = {t.number for t in self._state.topics.values()}
        known = self._state.places.get(definition.number)
        if isinstance(known, Subscription):
            known.redefine(definition)
        elif known is None and definition.number not in topics:
            self._state.define(definition)

    def _undefined(self, payload: bytes | memoryview) -> None:
        place = self._state.places.get(decode_number(payload))
        if isinstance(place, Subscription):
            self._state.undefine(place)
            self._out.pop(place.number, None)

    def _sent(self, payload: bytes | memoryview) -> None:
        record = decode_sent(payload)
        rows = record.rows()
        state = self._state
        messages = make_messages(
            rows,
            record.payloads(rows),
            record.first_message_id,
            record.first_seq,
            record.timestamp_ms,
            is_persistent=True,
        )
        state.next_seq = max(state.next_seq, record.first_seq + record.message_count)
        state.now_ms = max(state.now_ms, record.timestamp_ms)
        state.ids.recovered(record.first_message_id + record.message_count)
        for number, marks in record.placements:
            place = state.places.get(number)
            if place is not None:
                place.line.open_index()
                flags = bits(marks, record.message_count)
                place.line.add([m for m, is_here in zip(messages, flags, strict=True) if is_here])
        self._remember(record)

    def _remember(self, record: Sent) -> None:
        if record.first_sequence:
            memory = self._state.memories.producer(record.client_uid, record.producer)
            taken = Taken(record.first_message_id, record.timestamp_ms, record.message_count)
            batches_max = self._state.settings.frames_in_flight_max
            memory.remember(record.first_sequence, taken, batches_max)

    def _delivered(self, payload: bytes | memoryview) -> None:
        place, messages = self._waiting_or_out(payload)
        if place is None:
            return
        out = self._out.setdefault(place.number, {})
        for message in messages:
            if message.id in out:  # its consumer was lost in between
                deliveries, attempts = place.line.history.get(message.id, (0, 0))
                place.line.history[message.id] = (deliveries + 1, attempts)
            else:
                place.line.take_one(message)
                out[message.id] = message

    def _left(self, payload: bytes | memoryview) -> None:
        place, messages = self._waiting_or_out(payload)
        if place is None:
            return
        out = self._out.setdefault(place.number, {})
        for message in messages:
            if out.pop(message.id, None) is None:
                place.line.remove(message)
            else:
                place.line.settle(message)

    def _failed(self, payload: bytes | memoryview) -> None:
        self._back(payload, 1, 1)

    def _released(self, payload: bytes | memoryview) -> None:
        self._back(payload, 0, 0)

    def _back(self, payload: bytes | memoryview, deliveries: int, attempts: int) -> None:
        place, messages = self._waiting_or_out(payload)
        if place is None:
            return
        out = self._out.setdefault(place.number, {})
        for message in messages:
            if out.pop(message.id, None) is not None:
                before = place.line.history.get(message.id, (0, 0))
                place.line.put_back(message, before[0] + deliveries, before[1] + attempts)

    def _group(self, payload: bytes | memoryview) -> None:
        group = decode_group(payload)
        for record in group.records:
            self._apply[record.type](record.parts[0])
        if group.commit:
            self._state.memories.committed(group.client_uid, group.session, group.commit)

    def _reserved(self, payload: bytes | memoryview) -> None:
        self._state.ids.recovered(decode_number(payload))

    def _waiting_or_out(
        self, payload: bytes | memoryview
    ) -> tuple[Queue | Subscription | None, list[StoredMessage]]:
        record = decode_ranges(payload)
        place = self._state.places.get(record.number)
        if place is None:
            return None, []
        self._state.now_ms = max(self._state.now_ms, record.at_ms)
        waiting, out = place.line.open_index(), self._out.get(record.number, {})
        found = []
        for first, last in record.ranges:
            for message_id in range(first, last + 1):
                message = waiting.get(message_id) or out.get(message_id)
                assert message is not None, (
                    f"the log speaks of message {message_id:012x} that {place.name} never had"
                )
                found.append(message)
        return place, found


def boot(state: State, now_ms: int, is_warm: bool | None, version: str, fx: Effects) -> None:
    """After the log is read: define what the configuration has, and empty what boots COLD (F-H2,
    F-H3). is_warm None: as configured; else the operator's word for the whole node."""
    state.at(now_ms)
    node_is_warm = state.settings.is_warm if is_warm is None else is_warm
    fx.records += state.define_configured()
    for place in list(state.places.values()):
        if not _is_warm(state, place, node_is_warm, is_warm):
            _empty(state, place, fx)
    fx.records += state.define_subscriptions()
    fx.records.append(
        node_event(NodeEvent("booted", state.now_ms, "WARM" if node_is_warm else "COLD", version))
    )


def _is_warm(
    state: State, place: Queue | Subscription, node_is_warm: bool, ordered: bool | None
) -> bool:
    """The command line first, then the destination's own option, then the node's."""
    if ordered is not None:
        return ordered
    key = ("queue", place.name) if isinstance(place, Queue) else ("topic", place.topic.name)
    configured = state.configured.get(key)
    own = configured.is_warm if configured is not None else None
    return node_is_warm if own is None else own


def _empty(state: State, place: Queue | Subscription, fx: Effects) -> None:
    """Delete what the store holds for a place: its messages, and itself if it is a subscription."""
    waiting = place.line.everything()
    for message in waiting:
        place.line.remove(message)
    discard(state, place, waiting, Cause.COLD, fx)
    if isinstance(place, Subscription):
        state.undefine(place)
        fx.records.append(undefined(place.number))
