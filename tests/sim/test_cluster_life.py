"""Days in the life of a small cluster, from a seed: sends, consumers that come and go, crashes with
half-synced logs, cuts, cleaning, drains; whatever happens, each message is in one place (C01-C05).
"""

import os
import random
from contextlib import suppress

import pytest

from hms.errors.catalogue import QueueFull
from hms.records import RecordType, decode_sent
from tests.support.cluster_rig import World

SEEDS = range(int(os.environ.get("HMS_CLUSTER_SEEDS", "25")))
STEPS = 120


class Life:
    """A world, what was confirmed, what was consumed for good."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        limits = {3: {"messages_max": 40}}
        self.world = World(3, limits=limits, full=30, threshold=5, request_max=7)
        self.world.link_all()
        self.world.settle()
        self.confirmed, self.consumed = set(), set()
        self.handles = dict.fromkeys(self.world.nodes, 0)

    def step(self):
        """One thing happens, and perhaps some words arrive."""
        choice = self.random.choice
        node = self.world.nodes[choice(list(self.world.nodes))]
        choice(
            [
                self.send,
                self.send,
                self.consume,
                self.leave,
                self.acknowledge,
                self.acknowledge,
                self.wander,
                self.wander,
                self.tick,
                self.cut,
                self.heal,
                self.crash,
                self.clean,
                self.drain,
            ]
        )(node)
        self.check()

    def send(self, node):
        options = {"priority": self.random.randrange(10)}
        before = node.durable
        with suppress(QueueFull):
            node.send(self.random.randint(1, 8), **options)
        if self.random.random() < 0.8:
            node.sync()
            self.note(node, before)

    def note(self, node, before):
        """What became durable in a SENT record of a producer is confirmed."""
        for record in node.log[before : node.durable]:
            if record is not None and record[0] == RecordType.SENT:
                sent = decode_sent(record[1])
                if not sent.is_forwarded:
                    ids = range(sent.first_message_id, sent.first_message_id + sent.message_count)
                    self.confirmed.update(ids)

    def consume(self, node):
        if not node.queue.consumers:
            self.handles[node.index] += 1
            node.consume(self.handles[node.index], credit=self.random.choice([0, 3, 50]))

    def leave(self, node):
        for consumer in list(node.queue.consumers):
            node.leave(consumer.handle)

    def acknowledge(self, node):
        """A consumer is done with what was delivered durably."""
        self.sync(node)
        for consumer in list(node.queue.consumers):
            ids = [i for i in consumer.out if self.random.random() < 0.7]
            assert not self.consumed & set(ids), "a message was consumed twice"
            now_ms, spans = self.world.now_ms, [(i, i) for i in ids]
            handle, epoch = consumer.handle, consumer.epoch
            node.run(lambda fx: node.engine.acknowledge(1, handle, epoch, spans, now_ms, fx))
            self.sync(node)
            self.consumed.update(ids)

    def sync(self, node):
        before = node.durable
        node.sync()
        self.note(node, before)

    def wander(self, _):
        """Some words arrive, some records become durable."""
        for _ in range(self.random.randint(1, 20)):
            wires = sorted(wire for wire, words in self.world.wires.items() if words)
            if wires:
                self.world.deliver_one(self.random.choice(wires), is_synced=False)
            node = self.world.nodes[self.random.choice(list(self.world.nodes))]
            before = node.durable
            if node.durable < len(node.log):
                node.sync(self.random.randint(node.durable, len(node.log)))
                self.note(node, before)

    def tick(self, _):
        self.world.now_ms += 1000
        for node in self.world.nodes.values():
            node.tick()

    def pair(self):
        return self.random.choice([(1, 2), (1, 3), (2, 3)])

    def cut(self, _):
        if self.random.random() < 0.5:
            self.world.unlink(*self.pair())

    def heal(self, _):
        pair = self.pair()
        if frozenset(pair) in self.world.cut:
            self.world.link(*pair)

    def crash(self, node):
        if self.random.random() < 0.4:
            others = [i for i in self.world.nodes if i != node.index]
            linked = [i for i in others if frozenset((i, node.index)) not in self.world.cut]
            for index in linked:
                self.world.unlink(node.index, index)
            node.boot()
            for index in linked:
                self.world.link(node.index, index)

    def clean(self, node):
        before = node.durable
        if self.random.random() < 0.5:
            self.sync(node)
            before = node.durable
            node.clean()
            self.note(node, before)

    def drain(self, node):
        cluster = node.engine.cluster
        if cluster.is_drained:
            cluster.resume()
        elif self.random.random() < 0.1:
            cluster.drain()

    def check(self):
        """At every instant no message can be served at two places."""
        copies = self.world.copies()
        assert all(count == 1 for count in copies.values()), "a message is at two places"
        for node in self.world.nodes.values():
            line, taken = node.queue.line, node.queue.consumers
            out = sum(len(c.out) for c in taken)
            assert line.out_count == len(node.undecided()) + out
            assert node.engine.state.waiting_bytes == sum(
                place.line.size_bytes for place in node.engine.state.places.values()
            )

    def finish(self):
        """Everything is healed; then each confirmed message is consumed or at one node."""
        for pair in ((1, 2), (1, 3), (2, 3)):
            if frozenset(pair) in self.world.cut:
                self.world.link(*pair)
        for node in self.world.nodes.values():
            node.engine.cluster.resume()
            self.sync(node)
        self.world.settle()
        for _ in range(4):
            self.world.tick()
        held = set(self.world.copies())
        assert not any(node.undecided() for node in self.world.nodes.values())
        assert not self.confirmed - held - self.consumed, "a message is lost"
        assert not held & self.consumed, "a message came back"


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_each_message_is_in_one_place(seed):
    """P6, and the seed is the report."""
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.finish()


@pytest.mark.parametrize(
    "planted",
    [
        "hms.engine.cluster.moves.Moves.answered",
        "hms.engine.cluster.move_recovery.OffersFound._add",
    ],
)
def test_the_simulation_catches_a_fault_that_was_planted(planted, monkeypatch):
    """A checker that never failed is not trusted."""
    monkeypatch.setattr(planted, lambda *_, **__: None)
    caught = 0
    for seed in range(10):
        try:
            test_whatever_happens_each_message_is_in_one_place(seed)
        except (AssertionError, KeyError):
            caught += 1

    assert caught
