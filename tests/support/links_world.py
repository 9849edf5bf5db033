"""Nodes with real links and a libzmq that is played, so that the clock and the faults are ours.

A frame goes from libzmq's queue (queued) through the kernel's buffers (under_way) to its reader
(arrived). A connection that breaks loses the first of these and an end of the second. One that is
dead carries nothing, takes frames until its queue is full, and nobody is told of it.

A period is the time from a change to up till the one to down. Each node numbers its words in every
period, and checks at once what its links tell it: the words of one period are taken in one period
of the other node, from the first one on, in order and without a gap. Its engine has nothing but a
version: it says that when another node comes up, and when it changes.
"""

import struct
from collections import deque
from dataclasses import dataclass, field
from itertools import count, pairwise
from types import SimpleNamespace

import zmq

from hms.boot.linking import Linking
from hms.engine.cluster.members import NOBODY, Change, Incarnation
from hms.server.links.link_frames import LinkKind, decode_link
from hms.server.links.link_settings import LinkPeer, LinkSettings
from hms.server.links.links import Links

HEARTBEAT_S = 1.0
FRAME_BYTES_MAX = 1 << 16
QUEUED_MAX = 4
WORD = struct.Struct("<III")
"""The period it is said in, the how many-th word of it, and the version of the node."""


class Connection:
    """From a dialer to a listener."""

    def __init__(self, name, dialer, listener):
        self.name, self.dialer, self.listener = name, dialer, listener
        self.is_open, self.is_dead = True, False
        self.frames = self.queued, self.under_way, self.arrived = deque(), deque(), deque()


class Network:
    """All connections, also those that are closed while frames are under way."""

    def __init__(self, rnd):
        self.rnd = rnd
        self.listeners, self.dialers, self.connections = {}, [], []
        self._names = (b"\0%04d" % number for number in count(1))

    def carry(self, share=1.0):
        """Connect, and move frames on; share: how likely each of them moves."""
        for dialer in self.dialers:
            listener = self.listeners.get(dialer.address)
            if dialer.connection is None and listener is not None and self.rnd.random() < share:
                dialer.connection = Connection(next(self._names), dialer, listener)
                self.connections.append(dialer.connection)
        for one in self.connections:
            for source, target in () if one.is_dead else pairwise(one.frames):
                while source and self.rnd.random() < share:
                    target.append(source.popleft())
        self.connections = [one for one in self.connections if one.is_open or any(one.frames)]

    def cut(self, connection, *, is_lossy=True):
        """It ends, and the dialer makes another one. What has left libzmq may arrive still."""
        connection.is_open, connection.dialer.connection = False, None
        if is_lossy:
            connection.queued.clear()
            for _ in range(self.rnd.randint(0, len(connection.under_way))):
                connection.under_way.pop()


class Socket:
    """on_send sees each frame that a dialer takes."""

    def __init__(self, network, on_send):
        self.network, self.on_send = network, on_send

    def setsockopt(self, option, value):
        """None of them is played."""


class Listener(Socket):
    """A ROUTER."""

    def bind(self, address):
        self._address = address
        self.network.listeners[address] = self

    def recv_multipart(self, _flags, **_options):
        ready = [c for c in self.network.connections if c.listener is self and c.arrived]
        if not ready:
            raise zmq.Again
        one = self.network.rnd.choice(ready)
        return [
            SimpleNamespace(bytes=part, get=lambda _name: "")
            for part in (one.name, *one.arrived.popleft())
        ]

    def send_multipart(self, parts, flags):
        """A refusal is for people."""

    def close(self, _linger):
        del self.network.listeners[self._address]
        for one in [c for c in self.network.connections if c.listener is self]:
            if one.is_open:
                self.network.cut(one)
            self.network.connections.remove(one)


class Dialer(Socket):
    """A DEALER; it takes nothing while it is not connected."""

    connection = None

    def connect(self, address):
        self.address = address
        self.network.dialers.append(self)

    def send_multipart(self, parts, _flags, **_options):
        if self.connection is None or len(self.connection.queued) >= QUEUED_MAX:
            raise zmq.Again
        self.on_send(parts)
        self.connection.queued.append(parts)

    def recv_multipart(self, _flags):
        raise zmq.Again

    def close(self, linger):
        self.network.dialers.remove(self)
        if self.connection is not None:
            self.network.cut(self.connection, is_lossy=not linger)


@dataclass
class Side:
    """What a node's links have told it of another one, and what its engine made of that. period 0:
    it is not up; taken_of: the period of the other one that was listened to last; lane: what the
    engine has not handled yet; version: what it knows of the other one."""

    period: int = 0
    life: Incarnation = NOBODY
    said: int = 0
    taken: int = 0
    taken_of: int = 0
    lane: list = field(default_factory=list)
    engine_life: Incarnation = NOBODY
    version: int = 0

    def word(self, version):
        """The next one that is said."""
        self.said += 1
        return WORD.pack(self.period, self.said, version)


class Node:
    """A run of a node; for its links it is the context of libzmq, the outbox and the lanes too."""

    def __init__(self, world, life):
        self._world, self.life, self.index = world, life, life.store
        self.sides = {other: Side() for other in world.versions if other != self.index}
        self._unsaid, self._released = [], []
        self._linking = object.__new__(Linking)  # without an engine and a broker
        self._linking.lanes = self
        own = f"n{self.index}", self.index, f"n{self.index}"
        peers = tuple(LinkPeer(other, f"n{other}", f"n{other}") for other in self.sides)
        self.links = Links(
            LinkSettings("hms", *own, peers, HEARTBEAT_S, FRAME_BYTES_MAX),
            on_word=self._take,
            on_change=self._change,
            wake=lambda: None,
            clock=lambda: world.now,
        )
        self.links.life, self.links.outbox = life, self
        self.links.open(self)

    def socket(self, kind):
        """As a context does."""
        sort = Listener if kind == zmq.ROUTER else Dialer
        return sort(self._world.network, self._check_sent)

    def drain(self, _items_max):
        """As the outbox does. A word gets its number here: only now its period is known."""
        found, self._released = self._released, []
        return [(index, self.sides[index].word(version)) for index, version in found]

    def put_many(self, key, items):
        """As the lanes do."""
        lane = self.sides[key.index].lane
        has_room = len(lane) + len(items) <= self._world.lane_max
        lane += items if has_room else []
        return has_room

    def discard(self, key):
        """As the lanes do."""
        self.sides[key.index].lane.clear()

    def _check_sent(self, parts):
        if decode_link(parts, FRAME_BYTES_MAX).kind is LinkKind.WORD:
            periods = [side.period for side in self.sides.values() if side.period]
            assert WORD.unpack(parts[1])[0] in periods, "it is said when its period is over"

    def _change(self, change):
        side = self.sides[change.node]
        assert change.is_up != bool(side.period), "it comes or goes twice in a row"
        side.period = next(self._world.periods) if change.is_up else 0
        side.life = change.life if change.is_up else NOBODY
        side.said = side.taken = 0
        self._linking._on_change(change)

    def _take(self, index, items):
        side = self.sides[index]
        if not self._linking._on_word(index, items):
            return False
        for life, data in items:
            period, number, _ = WORD.unpack(data)
            assert life == side.life, "a word of a life that is not up"
            if side.taken == 0:
                assert period > side.taken_of, "one period is taken in two"
                side.taken_of = period
            assert (period, number) == (side.taken_of, side.taken + 1), "another word is the next"
            side.taken += 1
        return True

    def change_version(self):
        """Whoever is up is to know it."""
        self._world.versions[self.index] += 1
        self._say([index for index, side in self.sides.items() if side.engine_life != NOBODY])

    def _say(self, indexes):
        self._unsaid += [(index, self._world.versions[self.index]) for index in indexes]

    def release(self, words_max=None):
        """The log is durable so far that these words may be said; None: all."""
        self._released += self._unsaid[:words_max]
        del self._unsaid[:words_max]

    def handle(self, items_max=None):
        """What a lane's worker would do; None: all that waits."""
        for side in self.sides.values():
            for item in side.lane[:items_max]:
                self._handle(side, item)
            del side.lane[:items_max]
            assert side.lane or side.engine_life == side.life, "a change is not told"

    def _handle(self, side, item):
        if isinstance(item, Change):
            side.engine_life, side.version = item.life if item.is_up else NOBODY, 0
            self._say([item.node] if item.is_up else [])
        elif side.engine_life == item[0]:
            version = WORD.unpack(item[1])[2]
            assert version >= side.version, "an engine is told what is older than what it knows"
            side.version = version
