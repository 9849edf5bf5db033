"""A wire between a client and a node that a test cuts: each direction can be held or lost.

What is held waits and comes later, as a delayed copy of a frame does; what is lost never comes.
"""

import select
import socket
import threading
from contextlib import contextmanager, suppress

from hms.errors.tree import HmsError
from hms.wire.frames import Kind, decode_envelope

CHUNK = 1 << 16
COMMAND, LONG, MORE = 4, 2, 1
"""Flags of a part in ZMTP 3.1 (RFC 37)."""


def frames_in(data):
    """How many frames of ours there are in what was read at once, which begins with one; neither
    what libzmq says to libzmq nor a HEARTBEAT tells anything of what was asked."""
    count, parts, at = 0, [], 0
    while at + 2 <= len(data):
        flags = data[at]
        size_bytes = 8 if flags & LONG else 1
        begin = at + 1 + size_bytes
        at = begin + int.from_bytes(data[at + 1 : begin], "big")
        if not flags & COMMAND:
            parts.append(data[begin:at])
            if not flags & MORE:
                with suppress(HmsError):  # it was none: a greeting of libzmq
                    count += decode_envelope(parts, CHUNK).kind is not Kind.HEARTBEAT
                parts = []
    return count


class CutWire:
    """Listens on a port of its own, and passes bytes on to the node's."""

    def __init__(self, address):
        host, port = address.removeprefix("tcp://").rsplit(":", 1)
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._guard = threading.Condition()
        self._pairs = []
        self._is_lost = {"up": False, "down": False}
        self._is_held = {"up": False, "down": False}
        self._passed = {"up": None, "down": None}
        self._held = []
        self.swallowed = {"up": 0, "down": 0}
        self._is_refused = self._is_over = False
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # for the test

    def lose(self, way):
        """From now on nothing arrives: "up" from the client, "down" from the node."""
        with self._guard:
            self._is_lost[way] = True

    def lose_after(self, way, frames):
        """Let so many frames pass, and lose what follows."""
        with self._guard:
            self._passed[way] = frames

    def hold(self, way):
        """From now on it waits."""
        with self._guard:
            self._is_held[way] = True

    def wait_swallowed(self, way, timeout_s=60, count=1):
        """Until so many frames were held or lost."""
        with self._guard:
            assert self._guard.wait_for(lambda: self.swallowed[way] >= count, timeout_s)

    def cut_client(self):
        """The client's side of every connection ends, the node's lives on."""
        with self._guard:
            for client, _ in self._pairs:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def refuse(self):
        """No further connection."""
        self._is_refused = True

    def pass_on(self):
        """Everything works again; what was held arrives."""
        with self._guard:
            self._is_refused = False
            self._is_lost = dict.fromkeys(self._is_lost, False)
            self._is_held = dict.fromkeys(self._is_held, False)
            self.swallowed = dict.fromkeys(self.swallowed, 0)
            held, self._held = self._held, []
        for to, data in held:
            with suppress(OSError):
                to.sendall(data)

    def close(self):
        self._is_over = True
        self._wake.send(b".")
        self._thread.join(20)
        for one in (self._listener, self._wake, self._woken, *[s for p in self._pairs for s in p]):
            one.close()

    # its thread

    def _run(self):
        ends = {}
        while not self._is_over:
            for one in _readable([self._listener, self._woken, *ends]):
                if one is self._listener:
                    self._accept(ends)
                elif one in ends:
                    self._move(ends, one)

    def _accept(self, ends):
        client, _ = self._listener.accept()
        node = None
        if not self._is_refused:
            with suppress(OSError):
                node = socket.create_connection(self._target, 5)
        if node is None:
            client.close()
            return
        with self._guard:
            self._pairs.append((client, node))
        ends[client], ends[node] = ("up", node), ("down", client)

    def _move(self, ends, one):
        way, other = ends[one]
        try:
            data = one.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            del ends[one]
            if way == "down" or not self._is_held["up"]:
                with suppress(OSError):
                    other.shutdown(socket.SHUT_RDWR)
            return
        with self._guard:
            if self._is_lost[way] or self._is_held[way]:
                self.swallowed[way] += frames_in(data)
                if self._is_held[way]:
                    self._held.append((other, data))
                self._guard.notify_all()
                return
            if self._passed[way] is not None:
                self._passed[way] -= frames_in(data)
                if self._passed[way] <= 0:
                    self._passed[way], self._is_lost[way] = None, True
        with suppress(OSError):
            other.sendall(data)


def _readable(sockets):
    """Those that there is something to read of, or that have ended; it waits for one."""
    poll, by_number = select.poll(), {one.fileno(): one for one in sockets}
    for number in by_number:  # select() refuses a descriptor above 1023
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll()]


@contextmanager
def cut_wire(address):
    wire = CutWire(address)
    try:
        yield wire
    finally:
        wire.close()
