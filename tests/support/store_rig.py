"""An engine over a real store, at random, and what recovery has to make of its records."""

import contextlib
import random
import sqlite3

from field_buffer.errors import HmsError
from field_buffer.packing import ROW, Head, encode_head, pack_messages
from hms.engine.effects import Deliver, Effects
from hms.engine.engine import ConsumerRequest, Engine, Return
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.records import (
    Definition,
    Dictionary,
    Placement,
    RecordType,
    Sent,
    decode_moved,
    decode_sent,
    dictionary,
    ranges,
    sent,
)
from hms.store.database import DatabaseSettings, open_database
from hms.store.journal import Journal

NODE_UID = 77
SETTINGS = EngineSettings(
    frames_in_flight_max=4,
    producers_remembered=8,
    destinations=(
        DestinationSettings("queue", "a"),
        DestinationSettings("queue", "b", redelivery_limit=1),
        DestinationSettings("queue", "c", expired_to="a"),
        DestinationSettings("topic", "t"),
    ),
)
DATABASE = DatabaseSettings(
    batches_max=SETTINGS.frames_in_flight_max, entries_max=SETTINGS.producers_remembered
)
QUEUES, SUBSCRIPTIONS = ("a", "b", "c"), ("one", "two")
HUGE_UID = (1 << 64) - 5
"""A client's number as a client may choose it: above what a database takes as it is."""


class Place:
    """Where a store of one kind lies, opened as often as a test likes."""

    def __init__(self, kind, folder, server=None):
        self.kind, self.folder, self.server = kind, folder, server
        self.prefix = server.new_prefix() if server else "t_"
        self.address = server.url if server else f"sqlite:{folder / 'store.db'}"

    def open(self, settings=DATABASE, node_uid=NODE_UID):
        if self.kind == "journal":
            return Journal.open(self.folder / "log", segment_bytes=64 << 20, node_uid=node_uid)
        return open_database(
            self.address, table_prefix=self.prefix, node_uid=node_uid, settings=settings
        )

    def started(self, settings=DATABASE):
        """A store with one queue, ready to be written."""
        store = self.open(settings)
        records = list(store.recover())
        store.start(lambda: tuple(dictionary(Dictionary(ONE_QUEUE, 0, 2)))[:3])
        store.commit()
        return store, records

    def numbers(self):
        """Which messages of the queue a boot finds."""
        store, records = self.started()
        store.close()
        return numbers_in(records)

    def ask(self, query):
        """All rows of a query over the tables; {p} is their prefix."""
        text = query.format(p=self.prefix)
        if self.server:
            return self.server.ask(text)
        with contextlib.closing(sqlite3.connect(self.folder / "store.db")) as session:
            rows = session.execute(text).fetchall()
            session.commit()
            return rows


ONE_QUEUE = [Definition(1, "queue", "a")]
FIRST_ID = (1 << 40) + 1


def batch(number, count, body, is_forwarded=False):
    """A SENT record: the messages from FIRST_ID + number on, in the queue."""
    pack = pack_messages([(ROW.pack(0, len(body), 0, 0, 4, 0, 0, 0), b"", body)] * count)
    return sent(
        Sent(
            1,
            FIRST_ID + number,
            1_000,
            NODE_UID,
            1,
            number + 1,
            count,
            is_forwarded,
            [Placement(1, b"")],
            memoryview(pack),
            number + 1,
        )
    )


def happened(kind, number, count):
    """A record of ranges about messages of the queue."""
    first = FIRST_ID + number
    return ranges(kind, 1, 1_000, [(first, first + count - 1)])


def append(store, record):
    """The position of the record."""
    return store.append(record.type, record.events, record.parts)


def numbers_in(records):
    """Which messages of the queue are there, of a store where nothing was settled."""
    found = []
    for _, kind, _, payload, _ in records:
        if kind == RecordType.SENT:
            told = decode_sent(payload)
            found += range(told.first_message_id, told.first_message_id + told.message_count)
        elif kind == RecordType.MOVED:
            found += [kept.id for kept in decode_moved(payload)[0]]
    return [id_ - FIRST_ID for id_ in found]


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
        self.run(lambda fx: self.engine.boot(now_ms, is_warm, "test", fx))

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
            for landing, offset in record.landings:
                landing.landed(position + offset)
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
            for p in memories.producers_taken()
        ),
        "commits": sorted(map(tuple, memories.commits_taken())),
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


class Walk:
    """One client that does whatever a client may do, chosen by a seed."""

    def __init__(self, node, seed):
        self.node, self.random = node, random.Random(seed)
        self.sequences = {}
        self.connections = 0
        self.connect()

    def connect(self):
        """A client with two sessions, producers for everything and consumers everywhere."""
        self.connections += 1
        number, engine = self.connections, self.node.engine
        uid = self.random.choice((77, 78, HUGE_UID))
        engine.open_connection(number, uid, "", "")
        self.out, self.handles = {}, {}
        for session, kind in ((1, ""), (2, "transacted")):
            engine.open_session(number, session, 2 if session == 1 else 0, kind)
            for i, (what, name) in enumerate(
                (*(("queue", name) for name in QUEUES), ("topic", "t")), 1
            ):
                producer = session * 10 + i
                last = engine.open_producer(number, producer, session, what, name)
                self.sequences[producer] = last + 1
        self.commit_number = engine.state.memories.last_commit(uid, 2)
        for i, name in enumerate(QUEUES, 1):
            self._consume(10 + i, 1, "queue", name)
            self._consume(20 + i, 2, "queue", name)
        for i, name in enumerate(SUBSCRIPTIONS, 1):
            self._consume(30 + i, 1, "topic", "t", durable=name)

    def _consume(self, handle, session, kind, destination, durable=""):
        node = self.node
        selector = "Color = 'red'" if durable == "two" else ""
        request = ConsumerRequest(
            handle, session, kind, destination, 0, durable=durable, selector=selector
        )
        at = (self.connections, request, 1, node.now_ms)
        self.handles[handle] = 0
        self._run(lambda fx: node.engine.open_consumer(*at, fx))

    def step(self):
        """One thing that a client may do."""
        self.node.now_ms += self.random.randrange(50)
        self.random.choice(
            (
                *(self.send,) * 4,
                *(self.credit,) * 4,
                *(self.settle,) * 5,
                self.commit,
                self.rollback,
                self.recover,
                self.tick,
                self.leave,
                self.operate,
            )
        )()

    def _run(self, call):
        fx = self.node.run(call)
        for effect in fx.out:
            if isinstance(effect, Deliver) and effect.connection == self.connections:
                known = self.out.setdefault(effect.consumer, {})
                known.update((m.id, effect.epoch) for m in effect.messages)

    def send(self):
        choose, node = self.random, self.node
        producer = choose.choice(list(self.sequences))
        count = choose.choice((1, 1, 2, 5, 70))
        messages = []
        for _ in range(count):
            color = choose.choice(("red", "blue"))
            limit = {"JMS_HMS_RedeliveryLimit": 2} if choose.random() < 0.1 else {}
            head = encode_head(Head({"Color": color} | limit)) if choose.random() < 0.8 else b""
            body = choose.randbytes(choose.choice((1, 7, 100, 3000)))
            ttl_ms = choose.choice((0, 0, 0, 100, 100_000))
            row = ROW.pack(len(head), len(body), ttl_ms, 0, choose.randrange(10), 0, 0, 0)
            messages.append((row, head, body))
        first = self.sequences[producer]
        if choose.random() < 0.1 and producer < 20:
            first += 5  # a batch that a crash has lost comes later
        self.sequences[producer] = first + count
        pack = memoryview(pack_messages(messages))
        is_persistent = choose.random() < 0.9
        send = node.engine.send
        at = (self.connections, 1, producer, first, count, is_persistent, pack, node.now_ms)
        self._run(lambda fx: send(*at, fx))

    def credit(self):
        handle = self.random.choice(list(self.handles))
        at = (self.connections, handle, self._epoch(handle), self.random.choice((1, 3, 50)))
        self._run(lambda fx: self.node.engine.credit(*at, self.node.now_ms, fx))

    def settle(self):
        if not self.out:
            return
        handle = self.random.choice(list(self.out))
        known = self.out[handle]
        chosen = self.random.sample(sorted(known), self.random.randint(0, len(known)))
        for id_ in chosen:
            del known[id_]
        spans, engine = [(id_, id_) for id_ in sorted(chosen)], self.node.engine
        at = (self.connections, handle, self._epoch(handle), spans)
        how = self.random.choice((None, None, Return.FAILED, Return.RELEASED))
        if how is None:
            self._run(lambda fx: engine.acknowledge(*at, self.node.now_ms, fx))
        else:
            self._run(lambda fx: engine.give_back(*at, how, self.node.now_ms, fx))

    def _epoch(self, handle):
        return self.node.engine.state.connection(self.connections).consumers[handle].epoch

    def commit(self):
        self.commit_number += 1
        at = (self.connections, 2, 1, self.commit_number, self.node.now_ms)
        self._run(lambda fx: self.node.engine.commit(*at, fx))

    def rollback(self):
        at = (self.connections, 2, 1, self.node.now_ms)
        self._run(lambda fx: self.node.engine.rollback(*at, fx))

    def recover(self):
        at = (self.connections, 1, 1, self.node.now_ms)
        self._run(lambda fx: self.node.engine.recover(*at, fx))

    def tick(self):
        self._run(lambda fx: self.node.engine.tick(self.node.now_ms, fx))

    def leave(self):
        """The client is lost and comes back."""
        number, engine = self.connections, self.node.engine
        self._run(lambda fx: engine.close_connection(number, self.node.now_ms, fx))
        self.connect()

    def operate(self):
        """An operator, or a subscriber that wants no more."""
        engine, now_ms = self.node.engine, self.node.now_ms
        if self.random.random() < 0.5:
            self._run(lambda fx: engine.administer("queue.purge", {"name": "c"}, now_ms, fx))
            return
        handle = 31
        self._run(lambda fx: engine.close_consumer(self.connections, handle, now_ms, fx))
        self.out.pop(handle, None)
        with contextlib.suppress(HmsError):  # a transaction holds some of it
            self._run(lambda fx: engine.unsubscribe("t", "one", now_ms, fx))
        self._consume(handle, 1, "topic", "t", durable="one")


def history_kinds(node):
    """How many records of each kind were told."""
    return {kind.name for kind in RecordType if any(k == kind for k, _ in node.told)}
