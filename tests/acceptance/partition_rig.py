"""What the partition suite shares: shapes of cuts, set-ups in two sizes, a cluster in namespaces.

The full size follows the suite of the RabbitMQ project (rabbitmq/jepsen): four shapes, cuts of 10
and 30 s every 20 s, mixed consumers; one shape with listeners alone and one with polling alone;
and all shapes with a time to live and dead letters: 4 * 2 + 2 + 4 = 14 set-ups of 180 s each, five
nodes, 50 sends a second from each of five threads, a heartbeat time of 5 s.
"""

import random
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

from global_queue_rig import CONNECT, IS_FULL, Load, await_up

import hms
from hms.server.links.keys import make_key_file
from hms.testing.nodes import TestNode
from tests.support.waiting import drained

PORT = 7800
NODES = 5 if IS_FULL else 3
CLIENTS_HEARTBEAT_S = 60
"""No cut is between a client and its node: on a slow machine neither gives the other up."""
LATE = hms.Queue("late")
GLOBAL = {"GLOBAL": "Y", "GQTHR": 20, "GQMAXREQ": 50}
CONFIG = {
    "hms": {"queue": {"orders": {**GLOBAL, "expired_to": "late"}, "late": {**GLOBAL, "GQTHR": 100}}}
}
CONSUMERS = {
    "asynchronous": ("listener", "listener"),
    "polling": ("polling", "polling"),
    "mixed": ("client", "transacted", "listener", "polling"),
}


def _random_halves(lab, dice):
    lab.halve(*dice.sample(lab.indexes, NODES // 2))


def _halves(lab, _):
    lab.halve(*lab.indexes[: NODES // 2])


def _ring(lab, dice):
    lab.ring(dice.sample(lab.indexes, NODES))


def _random_node(lab, dice):
    lab.isolate(dice.choice(lab.indexes))


def _all_apart(lab, _):
    lab.isolate(*lab.indexes)


def _one_direction(lab, dice):
    one, other = dice.sample(lab.indexes, 2)
    lab.mute(one, other)


SHAPES = {
    "random halves": _random_halves,
    "halves": _halves,
    "majorities ring": _ring,
    "random node": _random_node,
    "all apart": _all_apart,
    "one direction": _one_direction,
}
FOUR = list(SHAPES)[:4]


@dataclass(frozen=True)
class Setup:
    """A shape, how long its cuts last and the load between them, who consumes."""

    shape: str
    cut_s: float
    consumers: str = "mixed"
    has_dead_letters: bool = False
    pause_s: float = 20 if IS_FULL else 0.5
    load_s: float = 180 if IS_FULL else 3
    heartbeat_s: float = 5 if IS_FULL else 1

    def __str__(self):
        more = ", time to live and dead letters" if self.has_dead_letters else ""
        beat = "" if self.heartbeat_s == Setup.heartbeat_s else f", heartbeat {self.heartbeat_s:g}"
        cuts = f"{self.cut_s:g} of {self.cut_s + self.pause_s:g} s"
        return f"{self.shape}, {cuts}, {self.consumers}{more}{beat}"


def flapping(heartbeat_s):
    """A node comes and goes each second; with a short heartbeat time it is failed each time."""
    load_s = 60 if IS_FULL else 4
    return Setup("random node", 1, pause_s=1, load_s=load_s, heartbeat_s=heartbeat_s)


FULL = [
    *[Setup(shape, cut_s) for cut_s in (30, 10) for shape in FOUR],
    Setup("random node", 10, "asynchronous"),
    Setup("random node", 10, "polling"),
    *[Setup(shape, 30, has_dead_letters=True) for shape in FOUR],
    Setup("all apart", 30),
    Setup("one direction", 30),
    Setup("one direction", 10),
    flapping(5),
    flapping(0.5),
]
"""The 14 set-ups, and what goes beyond them."""
ORDINARY = [
    Setup("random halves", 2.5),
    Setup("halves", 2.5, "asynchronous"),
    Setup("majorities ring", 2.5),
    Setup("random node", 2.5, "polling"),
    Setup("halves", 2.5, has_dead_letters=True),
    Setup("all apart", 2.5),
    Setup("one direction", 2.5),
    flapping(0.5),
]
SETUPS = FULL if IS_FULL else ORDINARY


@contextmanager
def cluster_in(lab, folder, heartbeat_s, config=CONFIG):
    """A node in each namespace, with keys, as the links leave loopback."""
    groups = {}
    for index in lab.indexes:
        key = folder / f"n{index}.key"
        groups[f"g{index}"] = {
            "NODENAME": f"n{index}",
            "HMSINDEX": index,
            "HMSPORT": PORT,
            "HMSHEARTBEAT": heartbeat_s,
            "HMSGQINT": 0.2,
            "link_host": lab.address(index),
            "link_key_file": str(key),
            "link_public_key": make_key_file(key),
        }
    nodes = {
        f"n{i}": {"listen": [f"ipc://{folder}/n{i}.ipc"], "heartbeat_s": CLIENTS_HEARTBEAT_S}
        for i in lab.indexes
    }
    config = {**config, "node": nodes, "svrgroup": groups}
    first = TestNode(folder, folder / "store", config, (), (), (), len(lab.indexes))
    try:
        for index, one in enumerate(first.nodes, 1):
            one._prefix = lab.prefix(index)
            one.boot()
        await_up(first)
        yield first
    finally:
        for one in first.nodes:
            if one.is_running:
                one.kill()


def start_load(cluster, setup):
    """Producers at the first nodes, consumers at the last ones; at one node there are both."""
    load = Load(
        rate_per_s=50 if IS_FULL else 0,
        ttl_s=1 if setup.has_dead_letters else 0,
        poison=50 if setup.has_dead_letters else 0,
    )
    middle = NODES // 2
    for number in range(NODES if IS_FULL else middle + 1):
        load.produce(cluster.nodes[number % (middle + 1)].address, f"p{number}")
    for one in cluster.nodes[middle:]:
        for style in CONSUMERS[setup.consumers]:
            load.consume(one.address, style)
        if setup.has_dead_letters:
            load.consume(one.address, "client", LATE)
    return load


def cut_and_heal(lab, load, setup, dice):
    """As often as the time allows, once at least; how often that was."""
    until, cuts = time.monotonic() + setup.load_s, 0
    while not cuts or time.monotonic() + setup.pause_s < until:
        threading.Event().wait(setup.pause_s)
        SHAPES[setup.shape](lab, dice)
        cuts += 1
        threading.Event().wait(max(0.5, min(setup.cut_s, until - time.monotonic())))
        lab.heal()
        assert not load.faults, load.faults
    return cuts


def run(lab, cluster, setup, seed):
    """Load, cuts, heal, drain: what a set-up shows."""
    moved_before, expired_before = moved(cluster), expired(cluster)
    load = start_load(cluster, setup)
    load.await_flow(100)
    cuts = cut_and_heal(lab, load, setup, random.Random(seed))
    await_up(cluster)
    load.await_flow(100)
    load.finish(cluster)
    dead = [body for one in cluster.nodes for body in dead_letters(one)]
    verdict = load.verdict(dead)
    figures = {"nodes": NODES, "cuts": cuts, "moved": moved(cluster) - moved_before}
    figures |= {"expired": expired(cluster) - expired_before, "dead": len(dead)}
    return verdict, figures | verdict._asdict()


def dead_letters(one):
    """What lies in the dead letter queue of a node."""
    with hms.connect(one.address, **CONNECT) as conn, conn.session(transacted=True) as session:
        consumer = session.consumer(hms.Queue("HMS.DLQ"))
        found = [message.body for message in drained(conn, consumer, is_held=True)]
        session.commit()
    return found


def moved(cluster):
    """Messages that went from node to node, each time counted."""
    count = 0
    for one in cluster.nodes:
        with hms.connect(one.address, **CONNECT) as conn:
            members = conn.administer("cluster.status")["members"]
            count += sum(member["moved_in"] for member in members)
    return count


def expired(cluster):
    """Messages whose time to live ended where they waited."""
    count = 0
    for one in cluster.nodes:
        with hms.connect(one.address, **CONNECT) as conn:
            count += conn.administer("queue.show", {"name": "orders"})["expired"]
    return count
