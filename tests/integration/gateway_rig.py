"""What the tests of the gateway share: a gateway in a thread, its clients, and a clock to turn."""

import queue
import threading
import time
from contextlib import contextmanager

import pytest
import zmq

from hms.server.gateway import Gateway, GatewayLimits
from hms.wire.frames import Kind, decode_envelope, frame
from hms.wire.structures import decode_error
from tests.support.waiting import wait_until

WAIT_S = 60
FRAME_BYTES_MAX = 1 << 20


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


class Rig:
    """A running gateway with what it passed on and whom it lost."""

    def __init__(self, addresses, clock, **limits):
        self.frames, self.lost, self.takes, self.clock = queue.Queue(), queue.Queue(), True, clock
        self.on_refusal = lambda: None
        self.order = []
        every = {
            "frame_bytes_max": FRAME_BYTES_MAX,
            "peers_max": 10,
            "heartbeat_s": 12,
            "pending_bytes_per_peer": 1 << 20,
        }
        handlers = "ledger", "on_dropped", "on_alone"
        more = {name: limits.pop(name) for name in handlers if name in limits}
        self.gateway = Gateway(
            addresses,
            **more,
            on_frames=self._take,
            on_lost=self._lose,
            limits=GatewayLimits(**{**every, **limits}),
            clock=clock,
        )
        self.endpoints = self.gateway.bind()
        self.faults = []
        self.turns, self._take_turn = 0, self.gateway._take_turn
        self.gateway._take_turn = self._turn_and_count
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self.gateway.run()
        except BaseException as fault:  # noqa: BLE001 - told at the end of the test
            self.faults.append(fault)

    def _turn_and_count(self):
        self._take_turn()
        self.turns += 1

    def _lose(self, key, reason):
        self.order.append("lost")
        self.lost.put((key, reason))

    def _take(self, key, frames):
        self.order.append("frames")
        if self.takes:
            for envelope, payload in frames:
                self.frames.put((key, envelope.kind, payload))
        else:
            self.on_refusal()
        return self.takes

    def stop(self):
        self.gateway.stop()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        assert self.faults == []

    def next_frame(self):
        return self.frames.get(timeout=WAIT_S)

    def next_lost(self):
        return self.lost.get(timeout=WAIT_S)

    def send(self, key, *frames):
        self.gateway.outbox.put_many([(key, parts) for parts in frames])

    def login(self, client):
        """Say HELLO, be accepted, and tell the key."""
        client.send_multipart(frame(Kind.HELLO, b"who", 1))
        key, kind, _ = self.next_frame()
        assert kind is Kind.HELLO
        self.gateway.accept(key)
        self.send(key, frame(Kind.WELCOME, b"", 1))
        assert receive(client)[0] is Kind.WELCOME
        return key

    def advance(self, seconds, step_s=1.0):
        """Let time pass in steps as a clock does, with a turn of the loop after each."""
        for _ in range(int(seconds / step_s)):
            self.clock.now_s += step_s
            self.turn()

    def turn(self):
        """Wait until the loop has gone round: a stranger's frame is answered in it, what was put
        before is done at the end of that turn."""
        with client_of(self.endpoints[0]) as stranger:
            stranger.send_multipart([b"", b""])
            assert receive_error(stranger).number == 1001
        seen = self.turns
        wait_until(lambda: self.gateway.wake() or self.turns > seen, pause_s=0.001)


def receive(client):
    """(kind, correlation, payload) of the next frame, within a time limit."""
    assert client.poll(WAIT_S * 1000), "no frame came"
    parts = client.recv_multipart()
    envelope = decode_envelope(parts, FRAME_BYTES_MAX)
    return envelope.kind, envelope.correlation, parts[1]


def receive_error(client):
    """The error in the next frame, which must be one."""
    kind, _, payload = receive(client)
    assert kind is Kind.ERROR
    return decode_error(payload)


@contextmanager
def client_of(endpoint, **options):
    """A DEALER, as a client would use it."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.linger = 0
        for name, value in options.items():
            setattr(client, name, value)
        client.connect(endpoint)
        yield client


@contextmanager
def running(addresses=("tcp://127.0.0.1:*",), clock=None, **limits):
    """A gateway that is stopped at the end, and that must not have failed."""
    rig = Rig(list(addresses), clock or time.monotonic, **limits)
    try:
        yield rig
    finally:
        rig.stop()


@pytest.fixture
def rig():
    with running() as rig:
        yield rig


@pytest.fixture
def client(rig):
    with client_of(rig.endpoints[0]) as client:
        yield client
