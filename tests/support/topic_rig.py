"""An engine with topics, its log in a list: publish, subscribe, read, crash, retire a segment."""

from dataclasses import dataclass, field

from hms.engine.effects import Deliver, Effects, Reply
from hms.engine.engine import ConsumerRequest, Engine
from hms.engine.settings import DestinationSettings, EngineSettings, SubscriptionSettings
from hms.wire.packed_messages import FLAG_RETAIN, ROW, Head, encode_head, pack_messages


@dataclass
class Got:
    """What one consumer was given."""

    topic: str
    messages: list = field(default_factory=list)

    @property
    def bodies(self):
        return [m.payload[m.head_bytes :].decode() for m in self.messages]

    @property
    def node(self):
        """What the node said in each head."""
        return [m.head().node for m in self.messages]


class TopicRig:
    """One client with session 1 and a transacted session 2. Topics are open unless settings say
    otherwise; queue "q" has room for three, "orders" for any number."""

    def __init__(self, *destinations, subscriptions=(), **limits):
        self.log = []
        self.segment = 0
        self.now_ms = 1000
        self.handles = 2  # those of the sessions: none is used twice on a connection
        self.sequence = 0
        self.destinations = (
            DestinationSettings("queue", "orders"),
            DestinationSettings("queue", "q", messages_max=3),
            *destinations,
        )
        self.limits = {"is_topics_open": True} | limits
        self.boot(subscriptions)

    def boot(self, subscriptions=(), *, is_warm=None):
        """Begin, or begin again after a crash, from the log."""
        wanted = tuple(SubscriptionSettings(**s) for s in subscriptions)
        settings = EngineSettings(
            destinations=self.destinations, subscriptions=wanted, **self.limits
        )
        self.engine = Engine(settings)
        recovery = self.engine.recovery()
        for position, kind, payload in self.log:
            recovery.apply(kind, payload, position)
        recovery.finish()
        self.got, self.producers = {}, {}
        self.run(lambda fx: self.engine.boot(self.now_ms, is_warm, "test", fx))
        self.connect()

    def connect(self):
        """The client comes."""
        self.engine.open_connection(1, 77, "", "")
        self.engine.open_session(1, 1, 2, "")
        self.engine.open_session(1, 2, 0, "transacted")

    def disconnect(self):
        """The client is lost."""
        self.run(lambda fx: self.engine.close_connection(1, self.now_ms, fx))
        self.producers.clear()

    def run(self, call):
        """Effects of a call; its records go to the log, its deliveries to who they are for."""
        fx = Effects()
        result = call(fx)
        for record in fx.records:
            self.keep(record)
        for effect in fx.out:
            if isinstance(effect, Deliver):
                self.got[effect.consumer].messages += effect.messages
        self.replies = [effect.value for effect in fx.out if isinstance(effect, Reply)]
        return result

    def keep(self, record):
        """A record goes to the log."""
        position = (self.segment << 32) + len(self.log)
        payload = b"".join(record.parts)
        self.log.append((position, record.type, payload))
        for log_position, offset in record.log_positions:
            log_position.placed(position + offset)

    def retire(self):
        """The log's segment is full: what is live in it is told again in the next one, and it
        goes."""
        old, self.segment = self.segment, self.segment + 1
        self.keep(self.engine.dictionary())
        while found := self.engine.next_to_move(old):
            pairs = [(m, m.payload) for m in found]
            self.run(lambda fx, pairs=pairs: self.engine.move(old, pairs, self.now_ms, fx))
        self.run(lambda fx: self.engine.restate(self.engine.remembered(), fx))
        self.log = [entry for entry in self.log if entry[0] >> 32 > old]

    # what clients do

    def publish(
        self,
        topic,
        *bodies,
        retain=False,
        persistent=True,
        session=1,
        string="",
        ttl_ms=0,
        properties=None,
    ):
        """One batch."""
        producer = self.producer(topic, session, string)
        head, flags = encode_head(Head(properties or {})), FLAG_RETAIN if retain else 0
        packed = [ROW.pack(len(head), len(b), ttl_ms, 0, 4, 0, flags, 0) for b in bodies]
        rows = [(row, head, b.encode()) for row, b in zip(packed, bodies, strict=True)]
        first = self.sequence + 1
        self.sequence += len(bodies)
        pack = memoryview(pack_messages(rows))
        self.run(
            lambda fx: self.engine.send(
                1, 5, producer, first, len(rows), persistent, pack, self.now_ms, fx
            )
        )

    def send_pack(self, topic, pack):
        """One message as another library might send it."""
        producer = self.producer(topic)
        self.sequence += 1
        sequence, is_persistent = self.sequence, True
        self.run(
            lambda fx: self.engine.send(
                1, 5, producer, sequence, 1, is_persistent, pack, self.now_ms, fx
            )
        )

    def producer(self, topic, session=1, string=""):
        """A producer's handle, opened when it is first asked for."""
        key = (topic, session, string)
        if key not in self.producers:
            self.handles += 1
            _, self.resolved, _ = self.engine.open_producer(
                1, self.handles, session, "topic", topic, string
            )
            self.producers[key] = self.handles
        return self.producers[key]

    def subscribe(self, topic, session=1, credit=1000, string="", kind="topic", **options):
        """A consumer; what it got and gets."""
        self.handles += 1
        handle = self.handles
        self.got[handle] = got = Got(topic)
        request = ConsumerRequest(handle, session, kind, topic, credit, topic=string, **options)
        try:
            self.run(lambda fx: self.engine.open_consumer(1, request, 1, self.now_ms, fx))
        except Exception:
            del self.got[handle]
            raise
        got.handle = handle
        return got

    def consume(self, queue, **options):
        """A consumer of a queue."""
        return self.subscribe(queue, kind="queue", **options)

    def acknowledge(self, got):
        """All that it was given."""
        spans = [(m.id, m.id) for m in got.messages]
        self.run(lambda fx: self.engine.acknowledge(1, got.handle, 0, spans, self.now_ms, fx))

    def close(self, got):
        """Close a consumer."""
        self.run(lambda fx: self.engine.close_consumer(1, got.handle, self.now_ms, fx))

    def commit(self, number=1):
        """The transacted session."""
        self.run(lambda fx: self.engine.commit(1, 2, 9, number, self.now_ms, fx))

    def rollback(self):
        """The transacted session."""
        self.run(lambda fx: self.engine.rollback(1, 2, 9, self.now_ms, fx))

    def administer(self, verb, **arguments):
        """An operator's command."""
        return self.run(lambda fx: self.engine.administer(verb, arguments, self.now_ms, fx))

    def tick(self, ms=0):
        """Time passes."""
        self.now_ms += ms
        self.run(lambda fx: self.engine.tick(self.now_ms, fx))

    @property
    def topics(self):
        """The topics of the tree."""
        return [t["topic"] for t in self.administer("topic.tree")]

    @property
    def subscriptions(self):
        """The names, or topics, of the subscriptions."""
        return [s["name"] or s["topic"] for s in self.administer("subscription.list")]
