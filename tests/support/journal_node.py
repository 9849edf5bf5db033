"""A broker over a real journal with small segments; storage work is done when step() is called."""

import os
from functools import partial

import msgspec

from hms.boot.recovering import RUNS_OF
from hms.engine.effects import Effects
from hms.engine.engine import ConsumerRequest, Engine
from hms.server.broker import INTERNAL, TICK, Broker, Identity, Surroundings
from hms.server.effect_release import append_records
from hms.store.journal import Journal
from hms.wire.frames import Envelope, Kind
from hms.wire.packed_messages import ROW, pack_messages
from hms.wire.structures import Limits
from tests.support.memory import SETTINGS, Outlet
from tpmon.scheduling.monitor import Monitor

ROUNDS_MAX = 2000


class JournalNode:
    """One life of a node; a second one on the same path comes after close() or abandon()."""

    def __init__(self, path, settings=SETTINGS, segment_bytes=1 << 16, is_warm=None, **options):
        self.now_ms, self.is_warm = 1_000_000, is_warm
        self.jobs = []
        self.outlet = Outlet()
        self.store = Journal.open(path, segment_bytes=segment_bytes, node_uid=1, **options)
        self.engine = Engine(settings)
        self._recover()
        identity = Identity("journal", 1, Limits(10_000, 1 << 20, 64, 8192, 10.0), "test")
        self.broker = Broker(self.engine, self.store, Monitor(), identity, lambda: self.now_ms)
        self.broker.begin(Surroundings(self, self.outlet))

    def _recover(self):
        recovery = self.engine.recovery(
            partial(self.store.pinned_records, runs_of=RUNS_OF), self.store.read
        )
        self.records_read = 0
        for _, kind, _, payload, position in self.store.recover(RUNS_OF):
            recovery.apply(kind, payload, position)
            self.records_read += 1
        recovery.finish()
        self.store.pin(self.engine.pinned_segments())
        fx = Effects()
        own = self.store.last_lsn + 1, os.urandom(16)
        self.engine.boot(self.now_ms, self.is_warm, "test", fx, own)
        self.store.start(lambda: msgspec.structs.astuple(self.engine.dictionary())[:3])
        append_records(self.store, fx.records)
        self.store.commit()
        self.store.maintain()

    def notify(self):
        """A storage worker would wake up."""

    notify_later = notify

    def submit(self, job):
        """A storage worker would do it beside the log."""
        self.jobs.append(job)

    def step(self):
        """Do the storage workers' work."""
        for _ in range(ROUNDS_MAX):
            if not self.broker.lead() and not self.jobs:
                return
            if self.jobs:
                self.jobs.pop(0)()
        raise AssertionError("the storage workers' work does not end")

    def tick(self):
        """What the scheduler brings each second."""
        self.broker.handle(INTERNAL, [TICK])
        if self.store.needs_maintenance:
            self.submit(self.broker.maintain)
        self.step()

    def send(self, peer, kind, payload, correlation=1, count=1):
        """A frame arrives; what the peer got in answer."""
        envelope = Envelope(Kind(kind), correlation, count, len(payload))
        self.broker.handle(peer, [(envelope, payload)])
        self.step()
        return self.outlet.take(peer)

    def close(self):
        """End the process; nothing more is written."""
        self.store.close()

    def waiting(self, queue="orders"):
        """(id, body, deliveries, attempts) of what waits, in order."""
        line = self.engine.state.queues[queue].line
        of = self.broker._bodies.of
        return [
            (m.id, of(m)[m.head_bytes :], line.deliveries(m), line.attempts(m))
            for m in line.in_order()
        ]

    # what a client would ask, without frames

    def run(self, call):
        """A change under the engine's lock; what came of it is released."""
        self.broker._change(call)
        self.step()

    def open_client(self, uid=77):
        """Connection 1; session 1 acknowledges by call, session 2 is transacted; producers 1 orders
        and 2 news, 11 and 12 the same in session 2."""
        engine = self.engine
        engine.open_connection(1, uid, "", "")
        for session, kind in ((1, ""), (2, "transacted")):
            engine.open_session(1, session, 2 if session == 1 else 0, kind)
            engine.open_producer(1, session * 10 - 9, session, "queue", "orders")
            engine.open_producer(1, session * 10 - 8, session, "topic", "news")

    def publish(self, first_sequence, bodies, producer=1, **row):
        """One persistent batch."""
        packed = [
            (ROW.pack(0, len(b), row.get("ttl_ms", 0), 0, row.get("priority", 4), 0, 0, 0), b"", b)
            for b in bodies
        ]
        pack = memoryview(pack_messages(packed))
        self.run(
            lambda fx, now_ms: self.engine.send(
                1,
                5,
                producer,
                first_sequence,
                count=len(bodies),
                is_persistent=True,
                pack=pack,
                now_ms=now_ms,
                fx=fx,
            )
        )

    def consume(self, handle=1, credit=10, kind="queue", name="orders", session=1, **options):
        """Open a consumer; the messages that are out to it."""
        request = ConsumerRequest(handle, session, kind, name, credit, **options)
        self.run(lambda fx, now_ms: self.engine.open_consumer(1, request, 1, now_ms, fx))
        return list(self.engine.state.connections[1].consumers[handle].out.values())

    def acknowledge(self, messages, handle=1):
        """Acknowledge what is out to a consumer."""
        spans = [(m.id, m.id) for m in messages]
        self.run(lambda fx, now_ms: self.engine.acknowledge(1, handle, 0, spans, now_ms, fx))

    def credit(self, count, handle=1):
        """Ask for more; what is out then."""
        self.run(lambda fx, now_ms: self.engine.credit(1, handle, 0, count, now_ms, fx))
        return list(self.engine.state.connections[1].consumers[handle].out.values())
