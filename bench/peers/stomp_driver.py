"""ActiveMQ with stomp.py: the client."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from itertools import count, islice
from typing import Any

from bench.peers.server import HOST
from hms.boot.bench.load import Load, Sink

__all__ = ["StompDriver"]

_WAIT_S = 60.0
_SERVICE, _REPLIES = "/queue/echo", "/temp-queue/replies"
_BATCH = 100
"""Messages of one transaction: the only way to let it sync once for many."""


class _Listener:
    """Counts receipts, which come in order, and hands on messages."""

    def __init__(self, came: Callable[[Any], object]) -> None:
        self.came = came
        self.receipts = 0
        self.fault = ""
        self.has_news = threading.Condition()

    def on_receipt(self, _: Any) -> None:
        """The broker has done what was asked."""
        with self.has_news:
            self.receipts += 1
            self.has_news.notify_all()

    def on_error(self, frame: Any) -> None:
        """The broker refuses."""
        with self.has_news:
            self.fault = f"{frame.headers} {frame.body}"
            self.has_news.notify_all()

    def on_message(self, frame: Any) -> None:
        """A message."""
        self.came(frame)

    def __getattr__(self, name: str) -> Any:
        """All else that stomp.py tells is not needed."""
        if name.startswith("on_"):
            return lambda *_: None
        raise AttributeError(name)

    def wait(self, count: int) -> None:
        """Until so many receipts are here."""
        with self.has_news:
            if not self.has_news.wait_for(lambda: self.fault or self.receipts >= count, _WAIT_S):
                raise TimeoutError(f"{self.receipts} receipts of {count}")
            if self.fault:
                raise ConnectionError(self.fault)


class StompDriver:
    """See hms.boot.bench.driver.Driver."""

    def __init__(self, address: str, options: dict[str, str]) -> None:  # noqa: ARG002
        self._port = int(address)
        self._asked = 0
        self._listener = _Listener(self._came)
        self._done = threading.Event()
        self._sink: Sink | None = None
        self._early: list[Any] = []
        self._connection: Any = None
        self._load: Load

    def _open(self, load: Load) -> None:
        self._load = load
        self._name = load.destination.replace("queue:", "/queue/").replace("topic:", "/topic/")
        self._persistent = "true" if load.is_durable else "false"
        self._join()

    def _join(self) -> None:
        import stomp  # noqa: PLC0415 - only where it is installed

        self._connection = stomp.StompConnection12([(HOST, self._port)], auto_decode=False)
        self._connection.set_listener("bench", self._listener)
        self._connection.connect(wait=True)
        self._connection.transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _receipt(self) -> dict[str, str]:
        self._asked += 1
        return {"receipt": str(self._asked)}

    def open_sender(self, load: Load) -> None:
        """Connect."""
        self._open(load)

    def _send(self, body: bytes, **more: Any) -> None:
        self._connection.send(self._name, body, persistent=self._persistent, **more)

    def send_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """One send after the other, each with its receipt."""
        clock = time.perf_counter_ns
        for body in bodies:
            begin = clock()
            self._send(body, headers=self._receipt())
            self._listener.wait(self._asked)
            times_ns.append(clock() - begin)

    def send_pipelined(self, bodies: Iterable[bytes]) -> None:
        """Durable ones in transactions, a window of which is on its way; others at full speed."""
        if not self._load.is_durable:
            keys = self._load.keys or 1
            for number, body in zip(count(), bodies):
                self._send(body, headers={"Key": number % keys} if keys > 1 else None)
            return
        waiting, behind = iter(bodies), max(1, self._load.window // _BATCH)
        while batch := list(islice(waiting, _BATCH)):
            transaction = self._connection.begin()
            for body in batch:
                self._send(body, transaction=transaction)
            self._connection.commit(transaction, headers=self._receipt())
            self._listener.wait(self._asked - behind + 1)
        self._listener.wait(self._asked)

    def send_timed(self, bodies: Iterable[bytes]) -> None:
        """Each when it is given."""
        for body in bodies:
            self._send(body, headers=self._receipt())
        self._listener.wait(self._asked)

    def open_receiver(self, load: Load) -> None:
        """Connect; subscribe at once to what is not stored."""
        self._open(load)
        if not load.is_durable:
            self._subscribe("auto")

    def _subscribe(self, ack: str) -> None:
        more = {"activemq.prefetchSize": str(self._load.prefetch)}
        for number in range(self._load.fan):
            more |= self._receipt()
            if self._load.selector:  # properties that came by STOMP are strings
                more["selector"] = self._load.selector.replace("{}", f"'{number}'")
            self._connection.subscribe(self._name, id=number, ack=ack, headers=more)
        self._listener.wait(self._asked)

    def _came(self, frame: Any) -> None:
        """A message, on the thread of the library; some come before the clock runs."""
        sink = self._sink
        if sink is None:
            self._early.append(frame)
            return
        sink.take(frame.body, int(frame.headers["subscription"]))
        every = self._load.ack_every or 1
        if self._load.is_durable and (sink.count % every == 0 or sink.is_full):
            self._connection.ack(frame.headers["ack"])
        if sink.is_full:
            self._done.set()

    def receive(self, sink: Sink) -> None:
        """Until the sink is full."""
        self._sink = sink
        for frame in self._early:
            self._came(frame)
        if self._load.is_durable:
            self._subscribe("client" if self._load.ack_every else "client-individual")
        self._done.wait(self._load.timeout_s * 2)

    def open_caller(self, load: Load) -> None:
        """Connect, and wait for replies in a temporary queue."""
        self._open(load)
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._listener.came = self._answers.put
        self._connection.subscribe(_REPLIES, id=0, ack="auto", headers=self._receipt())
        self._listener.wait(self._asked)

    def call_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """Request and reply, one after the other."""
        send, wait, clock = self._connection.send, self._answers.get, time.perf_counter_ns
        how = {"reply-to": _REPLIES, "persistent": "false"}
        for body in bodies:
            begin = clock()
            send(_SERVICE, body, headers=how)
            reply = wait(timeout=_WAIT_S)
            times_ns.append(clock() - begin)
            assert reply.body == body, "the service answered something else"

    def answer(self, ready: Callable[[], object]) -> None:
        """See bench.peers.echo.Answering. The thread of the library answers."""
        self._listener.came = lambda frame: self._connection.send(
            frame.headers["reply-to"], frame.body, headers={"persistent": "false"}
        )
        self._join()
        self._connection.subscribe(_SERVICE, id=0, ack="auto", headers=self._receipt())
        self._listener.wait(self._asked)
        ready()
        threading.Event().wait()

    def close(self) -> None:
        """Disconnect."""
        self._connection.disconnect()
