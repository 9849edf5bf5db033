"""Links of several nodes on loopback, turned by hand in one thread, and strangers' sockets."""

import time

import zmq

from hms.engine.cluster.members import Incarnation
from hms.errors.catalogue import AddressUnusable
from hms.server.links.link_settings import LinkPeer, LinkSettings
from hms.server.links.links import Links
from hms.server.refused_connections import RefusedConnections
from hms.testing.ports import free_port

TIMEOUT_S = 60
FIRST = Incarnation(100, 1)
FRAME_BYTES_MAX = 1 << 16


class LinkNode:
    """One node's links, and what they told."""

    def __init__(self, context, settings, clock, life=FIRST, on_key_learned=None):
        self.ahead_ms = 0
        self.words, self.changes, self.told = [], [], []
        self.takes_words = True
        self.refused = RefusedConnections(is_audited=True)
        self.links = Links(
            settings,
            on_word=self._word,
            on_change=self._change,
            wake=lambda: None,
            on_key_learned=on_key_learned or (lambda *_: None),
            clock=clock,
            refused=self.refused,
            clock_ms=lambda: time.time_ns() // 1_000_000 + self.ahead_ms,
        )
        self.links.life = life
        self.links.open(context)

    def _word(self, index, items):
        if self.takes_words:
            self.words += [(index, data) for _, data in items]
            self.told += [data for _, data in items]
        return self.takes_words

    def _change(self, change):
        self.changes.append(change)
        self.told.append("up" if change.is_up else "down")

    def say(self, index, data):
        """A word for a node."""
        self.links.outbox.put_many([(index, data)])

    def link(self, name):
        """What the status tells of the link to a node."""
        (found,) = [one for one in self.links.describe()["links"] if one["node"] == name]
        return found


class Rig:
    """Nodes n1, n2 …; keys: their key pairs by index."""

    def __init__(self, count=2, heartbeat_s=2.0, keys=None):
        self.context = zmq.Context()
        self.contexts = [self.context]
        self.now = time.monotonic
        self.addresses = {i: f"tcp://127.0.0.1:{free_port()}" for i in range(1, count + 1)}
        self.heartbeat_s, self.keys = heartbeat_s, keys or {}
        self.nodes = {}
        self.strangers = []

    def peers_of(self, index, ways=()):
        """The others, as hms.conf tells a node; ways: by index, where it finds them instead."""
        return tuple(
            LinkPeer(i, f"n{i}", address, self.keys[i].public.decode() if self.keys else "")
            for i, address in (self.addresses | dict(ways)).items()
            if i != index
        )

    def settings(self, index, **changed):
        """What hms.conf would tell a node."""
        values = {
            "cluster": "hms",
            "name": f"n{index}",
            "index": index,
            "address": self.addresses[index],
            "peers": self.peers_of(index),
            "heartbeat_s": self.heartbeat_s,
            "frame_bytes_max": FRAME_BYTES_MAX,
            "keys": self.keys.get(index),
        }
        return LinkSettings(**{**values, **changed})

    def start(self, index, life=FIRST, on_key_learned=None, **changed):
        """A node begins to listen."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                settings = self.settings(index, **changed)
                node = LinkNode(self._context(), settings, self.clock, life, on_key_learned)
                break
            except AddressUnusable:  # libzmq gives a port back a little later
                assert time.monotonic() < deadline
        self.nodes[index] = node
        return node

    def clock(self):
        """What the links take for the time; now may be replaced."""
        return self.now()

    def _context(self):
        """Each node has its own, as the guard's address is one of the whole context."""
        self.contexts.append(zmq.Context())
        return self.contexts[-1]

    def stop(self, index):
        """It says good-bye."""
        self.nodes.pop(index).links.close()

    def stranger(self, index, **options):
        """A bare socket that leads to a node."""
        found = self.context.socket(zmq.DEALER)
        found.setsockopt(zmq.LINGER, 0)
        for name, value in options.items():
            setattr(found, name, value)
        found.connect(self.addresses[index])
        self.strangers.append(found)
        return found

    def until(self, is_so):
        """Turn all links until something is so."""
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline, "it does not come about"
            for node in self.nodes.values():
                node.links.take_turn()
            zmq.select([node.links.sockets()[0] for node in self.nodes.values()], [], [], 0.005)

    def until_up(self, *indexes):
        """These hear one another."""
        self.until(
            lambda: all(
                self.nodes[a].link(f"n{b}")["presence"] == "up"
                for a in indexes
                for b in indexes
                if a != b
            )
        )

    def close(self):
        """Give everything back."""
        for index in list(self.nodes):
            self.stop(index)
        for one in self.strangers:
            one.close(0)
        for context in self.contexts:
            context.destroy(0)
