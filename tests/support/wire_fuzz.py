"""A process that attacks one node with frames, over clients' sockets, bare TCP and a cluster link.

    python -m tests.support.wire_fuzz SEED SECONDS ADDRESS [LINK OWN_LINK]

It prints how many of each it sent, as JSON.
"""

import contextlib
import json
import os
import random
import socket
import sys
import time
from collections import Counter

import msgspec
import zmq

from hms.engine.cluster.members import Incarnation, PeerState
from hms.server.links.link_frames import link_frame
from hms.server.links.link_settings import LinkPeer, LinkSettings
from hms.server.links.links import Links
from hms.wire import structures as wire
from hms.wire.client_identity import uid_of
from hms.wire.frames import Kind, frame
from tests.support.wire_frames import NAMES, NUMBERS, Frames

__all__ = ["CLUSTER", "attack"]

CLUSTER = "hms"
FRAMES_PER_CONNECTION = 150
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + b"\0" + bytes(31)


class Native:
    """Peers that log in, open what there is and then send what is drawn."""

    def __init__(self, rng, address, sent):
        self._rng, self._address, self._sent = rng, address, sent
        self._frames = Frames(rng)
        self._context = zmq.Context()

    def round(self):
        """One connection."""
        with self._context.socket(zmq.DEALER) as peer:
            peer.linger = 0
            peer.connect(self._address)
            if self._rng.random() < 0.9:
                self._log_in(peer)
            for _ in range(self._rng.randint(1, FRAMES_PER_CONNECTION)):
                self._post(peer, self._parts())
                self._drain(peer)
            peer.poll(20)
            self._drain(peer)

    def _log_in(self, peer):
        secret = os.urandom(16)
        hello = wire.Hello(uid_of(secret), secret=secret, is_server=self._rng.random() < 0.2)
        self._post(peer, frame(Kind.HELLO, wire.encode(hello), 1))
        for request in (
            wire.OpenSession(1, 2),
            wire.OpenSession(2, 0, is_transacted=True),
            wire.OpenSession(3, 0, is_xa=True),
            wire.OpenProducer(1, 1, "queue", "orders"),
            wire.OpenProducer(2, 2, "topic", "news"),
            wire.OpenProducer(3, 3, "queue", "shared"),
            wire.OpenConsumer(1, 1, "queue", "orders", 100),
            wire.OpenConsumer(2, 2, "queue", "orders", 5, selector="a LIKE '%b_%'"),
            wire.OpenConsumer(3, 1, "topic", "news", 100),
            wire.Advertise("billing"),
        ):
            self._post(peer, frame(Kind.REQUEST, wire.encode(request), 1))

    def _parts(self):
        rng, (kind, payload) = self._rng, self._frames.draw()
        parts = frame(kind, payload, rng.choice((0, 1, 7, (1 << 32) - 1)))
        if rng.random() < 0.01:
            parts[0] = self._frames.mutated(parts[0])
        if rng.random() < 0.003:
            parts = rng.choice(([parts[1]], [*parts, b"three"], [b"", *parts], [b""] * 50))
        return parts

    def _post(self, peer, parts):
        with contextlib.suppress(zmq.Again):
            peer.send_multipart(parts, zmq.NOBLOCK)
            self._sent["frames"] += 1

    @staticmethod
    def _drain(peer):
        with contextlib.suppress(zmq.Again):
            for _ in range(1000):
                peer.recv_multipart(zmq.NOBLOCK)


class Bare:
    """TCP connections that speak ZMTP almost right."""

    def __init__(self, rng, address, sent):
        self._rng, self._sent = rng, sent
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._where = host, int(port)
        self._frames = Frames(rng)

    def round(self):
        """One connection."""
        ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
        said = [GREETING, b"\x04" + bytes([len(ready)]) + ready]
        said += [bytes([self._rng.randrange(8), 5]) + b"hello" for _ in range(3)]
        if self._rng.random() < 0.9:
            at = self._rng.randrange(len(said))
            said[at] = self._frames.mutated(said[at])
        with contextlib.suppress(OSError), socket.create_connection(self._where, 2) as raw:
            raw.settimeout(0.01)
            for one in said:
                raw.sendall(one)
                with contextlib.suppress(TimeoutError):
                    raw.recv(4096)
        self._sent["bare connections"] += 1


class Link:
    """The other node of the cluster, which says words that are almost right, and a stranger."""

    def __init__(self, rng, address, own, sent):
        self._rng, self._sent = rng, sent
        self._frames = Frames(rng)
        self._context = zmq.Context()
        peers = (LinkPeer(1, "node1", address),)
        settings = LinkSettings(CLUSTER, "node2", 2, own, peers, 2.0, 1 << 21)
        self._links = Links(
            settings, on_word=self._heard, on_change=lambda _: None, wake=lambda: None
        )
        self._links.life = Incarnation(rng.randrange(1, 1 << 40), 1)
        self._links.open(self._context)
        self._address = address
        self._stranger = self._context.socket(zmq.DEALER)
        self._stranger.linger = 0
        self._stranger.connect(address)

    def _heard(self, _index, items):
        self._sent["words heard"] += len(items)
        return True

    def round(self):
        """Some words of the node, some frames of the stranger."""
        for _ in range(30):
            data = self._word()
            if self._rng.random() < 0.4:
                data = self._frames.mutated(data)
            self._links.outbox.put_many([(1, data)])
            self._sent["words"] += 1
        self._links.outbox.rouse()
        self._links.take_turn()
        for _ in range(5):
            with contextlib.suppress(zmq.Again):
                self._stranger.send_multipart(self._strange(), zmq.NOBLOCK)
                self._sent["link frames"] += 1
        with contextlib.suppress(zmq.Again):
            for _ in range(100):
                self._stranger.recv_multipart(zmq.NOBLOCK)

    def _strange(self):
        rng = self._rng
        state = PeerState(Incarnation(rng.choice(NUMBERS[:9]), rng.randrange(3)), rng.randrange(3))
        payload = rng.randbytes(rng.choice((0, 5, 300)))
        head, payload = link_frame(rng.randint(1, 4), rng.randrange(5), state, state, payload)
        return [head if rng.random() < 0.5 else self._frames.mutated(head), payload]

    def _word(self):
        rng = self._rng

        def number():
            return rng.choice((0, 1, 2, 5, 1000, (1 << 48) - 1, rng.choice(NUMBERS)))

        def message():
            row = [number() if rng.random() < 0.2 else n for n in (rng.randrange(1 << 41), 1, 1, 0)]
            return [*row, rng.randint(0, 10), rng.randint(0, 7), 0, 1, rng.random() < 0.5, 1, 0]

        name = rng.choice(NAMES)
        count = rng.choice((0, 1, 3, 100))
        drawn = rng.choice(
            (
                ["g", number(), rng.random() < 0.5, number(), [[name, number(), number()]]],
                ["a", "shared", number(), number(), rng.choice(([], ["a = 1"], ["a LIKE '_%'"]))],
                ["o", number(), number(), number(), "shared", [message() for _ in range(count)]],
                ["i", [[rng.choice(NAMES), "TOPIC", True, rng.choice(("", "a = 1"))]]],
                ["n", [[name, number(), number()]]],
                ["w", number(), rng.random() < 0.5, "x"],
            )
        )
        head = msgspec.msgpack.encode(drawn)
        return len(head).to_bytes(4, "little") + head + b"x" * count


def attack(seed, seconds, address, link="", own=""):
    """Until the time is over; how many of each were sent."""
    rng, sent, until = random.Random(seed), Counter(), time.monotonic() + seconds
    kinds = [Native(rng, address, sent), Bare(rng, address, sent)]
    weights = [85, 5]
    if link:
        kinds.append(Link(rng, link, own, sent))
        weights.append(10)
    while time.monotonic() < until:
        rng.choices(kinds, weights)[0].round()
    return sent


if __name__ == "__main__":
    seed, seconds, *where = sys.argv[1:]
    print(json.dumps(attack(int(seed), float(seconds), *where)))
    sys.stdout.flush()
    os._exit(0)  # contexts with strangers' sockets need not end in order
