"""W10, clusters of 3, 10 and 100 nodes, simulated: the real engines, a simulated net and clock.

    python -m bench.cluster [--nodes 3 10 100] [--plot clustering.svg] [--json FILE]

Two loads. "balance": everything arrives at one node, nobody consumes; how long until no queue is a
quarter above the mean. "uneven": a fifth of the nodes produces, the first of them as much as all
others, a third consumes with buffers of 50, and every 15 s another third; what is moved for each
message delivered, and what the nodes tell one another meanwhile.
"""

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.plot import picture_file, plot
from hms.engine.cluster.cluster_messages import (
    Ask,
    ClusterMessage,
    Gossip,
    Interest,
    encode_message,
)
from hms.engine.cluster.cluster_settings import ClusterSettings, GlobalQueue
from hms.engine.cluster.members import Incarnation
from hms.engine.effects import Deliver, Effects, ToNode
from hms.engine.engine import ConsumerRequest, Engine
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.wire.packed_messages import ROW, pack_messages

__all__ = ["main"]

NODES = (3, 10, 100)
QUEUE = "orders"
INTERVAL_MS = 5000
STEP_MS = 200
ENVELOPE_BYTES = 44
MESSAGES_PER_NODE = 200
BALANCE_S_MAX = 120
UNEVEN_S = 60
SHIFT_MS = 15_000
RATE = 20
"""Messages that arrive in a step at all producers but the first together, and at that one."""
BODY = b"x" * 256


class Node:
    """An engine whose log is durable at once."""

    def __init__(self, world: "World", index: int, count: int) -> None:
        self.world, self.index = world, index
        peers = tuple((i, f"n{i}") for i in range(1, count + 1) if i != index)
        queue = GlobalQueue(QUEUE, threshold=50, request_max=1000, full=50)
        self.engine = Engine(
            EngineSettings(
                node_index=index,
                destinations=(DestinationSettings("queue", QUEUE),),
                cluster=ClusterSettings(peers, INTERVAL_MS, (queue,)),
            )
        )
        self.delivered = self.sequence = self.gossip_bytes = 0
        self.run(lambda fx: self.engine.boot(world.now_ms, None, "bench", fx))
        self.engine.open_connection(1, index, "", "")
        self.engine.open_session(1, 1, 3, "")
        self.run(self._open)

    def _open(self, _: Effects) -> None:
        self.engine.open_producer(1, 1, 1, "queue", QUEUE)

    def run(self, call: Any) -> None:
        """A command; its words go on the net."""
        fx = Effects()
        call(fx)
        for effect in fx.out:
            if isinstance(effect, ToNode):
                if isinstance(effect.word, Gossip | Ask | Interest):
                    self.gossip_bytes += len(encode_message(effect.word)) + ENVELOPE_BYTES
                payloads = [m.payload for m in effect.messages]
                self.world.net.append((self.index, effect.node, effect.word, payloads))
            elif isinstance(effect, Deliver):
                self.delivered += len(effect.messages)

    def send(self, count: int) -> None:
        """So many messages arrive."""
        row = ROW.pack(0, len(BODY), 0, 0, 4, 0, 0, 0)
        pack = memoryview(pack_messages([(row, b"", BODY)] * count))
        first, self.sequence = self.sequence + 1, self.sequence + count
        now_ms, is_kept = self.world.now_ms, True
        self.run(lambda fx: self.engine.send(1, 0, 1, first, count, is_kept, pack, now_ms, fx))

    def consume(self) -> None:
        """A consumer that takes what it gets."""
        request = ConsumerRequest(1, 1, "queue", QUEUE, 8192)
        now_ms = self.world.now_ms
        self.run(lambda fx: self.engine.open_consumer(1, request, 0, now_ms, fx))

    def leave(self) -> None:
        """The consumer goes."""
        self.run(lambda fx: self.engine.close_consumer(1, 1, self.world.now_ms, fx))

    def step(self) -> None:
        """Time passes here."""
        now_ms = self.world.now_ms
        self.run(lambda fx: self.engine.credit(1, 1, 0, 8192, now_ms, fx))
        assert self.engine.cluster is not None
        cluster = self.engine.cluster
        self.run(lambda fx: cluster.tick(now_ms, fx))

    def hear(self, source: int, word: ClusterMessage, payloads: list[bytes]) -> None:
        """A word arrives."""
        cluster, now_ms = self.engine.cluster, self.world.now_ms
        assert cluster is not None
        self.run(lambda fx: cluster.heard(source, word, payloads, now_ms, fx))

    @property
    def length(self) -> int:
        """How many messages wait."""
        return self.engine.state.queues[QUEUE].line.waiting_count

    @property
    def moved(self) -> int:
        """How many were given to other nodes."""
        return self.engine.state.queues[QUEUE].line.counters.moved_out


class World:
    """So many nodes that all hear one another, not all at the same moment of their intervals."""

    def __init__(self, count: int) -> None:
        self.now_ms = 1_000_000
        self.net: list[tuple[int, int, ClusterMessage, list[bytes]]] = []
        self.nodes = {i: Node(self, i, count) for i in range(1, count + 1)}
        for node in self.nodes.values():
            self._introduce(node)
        self._carry()

    def _introduce(self, node: Node) -> None:
        cluster = node.engine.cluster
        assert cluster is not None
        for index in cluster.peers:
            moves = self.nodes[index].engine.state.moves
            life = Incarnation(moves.life, moves.incarnation)
            node.run(lambda fx, i=index, life=life: cluster.up(i, life, self.now_ms, fx))

    def _carry(self) -> None:
        while self.net:
            words, self.net = self.net, []
            for source, target, word, payloads in words:
                self.nodes[target].hear(source, word, payloads)

    def step(self) -> None:
        """A fifth of a second; each node in its turn, so that no two act at one instant."""
        self.now_ms += STEP_MS
        for node in self.nodes.values():
            node.step()
        self._carry()

    def lengths(self) -> list[int]:
        """Of all queues."""
        return [node.length for node in self.nodes.values()]


def balance(count: int) -> dict[str, Any]:
    """Everything at one node; seconds until it is spread."""
    world = World(count)
    total = MESSAGES_PER_NODE * count
    for _ in range(0, total, 1000):
        world.nodes[1].send(min(1000, total))
    sent = sum(world.lengths())
    begin_ms, mean = world.now_ms, sent / count
    while max(world.lengths()) > 1.25 * mean:
        world.step()
        assert world.now_ms - begin_ms < BALANCE_S_MAX * 1000, "it is never balanced"
    moved = sum(node.moved for node in world.nodes.values())
    seconds = (world.now_ms - begin_ms) / 1000
    return {"balance_s": seconds, "moves_per_message": round(moved / sent, 3)}


def uneven(count: int) -> dict[str, Any]:
    """Producers and consumers at different nodes; moves for each delivery, bytes of gossip."""
    world = World(count)
    producers = [world.nodes[i] for i in range(1, 2 + count // 5)]
    consumers: list[Node] = []
    before = sum(node.gossip_bytes for node in world.nodes.values())
    for step in range(UNEVEN_S * 1000 // STEP_MS):
        if step * STEP_MS % SHIFT_MS == 0:
            consumers = _shift(world, consumers, step)
        producers[0].send(RATE)
        for node in producers[1:]:
            node.send(max(1, RATE // len(producers)))
        world.step()
    delivered = sum(node.delivered for node in world.nodes.values())
    moved = sum(node.moved for node in world.nodes.values())
    said = sum(node.gossip_bytes for node in world.nodes.values()) - before
    return {
        "delivered": delivered,
        "waiting": sum(world.lengths()),
        "moves_per_delivery": round(moved / delivered, 3),
        "gossip_bytes_per_node_s": round(said / count / UNEVEN_S, 1),
        "gossip_bytes_per_peer_s": round(said / count / (count - 1) / UNEVEN_S, 2),
    }


def _shift(world: World, before: list[Node], step: int) -> list[Node]:
    """Another third of the nodes consumes."""
    for node in before:
        node.leave()
    count = len(world.nodes)
    share, turn = max(1, count // 3), step * STEP_MS // SHIFT_MS
    found = [world.nodes[1 + (turn * share + i) % count] for i in range(share)]
    for node in found:
        node.consume()
    return found


def measure(sizes: Iterable[int]) -> list[dict[str, Any]]:
    """A row for each size of cluster."""
    rows = []
    for count in sizes:
        rows.append({"nodes": count, **balance(count), **uneven(count)})
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


def picture(rows: Sequence[dict[str, Any]]) -> str:
    """What must not grow with the cluster, relative to the smallest one."""
    names = {
        "balance_s": "time to balance",
        "moves_per_delivery": "moves per delivery",
        "gossip_bytes_per_peer_s": "gossip per peer",
    }
    lines = {}
    for key, name in names.items():
        first = rows[0][key] or statistics.fmean(row[key] for row in rows) or 1
        lines[name] = [(float(row["nodes"]), row[key] / first) for row in rows]
    return plot(lines, f"A cluster that grows, relative to {rows[0]['nodes']} nodes")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(NODES))
    parser.add_argument("--plot", type=picture_file)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows = measure(given.nodes)
    if given.plot is not None:
        given.plot.write_text(picture(rows))
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
