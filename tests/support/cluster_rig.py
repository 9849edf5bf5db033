"""Engines that act as one, their logs in lists and a network in between; any of them may crash.

A node's records are durable when sync() says so, and only then its words go out, as in a real node.
crash() drops what was not synced and builds the engine anew. Words travel encoded.
"""

from hms.engine.cluster.cluster_messages import decode_message, encode_message
from hms.engine.cluster.cluster_settings import ClusterSettings, GlobalQueue
from hms.engine.cluster.members import Incarnation
from hms.engine.effects import Deliver, Effects, ToNode
from hms.engine.engine import ConsumerRequest, Engine
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.wire.packed_messages import ROW, Head, encode_head, pack_messages

QUEUE = "orders"
TOPIC = "news"
INTERVAL_MS = 1000


def settings_of(index, count, limits, master=0, **queue):
    """One of count nodes with a global queue; master: the only one that changes destinations."""
    peers = tuple((i, f"n{i}") for i in range(1, count + 1) if i != index)
    options = {"threshold": 10, "request_max": 100, "full": 0} | queue
    queues = (GlobalQueue(QUEUE, **options),)
    name = f"n{master}" if master else ""
    is_master = master in (0, index)
    cluster = ClusterSettings(peers, INTERVAL_MS, queues, (TOPIC,), name, is_master)
    return EngineSettings(
        node_index=index,
        destinations=(
            DestinationSettings("queue", QUEUE, **limits.get(index, {})),
            DestinationSettings("topic", TOPIC),
            DestinationSettings("topic", "local"),
        ),
        cluster=cluster,
    )


class Node:
    """One engine, its log, and what it has not said yet."""

    def __init__(self, world, index, settings):
        self.world, self.index, self.settings = world, index, settings
        self.log = []
        self.durable = 0
        self.said = []
        """(records that it waits for, to whom, bytes)."""
        self.got = []
        """Messages delivered and durable, in order."""
        self.pending = []
        self.sequence = 0
        self.boot()

    def boot(self):
        """From the log as far as it is durable."""
        del self.log[self.durable :]
        self.said, self.pending = [], []
        self.engine = Engine(self.settings)
        recovery = self.engine.recovery()
        for number, record in enumerate(self.log, 1):
            if record is not None:
                recovery.apply(*record, number << 32)
        recovery.finish()
        self.run(lambda fx: self.engine.boot(self.world.clock(self.index), None, "test", fx))
        self.sync()
        moves = self.engine.state.moves
        self.life = Incarnation(moves.life, moves.incarnation)
        self.engine.open_connection(1, 70 + self.index, "", "")
        self.engine.open_session(1, 1, 2, "")
        self.engine.open_producer(1, 1, 1, "queue", QUEUE)
        self.engine.open_producer(1, 2, 1, "topic", TOPIC)
        self.engine.open_producer(1, 3, 1, "topic", "local")

    def clean(self):
        """What lies in the log so far is told again where it is needed, and then goes."""
        engine, newest = self.engine, len(self.log)
        while messages := engine.next_to_move(newest):
            self._move(newest, [(m, m.payload) for m in messages])
        self.run(lambda fx: engine.restate([], fx))
        self.sync()
        record = engine.dictionary()
        self.log[:newest] = [None] * newest
        self.log[newest - 1] = record.type, b"".join(record.parts)

    def _move(self, newest, found):
        self.run(lambda fx: self.engine.move(newest, found, self.world.clock(self.index), fx))

    def tick(self):
        """A moment of the cluster."""
        return self.run(lambda fx: self.engine.cluster.tick(self.world.clock(self.index), fx))

    def hears(self, index, life):
        """Another node is there."""
        now_ms = self.world.clock(self.index)
        return self.run(lambda fx: self.engine.cluster.up(index, life, now_ms, fx))

    def misses(self, index):
        """Another node is gone."""
        now_ms = self.world.clock(self.index)
        self.run(lambda fx: self.engine.cluster.down(index, "cut", now_ms, fx))

    def run(self, call):
        """A command; its records are not durable yet."""
        fx = Effects()
        call(fx)
        for record in fx.records:
            self.log.append((record.type, b"".join(record.parts)))
            for log_position, offset in record.log_positions:
                log_position.placed((len(self.log) << 32) + offset)
        for effect in fx.out:
            if isinstance(effect, ToNode):
                payloads = [m.payload for m in effect.messages]
                data = encode_message(effect.word, payloads)
                self.said.append((len(self.log), effect.node, data))
            elif isinstance(effect, Deliver):
                self.pending.append((len(self.log), effect))
        return fx

    def sync(self, records=None):
        """The log is durable up to so many records; what waited for them goes out."""
        self.durable = len(self.log) if records is None else max(self.durable, records)
        while self.said and self.said[0][0] <= self.durable:
            _, node, data = self.said.pop(0)
            self.world.carry(self.index, node, data)
        while self.pending and self.pending[0][0] <= self.durable:
            self.got += self.pending.pop(0)[1].messages

    def send(
        self,
        count=1,
        priority=4,
        ttl_ms=0,
        is_persistent=True,
        properties=None,
        producer=1,
        body=b"body",
    ):
        """So many messages of a producer: 1 to the queue, 2 and 3 on topics."""
        head = encode_head(Head(properties or {}))
        row = ROW.pack(len(head), len(body), ttl_ms, 0, priority, 0, 0, 0)
        pack = memoryview(pack_messages([(row, head, body)] * count))
        first, self.sequence = self.sequence + 1, self.sequence + count
        what = (first, count, is_persistent, pack, self.world.clock(self.index))
        return self.run(lambda fx: self.engine.send(1, 5, producer, *what, fx))

    def consume(self, handle=1, credit=1000, **options):
        """A consumer with so much credit."""
        request = ConsumerRequest(handle, 1, "queue", QUEUE, credit, **options)
        now_ms = self.world.clock(self.index)
        return self.run(lambda fx: self.engine.open_consumer(1, request, 1, now_ms, fx))

    def subscribe(self, handle=1, topic=TOPIC, credit=1000, **options):
        """A subscriber with so much credit."""
        request = ConsumerRequest(handle, 1, "topic", topic, credit, **options)
        now_ms = self.world.clock(self.index)
        return self.run(lambda fx: self.engine.open_consumer(1, request, 1, now_ms, fx))

    def leave(self, handle=1):
        """A consumer or subscriber goes."""
        now_ms = self.world.clock(self.index)
        self.run(lambda fx: self.engine.close_consumer(1, handle, now_ms, fx))

    @property
    def queue(self):
        return self.engine.state.queues[QUEUE]

    def held(self):
        """Ids of messages that this node can give to a consumer, or has given to one."""
        out = {id_ for c in self.queue.consumers for id_ in c.out}
        return sorted([*out, *(m.id for m in self.queue.line.everything())])

    def undecided(self):
        """Ids of messages that are offered to another node."""
        return sorted(id_ for _, id_ in self.engine.state.moves.undecided)


class World:
    """Nodes 1 … count; a link carries words in order until it is cut."""

    def __init__(self, count=2, limits=None, skew_ms=None, **queue):
        self.now_ms = 1_000_000_000
        self.skew_ms = skew_ms or {}
        self.wires = {}
        self.cut = set()
        limits = limits or {}
        self.nodes = {
            i: Node(self, i, settings_of(i, count, limits, **queue)) for i in range(1, count + 1)
        }

    def clock(self, index):
        """A node's own clock."""
        return self.now_ms + self.skew_ms.get(index, 0)

    def carry(self, source, target, data):
        """Put a word on the wire."""
        if frozenset((source, target)) not in self.cut:
            life = self.nodes[source].life
            self.wires.setdefault((source, target), []).append((life, data))

    def link(self, one, other):
        """Both hear one another from now on."""
        self.cut.discard(frozenset((one, other)))
        for a, b in ((one, other), (other, one)):
            self.wires[a, b] = []
        for a, b in ((one, other), (other, one)):
            self.nodes[a].hears(b, self.nodes[b].life)
            self.nodes[a].sync()

    def unlink(self, one, other):
        """Cut: what is under way is lost, and both notice."""
        self.cut.add(frozenset((one, other)))
        for a, b in ((one, other), (other, one)):
            self.wires[a, b] = []
            self.nodes[a].misses(b)

    def link_all(self):
        """Everybody hears everybody."""
        for one in self.nodes:
            for other in self.nodes:
                if one < other:
                    self.link(one, other)

    def crash(self, index):
        """What was not synced is lost; the node boots again and is heard again."""
        for other in self.nodes:
            if other != index:
                self.unlink(index, other)
        self.nodes[index].boot()
        for other in self.nodes:
            if other != index:
                self.link(index, other)

    def deliver_one(self, wire, *, is_synced=True):
        """The next word of a wire arrives; it is dropped if its sender was booted since."""
        source, target = wire
        life, data = self.wires[wire].pop(0)
        node = self.nodes[target]
        word, payloads = decode_message(data)
        if node.engine.cluster.peers[source].life == life:
            now_ms = self.clock(target)
            node.run(lambda fx: node.engine.cluster.heard(source, word, payloads, now_ms, fx))
            if is_synced:
                node.sync()

    def settle(self):
        """Carry words until nobody says anything."""
        for _ in range(10_000):
            busy = sorted(wire for wire, words in self.wires.items() if words)
            if not busy:
                return
            for wire in busy:
                if self.wires[wire]:
                    self.deliver_one(wire)
        raise AssertionError("the nodes never come to rest")

    def tick(self, by_ms=INTERVAL_MS):
        """Time passes, and what comes of it."""
        self.now_ms += by_ms
        for node in self.nodes.values():
            node.tick()
            node.sync()
        self.settle()

    def copies(self):
        """How often each message can be served, cluster-wide."""
        found = {}
        for node in self.nodes.values():
            for id_ in node.held():
                found[id_] = found.get(id_, 0) + 1
        return found
