"""A store in memory and an outlet that remembers: a broker without disk, sockets and threads."""

from functools import partial

from hms.engine.engine import Engine
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.server.broker import Broker, Identity, Surroundings
from hms.server.effect_release import append_records
from hms.store.interface import SEGMENT_SHIFT
from hms.store.journal.format import VERSION
from hms.wire.frames import Envelope, Kind, decode_envelope
from hms.wire.structures import Limits
from tpmon.scheduling.monitor import Monitor

SETTINGS = EngineSettings(
    message_bytes_max=10_000,
    destinations=(
        DestinationSettings("queue", "orders"),
        DestinationSettings("queue", "ledger"),
        DestinationSettings("topic", "news"),
    ),
)


class MemoryStore:
    """The Store interface over a list; commit() makes everything durable."""

    def __init__(self, records=()):
        self.records = list(records)
        self.last_lsn = sum(count for _, count, _ in self.records)
        self.durable_lsn = self.last_lsn
        self.appended_bytes = self.safe_bytes = self.look_bytes = 0
        self.is_waiting_for_space = False
        self.needs_maintenance = False
        self.refusal = None
        self.sync_s = 0.0
        self.newest_segment = 1
        self.recovery_bytes = 0

    def append(self, kind, count, parts):
        payload = b"".join(parts)
        self.records.append((kind, count, payload))
        self.last_lsn += count
        self.appended_bytes += len(payload) + 1
        return len(self.records) << SEGMENT_SHIFT

    def commit(self):
        self.durable_lsn, self.safe_bytes = self.last_lsn, self.appended_bytes
        return self.durable_lsn

    @property
    def backlog_bytes(self):
        return self.appended_bytes - self.safe_bytes

    def sends_refused(self):
        return self.refusal

    def maintain(self, _read_lsn=None):
        pass

    def read(self, position, size):
        number, offset = position >> SEGMENT_SHIFT, position % (1 << SEGMENT_SHIFT)
        return self.records[number - 1][2][offset : offset + size]

    newest_segment = 0
    is_waiting_for_space = False

    def next_to_clean(self, _live):
        return None

    def expect(self, owed_bytes):
        pass

    def emptied(self, segments):
        assert not segments, "nothing was pinned"

    is_turn_due = False

    def leave(self, until):
        return until

    def adopt(self, _segment):
        pass

    def spent(self, _lengths):
        raise AssertionError("nothing was to be cleaned")

    def cleaned(self, _segment):
        raise AssertionError("nothing was to be cleaned")

    def describe(self):
        return {"newest_store_format": VERSION}


class Outlet:
    """Frames by peer, decoded."""

    def __init__(self):
        self.sent = {}
        self.accepted = set()

    def put(self, items):
        for peer, parts in items:
            self.sent.setdefault(peer, []).append((decode_envelope(parts, 1 << 30), parts[1]))

    def accept(self, peer):
        self.accepted.add(peer)

    def forget(self, peer):
        self.accepted.discard(peer)

    def take(self, peer):
        """What was sent to a peer since the last time."""
        return self.sent.pop(peer, [])


class MemoryNode:
    """A broker; storage work is done when step() is called."""

    def __init__(self, settings=SETTINGS, store=None, files=None, entrance=None):
        self.now_ms = 1_000_000
        self.store = store or MemoryStore()
        self.outlet = Outlet()
        engine = Engine(settings)
        recovery = engine.recovery()
        for number, (kind, _, payload) in enumerate(self.store.records, 1):
            recovery.apply(kind, payload, number << SEGMENT_SHIFT)
        recovery.finish()
        limits = Limits(10_000, 1 << 20, 64, 8192, 10.0)
        identity = Identity("memory", 1, limits, "test")
        if entrance is not None:
            entrance = partial(entrance, engine)
        self.broker = Broker(
            engine, self.store, Monitor(), identity, lambda: self.now_ms, files, entrance
        )
        self.broker.begin(Surroundings(self, self.outlet))
        self.engine = engine
        self._boot()

    def _boot(self):
        from hms.engine.effects import Effects

        fx = Effects()
        self.engine.boot(self.now_ms, None, "test", fx)
        append_records(self.store, fx.records)
        self.store.commit()

    def notify(self):
        """A storage worker would wake up."""

    notify_later = notify

    def submit(self, job):
        job()

    def step(self):
        """Do the storage workers' work."""
        while self.broker.lead():
            pass

    def send(self, peer, kind, payload, correlation=1, count=1):
        """A frame arrives; what the peer got in answer."""
        envelope = Envelope(Kind(kind), correlation, count, len(payload))
        self.broker.handle(peer, [(envelope, payload)])
        self.step()
        return self.outlet.take(peer)
