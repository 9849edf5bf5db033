"""An engine over a real store, and what recovery has to make of its records."""

from hms.engine.effects import Effects
from hms.engine.engine import Engine
from hms.engine.settings import DestinationSettings, EngineSettings
from tests.support.branch_walk import branches_of
from tests.support.store_place import DATABASE

SETTINGS = EngineSettings(
    frames_in_flight_max=DATABASE.batches_max,
    producers_remembered=DATABASE.entries_max,
    destinations=(
        DestinationSettings("queue", "a"),
        DestinationSettings("queue", "b", redelivery_limit=1),
        DestinationSettings("queue", "c", expired_to="a"),
        DestinationSettings("topic", "t"),
    ),
)


class StoreNode:
    """An engine with a store; `told` is every record ever appended, for the oracle."""

    def __init__(self, place, told=None, now_ms=1_000, is_warm=None):
        self.place, self.now_ms = place, now_ms
        self.told = [] if told is None else told
        self.store = place.open()
        self.engine = Engine(SETTINGS)
        recovery = self.engine.recovery()
        for _, kind, _, payload, position in self.store.recover():
            recovery.apply(kind, payload, position)
        recovery.finish()
        self.recovered = snapshot(self.engine)
        self.store.start(self._dictionary)
        self.commits_each = True
        own = self.store.last_lsn, b"%016x" % self.store.last_lsn
        self.run(lambda fx: self.engine.boot(now_ms, is_warm, "test", fx, own))

    def unreadable(self):
        """Ids of messages whose bytes the store does not give back as they are."""
        lines = [place.line for place in self.engine.state.places.values()]
        messages = [m for line in lines for m in line.everything() if m.block is not None]
        return [m.id for m in messages if not self._is_readable(m)]

    def _is_readable(self, message):
        position = message.block.position(message.slot)
        whole = self.store.read(position, message.length)
        part = self.store.read(position + 1, message.length - 1)
        return whole == message.payload and part == message.payload[1:]

    def _dictionary(self):
        record = self.engine.dictionary()
        self.told.append((record.type, b"".join(record.parts)))
        return record.type, record.events, record.parts

    def run(self, call):
        """Effects of a call; its records are in the store."""
        fx = Effects()
        call(fx)
        for record in fx.records:
            position = self.store.append(record.type, record.events, record.parts)
            for log_position, offset in record.log_positions:
                log_position.placed(position + offset)
            self.told.append((record.type, b"".join(record.parts)))
        if self.commits_each:
            self.store.commit()
        return fx

    def expected(self):
        """What recovery makes of the records themselves."""
        engine = Engine(SETTINGS)
        recovery = engine.recovery()
        for kind, payload in self.told:
            recovery.apply(kind, payload)
        recovery.finish()
        return snapshot(engine)


def snapshot(engine):
    """All that recovery restores, as plain data."""
    state = engine.state
    memories = state.memories
    return {
        "places": {place.name: _line(place.line) for place in state.places.values()},
        "definitions": sorted(state.definitions(), key=lambda d: d.number),
        "next": (state.next_seq, state.next_number, state.ids.reserved_below, state.now_ms),
        "producers": sorted(
            (p.client_uid, p.handle, tuple(map(tuple, p.recent)), p.forgotten)
            for p in memories.producers_taken(memories.keys())
        ),
        "identity": (state.identity.store, tuple(map(tuple, state.identity.boots))),
        "commits": sorted(map(tuple, memories.commits_taken(memories.keys()))),
        **branches_of(state),
    }


def _line(line):
    return sorted(
        (
            message.seq,
            message.id,
            message.timestamp_ms,
            message.expires_at_ms,
            message.priority,
            message.kind,
            message.head_bytes,
            bytes(message.payload),
            line.deliveries(message),
            line.attempts(message),
            line.due_ms(message),
        )
        for message in line.everything()
    )
