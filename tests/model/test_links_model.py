"""Links under random faults: connections that break or die, pauses, cuts, nodes that begin again.

While faults come, what a node says to one that is up is taken in order, in one period of its being
up (tests/support/links_world.py). When no more come, all links come up by themselves, dead
connections staying dead; then nothing that was said is missing, each node knows the newest version
of the others, and nobody goes down any more.

HMS_SIM_SEED=7 pytest tests/model/test_links_model.py      one seed, with its log
HMS_SIM_SECONDS=600 pytest tests/model/test_links_model.py --timeout 2000      random seeds
"""

import logging
import os
import random
import time
from itertools import count, islice, takewhile

import pytest

from hms.engine.cluster.members import DEAF_MS, Incarnation
from hms.server.links import links
from tests.support.links_world import HEARTBEAT_S, Network, Node

RUNS = 45
STEPS_MAX = 700
ROUND_S = 0.1
SILENCE_ROUNDS = 11
CALM_ROUNDS = 10
UP_AFTER_S = DEAF_MS / 1000 + 5 * HEARTBEAT_S
ROOMS = ((4096, 64 << 20), (4096, 400), (2, 64 << 20))
"""Items that a lane holds, and bytes that a node keeps for one that does not read."""


class World:
    """Two or three nodes, the network between them, and one clock."""

    def __init__(self, seed, monkeypatch):
        self.rnd = random.Random(seed)
        self.now = 100.0
        self.lane_max, pending_bytes_max = self.rnd.choice(ROOMS)
        monkeypatch.setattr(links, "PENDING_BYTES_MAX", pending_bytes_max)
        self.network = Network(self.rnd)
        self.versions = dict.fromkeys(range(1, self.rnd.choice([2, 2, 3]) + 1), 0)
        self.periods, self.nodes, self.paused_until = count(1), {}, {}
        for index in self.versions:
            self.start(Incarnation(index, 1))

    def start(self, life):
        """A run of a node begins."""
        self.nodes[life.store] = Node(self, life)

    def some_node(self):
        return self.rnd.choice(list(self.nodes.values()))

    def some_connection(self):
        """One that is open, if there is any."""
        return self.rnd.choice([c for c in self.network.connections if c.is_open] or [None])

    def ends(self):
        """Each node with each other one: (node, index of the other one)."""
        return [(node, index) for node in self.nodes.values() for index in node.sides]

    def periods_now(self):
        return [node.sides[index].period for node, index in self.ends()]

    def is_settled(self):
        """All are up and told all that was said; no connection is dead without anybody's notice."""
        is_whole = all(self._is_told(node, index) for node, index in self.ends())
        return is_whole and not any(c.is_open and c.is_dead for c in self.network.connections)

    def _is_told(self, node, index):
        side, other = node.sides[index], self.nodes[index].sides[node.index]
        told = side.taken_of, side.taken, side.version
        return side.period > 0 and told == (other.period, other.said, self.versions[index])

    def round(self):
        """A moment in which nobody is held up."""
        for node in self.nodes.values():
            node.handle()
            node.release()
            node.links.take_turn()
            self.network.carry()
        self.now += ROUND_S


def take_turn(world):
    node = world.some_node()
    if world.paused_until.get(node.index, 0) <= world.now:
        node.links.take_turn()


def carry(world):
    world.network.carry(share=0.6)


def pass_time(world):
    world.now += world.rnd.choice([*[0.01, 0.05, 0.2, 0.4] * 3, 1.1, 2.5])


def change_version(world):
    world.some_node().change_version()


def release(world):
    world.some_node().release(world.rnd.randint(1, 5))


def handle(world):
    world.some_node().handle(world.rnd.randint(1, 4))


def break_connection(world):
    if (connection := world.some_connection()) is not None:
        world.network.cut(connection)


def deaden_connection(world):
    if (connection := world.some_connection()) is not None:
        connection.is_dead = True


def revive_connections(world):
    """What is under way in dead ones comes late, also if they are closed."""
    for connection in world.network.connections:
        connection.is_dead = False


def pause_node(world):
    world.paused_until[world.some_node().index] = world.now + world.rnd.choice([0.3, 0.6, 1.5])


def cut_link(world):
    node, index = world.rnd.choice(world.ends())
    node.links.cut(index, "test", world.now)


def start_again(world):
    node = world.some_node()
    node.links.close()
    world.start(Incarnation(node.index, node.life.incarnation + 1))


STEPS = {
    World.round: 5,
    take_turn: 70,
    carry: 40,
    pass_time: 16,
    change_version: 28,
    release: 16,
    handle: 8,
    break_connection: 5,
    deaden_connection: 3,
    revive_connections: 1,
    pause_node: 2,
    cut_link: 1,
    start_again: 3,
}
"""What may happen, and how often."""


def walk(world):
    """Anything, in any order."""
    steps = world.rnd.choices(list(STEPS), list(STEPS.values()), k=world.rnd.randint(20, STEPS_MAX))
    for step in steps:
        step(world)


def settle(world):
    """No more faults come; what is dead stays dead until somebody makes another connection."""
    until = world.now + UP_AFTER_S
    for _ in range(SILENCE_ROUNDS):
        world.round()
    while not world.is_settled():
        assert world.now < until, "the links do not come up by themselves"
        world.round()


def stay_up(world):
    """Nobody goes down without a fault; that the whole machine slept for a while is none."""
    periods = world.periods_now()
    for asleep_s in (0, 2 * HEARTBEAT_S, 0):
        world.now += asleep_s
        for _ in range(CALM_ROUNDS):
            world.some_node().change_version()
            world.round()
    settle(world)
    assert world.periods_now() == periods, "a link went down"


def wanted_seeds():
    """The seeds to run: as the environment says, else always the same ones."""
    seed, seconds = os.environ.get("HMS_SIM_SEED"), os.environ.get("HMS_SIM_SECONDS")
    if seconds is None:
        return range(RUNS) if seed is None else [int(seed)]
    until = time.monotonic() + float(seconds)
    first = int(seed or random.SystemRandom().getrandbits(40))
    return takewhile(lambda _: time.monotonic() < until, count(first))


@pytest.fixture(autouse=True)
def _log(caplog):
    """That of one seed tells its story."""
    if "HMS_SIM_SEED" not in os.environ:
        caplog.set_level(logging.CRITICAL, "hms.links")


def run(seed, monkeypatch, *acts):
    """Play one world; how many periods each side had on the average."""
    world = World(seed, monkeypatch)
    try:
        for act in acts:
            act(world)
    except Exception as fault:
        fault.add_note(f"repeat: HMS_SIM_SEED={seed} pytest tests/model/test_links_model.py")
        raise
    return (next(world.periods) - 1) / len(world.ends())


def test_what_is_said_to_a_node_that_is_up_arrives_or_is_said_again(monkeypatch):
    """An interest or an offer that was lost in silence would be missed for ever."""
    periods = [
        run(seed, monkeypatch, walk, settle, walk, settle, stay_up) for seed in wanted_seeds()
    ]

    assert len(periods) < RUNS or sum(periods) > 3 * RUNS, "too few links broke to show anything"


def test_without_a_fault_every_node_comes_up_once(monkeypatch):
    """A link that breaks by itself costs both nodes all that they know of one another."""
    for seed in islice(wanted_seeds(), 10):
        assert run(seed, monkeypatch, settle, stay_up) == 1
