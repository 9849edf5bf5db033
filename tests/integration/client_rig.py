"""A scripted node: real ZeroMQ, no rules. It answers what a test tells it to, and keeps what came.

By default every request is granted, every SEND confirmed with consecutive ids, and what is put into
`deliver` goes out as fast as credit allows. `on` replaces the answer to a kind of frame or request;
`drop` closes the connection as a killed node does; `restart` listens again on the same port.
"""

import os
import queue
import select
import threading
from collections.abc import Callable
from contextlib import contextmanager
from time import monotonic
from typing import Any

import zmq
from client_answers import Answers
from client_frames import rows

from hms.errors.tree import HmsError
from hms.testing.ports import free_port
from hms.wire import frames
from hms.wire.frames import DELIVER_HEAD, Action, Kind
from hms.wire.structures import Limits

WAIT_S = 60
LIMITS = Limits(1 << 20, 1 << 22, 16, 1000, WAIT_S)
"""A scripted node beats no heart: it must not be taken for lost while a test goes on."""


class FakeNode(Answers):
    """See the module. Everything it heard stands in `heard` as (kind, decoded payload)."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        super().__init__(limits)
        self.heard: list[tuple[Kind, Any]] = []
        self._orders: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._wake = os.eventfd(0)
        self._context = zmq.Context()
        self._port = free_port()  # nobody else is given it while it does not listen
        self._peer = b""
        self._is_over = False
        self._listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    # ---- for the test

    def do(self, order: Callable[[], None]) -> None:
        """Have the node's thread do something, and wait for it."""
        done = threading.Event()
        self._orders.append(lambda: (order(), done.set()))  # type: ignore[func-returns-value]
        os.eventfd_write(self._wake, 1)
        assert done.wait(WAIT_S)

    def drop(self) -> None:
        """End as by kill -9."""
        self.do(self._close)

    def restart(self) -> None:
        """Listen on the same port again, knowing nothing but the commits."""
        self.do(self._listen)

    def deliver(self, *messages: tuple[int, bytes], consumer: int = 0, **options: Any) -> None:
        """Send messages to a consumer, by default the only one."""
        number = consumer or next(iter(self.consumers))
        self.do(lambda: self.push(number, *messages, **options))

    def push(self, number: int, *messages: tuple[int, bytes], **options: Any) -> None:
        """The same, on the node's thread."""
        consumer = self.consumers[number]
        consumer.credit -= len(messages)
        epoch = options.pop("epoch", consumer.epoch)
        head = DELIVER_HEAD.pack(number, epoch, len(messages), 0)
        self.say(Kind.DELIVER, head + rows(*messages, **options))

    def say(self, kind: Kind, payload: bytes = b"", correlation: int = 0) -> None:
        """Send a frame to the client, on the node's thread."""
        self._socket.send_multipart([self._peer, *frames.frame(kind, payload, correlation)])

    def tell(self, kind: Kind, payload: bytes = b"") -> None:
        """Send a frame to the client."""
        self.do(lambda: self.say(kind, payload))

    def wait(self, found: Callable[[], Any]) -> Any:
        """Wait until found() is true, and return it."""
        with self._changed:
            assert self._changed.wait_for(found, WAIT_S), f"heard {self.heard}"
            return found()

    def requests(self, kind: type) -> list[Any]:
        """The requests of a kind that came so far."""
        return [what for _, what in self.heard if isinstance(what, kind)]

    def kinds(self, kind: Kind) -> list[Any]:
        """What came in frames of a kind so far."""
        return [what for which, what in self.heard if which is kind]

    def settled(self, action: Action) -> list[int]:
        """The message ids of all settlements of that kind so far."""
        items = [item for one in self.kinds(Kind.SETTLE) for item in one if item.action is action]
        pairs = [pair for item in items for pair in item.ranges]
        return [one for first, last in pairs for one in range(first, last + 1)]

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            os.eventfd_write(self._wake, 1)
            self._thread.join(WAIT_S)
            self._context.destroy(linger=0)
            os.close(self._wake)

    # ---- its thread

    def _listen(self) -> None:
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._bind()

    def _bind(self) -> None:
        """ZeroMQ gives a closed socket's port back a little later."""
        deadline = monotonic() + WAIT_S
        while True:
            try:
                self._socket.bind(f"tcp://127.0.0.1:{self._port}")
            except zmq.ZMQError:
                if monotonic() > deadline:
                    raise
                select.poll().poll(5)
            else:
                return

    def _close(self) -> None:
        self._socket.close(linger=0)
        self.consumers.clear()

    def _run(self) -> None:
        while not self._is_over:
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            if not self._socket.closed:
                poll.register(self._socket.getsockopt(zmq.FD), select.POLLIN)
                if self._socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                    self._take_in()
                    continue
            if any(fd == self._wake for fd, _ in poll.poll(1000)):
                os.eventfd_read(self._wake)
            while self._orders:
                self._orders.pop(0)()
        self._socket.close(linger=0)

    def _take_in(self) -> None:
        peer, head, payload = self._socket.recv_multipart()
        self._peer = peer
        envelope = frames.decode_envelope([head, payload], 1 << 30)
        what = self._decoded(envelope.kind, payload)
        if self.is_recording:
            with self._changed:
                self.heard.append((envelope.kind, what))
        self._answer(envelope.kind, envelope.correlation, what, payload)
        with self._changed:
            self._changed.notify_all()


@contextmanager
def fake_node(limits: Limits = LIMITS) -> Any:
    """A fake node for the length of a block."""
    node = FakeNode(limits)
    try:
        yield node
    finally:
        node.close()


@contextmanager
def patient(connection: Any) -> Any:
    """What is opened in the block is waited for, however short the request_timeout_s is that the
    test is about: a node that is late there is slow, not silent."""
    requests = connection.requests
    brief_s, requests.request_timeout_s = requests.request_timeout_s, WAIT_S
    try:
        yield
    finally:
        requests.request_timeout_s = brief_s


def in_thread(call) -> "queue.Queue[object]":
    """Run it in a thread; its result or error comes through the queue."""
    ended: queue.Queue[object] = queue.Queue()

    def run() -> None:
        try:
            ended.put(call())
        except HmsError as error:
            ended.put(error)

    threading.Thread(target=run, daemon=True).start()
    return ended


def restart(node: FakeNode) -> None:
    """The node comes back, and the client with it."""
    hellos = len(node.kinds(Kind.HELLO))
    node.restart()
    node.wait(lambda: len(node.kinds(Kind.HELLO)) > hellos)
