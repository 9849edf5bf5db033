"""An engine with queues that sort, gather and keep orders, and what each consumer was given."""

from hms.engine.effects import Deliver, Effects
from hms.engine.engine import ConsumerRequest, Engine
from hms.engine.groups.message_sort import SortSettings, SortType
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.wire.packed_messages import (
    FLAG_LAST,
    FLAG_ORDER,
    PROPERTY_GLOBAL_ORDER,
    ROW,
    Head,
    encode_head,
    pack_messages,
)

CLIENT, TRANSACTED, NONE = 1, 2, 3
"""Sessions of every connection."""


def sorted_queue(name, key, kind="INTEGER", *, falling=False, **options):
    """A queue that sorts."""
    sort = SortSettings(key, SortType(kind), falling)
    return DestinationSettings("queue", name, sort=sort, **options)


class OrderRig:
    """Queue "plain" keeps orders, "lists" gathers groups for 10 s, "late" tries again after 1 s;
    further ones as given. Connections 1, 2 … are opened when they are used first."""

    def __init__(self, *destinations, **limits):
        self.destinations = (
            DestinationSettings("queue", "plain"),
            DestinationSettings("queue", "lists", is_gathering=True, group_life_ms=10_000),
            DestinationSettings("queue", "late", redelivery_delay_ms=1000),
            *destinations,
        )
        self.limits = limits
        self.log = []
        self.now_ms = 1000
        self.sequence = self.uids = 0
        self.boot()

    def boot(self):
        """Begin, or begin again after a crash, from the log."""
        settings = EngineSettings(destinations=self.destinations, **self.limits)
        self.engine = Engine(settings)
        recovery = self.engine.recovery()
        for kind, payload in self.log:
            recovery.apply(kind, payload)
        recovery.finish()
        self.got = {}
        self.held = {}
        self.epochs = {}
        self.sessions = {}
        self.consumers = {}
        self.producers = {}
        self.run(lambda fx: self.engine.boot(self.now_ms, None, "test", fx))

    def run(self, call):
        """The result of a call; records go to the log, deliveries to whom they are for."""
        fx = Effects()
        result = call(fx)
        self.log += [(record.type, b"".join(record.parts)) for record in fx.records]
        for effect in fx.out:
            if isinstance(effect, Deliver):
                self._delivered(effect)
        return result

    def _delivered(self, effect):
        got = self.got[effect.connection, effect.consumer]
        held = self.held.setdefault((effect.connection, effect.consumer), [])
        assert effect.epoch == self.epochs.get((effect.connection, effect.consumer), 0)
        parts = effect.parts or [0] * len(effect.messages)
        for message, part in zip(effect.messages, parts, strict=True):
            if part and not self._is_whole:
                held[-1].append(message)
            else:
                new = [message] if part else message
                got.append(new)
                held.append(new)
            self._is_whole = not part or bool(part & FLAG_LAST)

    _is_whole = True

    def line(self, queue="plain"):
        """A queue's line."""
        return self.engine.state.queues[queue].line

    def _connection(self, number):
        if number not in self.engine.state.connections:
            self.uids += 1
            self.engine.open_connection(number, self.uids, "", "")
            for session, mode, kind in (
                (CLIENT, 2, ""),
                (TRANSACTED, 0, "transacted"),
                (NONE, 3, ""),
            ):
                self.engine.open_session(number, session, mode, kind)
        return number

    def send(self, body, queue="plain", session=CLIENT, connection=1, **options):
        """One message; options: properties by name, and of the row: priority, ttl_ms, delay_ms,
        order (the name of a global order), is_persistent."""
        self._connection(connection)
        row_of = {k: options.pop(k, d) for k, d in (("priority", 4), ("ttl_ms", 0))}
        delay_ms, order = options.pop("delay_ms", 0), options.pop("order", None)
        is_persistent = options.pop("is_persistent", True)
        flags = 0
        if order is not None:
            options[PROPERTY_GLOBAL_ORDER], flags = order, FLAG_ORDER
        head, data = encode_head(Head(options)), body.encode()
        row = ROW.pack(
            len(head), len(data), row_of["ttl_ms"], delay_ms, row_of["priority"], 0, flags, 0
        )
        pack = memoryview(pack_messages([(row, head, data)]))
        producer = self._producer(connection, session, queue)
        self.sequence += 1
        self.run(
            lambda fx: self.engine.send(
                connection, 1, producer, self.sequence, 1, is_persistent, pack, self.now_ms, fx
            )
        )

    def _producer(self, connection, session, queue):
        key = connection, session, queue
        if key not in self.producers:
            self.producers[key] = 1000 + len(self.producers)
            self.engine.open_producer(connection, self.producers[key], session, "queue", queue)
        return self.producers[key]

    def send_all(self, bodies, queue="plain", **options):
        """One message for each word or letter."""
        for body in bodies:
            self.send(body, queue, **options)

    def consume(self, name, queue="plain", connection=1, session=CLIENT, credit=100, **options):
        """Open a consumer, which is then known by its name."""
        self._connection(connection)
        handle = len(self.got) + 1
        self.consumers[name] = connection, handle
        self.got[connection, handle] = []
        self.sessions[connection, handle] = session
        request = ConsumerRequest(handle, session, "queue", queue, credit, **options)
        self.run(lambda fx: self.engine.open_consumer(connection, request, 1, self.now_ms, fx))
        return self.taken(name)

    def taken(self, name):
        """The bodies that a consumer was given since it was asked last; of a list, all of it."""
        got = self.got[self.consumers[name]]
        bodies = [list(map(_body, m)) if isinstance(m, list) else _body(m) for m in got]
        got.clear()
        return bodies

    def credit(self, name, count=1):
        """More room."""
        connection, handle = self.consumers[name]
        epoch = self.epochs.get((connection, handle), 0)
        self.run(lambda fx: self.engine.credit(connection, handle, epoch, count, self.now_ms, fx))
        return self.taken(name)

    def acknowledge(self, name, *bodies):
        """By their bodies; of a list, that of its first message. All that was given if none."""
        self._settle(name, bodies, self.engine.acknowledge)

    def give_back(self, name, how, *bodies):
        """The same; how: a Return."""

        def call(connection, handle, epoch, spans, now_ms, fx):
            return self.engine.give_back(connection, handle, epoch, spans, how, now_ms, fx)

        self._settle(name, bodies, call)

    def _settle(self, name, bodies, call):
        self._settled(*self.consumers[name], bodies, call)

    def _settled(self, connection, handle, bodies, call):
        held = self.held.get((connection, handle), [])
        chosen = [m for m in held if not bodies or _body(_first(m)) in bodies]
        self.held[connection, handle] = [m for m in held if not any(m is c for c in chosen)]
        spans = [(_first(m).id,) * 2 for m in chosen]
        epoch = self.epochs.get((connection, handle), 0)
        self.run(lambda fx: call(connection, handle, epoch, spans, self.now_ms, fx))

    def close(self, name):
        """Close a consumer in order."""
        connection, handle = self.consumers[name]
        self.run(lambda fx: self.engine.close_consumer(connection, handle, self.now_ms, fx))

    def lose(self, connection):
        """A connection is lost."""
        self.run(lambda fx: self.engine.close_connection(connection, self.now_ms, fx))

    def commit(self, connection=1):
        """Commit the transacted session."""
        state = self.engine.state
        uid = state.connections[connection].uid
        number = state.memories.last_commit(uid, TRANSACTED) + 1
        self.run(lambda fx: self.engine.commit(connection, TRANSACTED, 1, number, self.now_ms, fx))

    def rollback(self, connection=1):
        """Roll it back."""
        self._restart(connection, TRANSACTED)
        self.run(lambda fx: self.engine.rollback(connection, TRANSACTED, 1, self.now_ms, fx))

    def recover(self, connection=1):
        """Recover the session that acknowledges by call."""
        self._restart(connection, CLIENT)
        self.run(lambda fx: self.engine.recover(connection, CLIENT, 1, self.now_ms, fx))

    def _restart(self, connection, session):
        for key, owner in self.sessions.items():
            if key[0] == connection and owner == session:
                self.epochs[key] = self.epochs.get(key, 0) + 1
                self.held.pop(key, None)

    def pass_time(self, ms):
        """Later."""
        self.now_ms += ms
        self.run(lambda fx: self.engine.tick(self.now_ms, fx))

    def waiting(self, queue="plain"):
        """Bodies of what waits, in order."""
        return [_body(m) for m in self.line(queue).in_order()]


def _first(message):
    return message[0] if isinstance(message, list) else message


def _body(message):
    return bytes(message.payload[message.head_bytes :]).decode()
