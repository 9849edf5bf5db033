"""The client of HMS that is measured: its public API, as an application would use it."""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import hms
import tpmon
from hms.boot.bench.load import Load, Sink
from hms.client.connection import Connection
from hms.client.profiles.profiled import tool_connection
from hms.errors.catalogue import RequestTimeout

__all__ = ["HmsDriver"]


class HmsDriver:
    """See hms.boot.bench.driver.Driver.

    Options: is_async "yes" pipelines by send_async, with the load's window, instead of send_many.
    """

    def __init__(self, address: str, options: dict[str, str]) -> None:
        self._address = address
        self._is_async = options.get("is_async") == "yes"
        self._stack = ExitStack()
        self._load: Load
        self._times_ns: list[int] = []
        self._receipts: Any = ()
        self._opened: Any = None
        self._producer: Any = None
        self._consumers: list[Any] = []

    def _session(self, load: Load) -> Any:
        self._load = load
        made = tool_connection(Connection, self._address, client_name="hms bench", reconnect=False)
        made.requests.begin_within(load.timeout_s)
        connection = self._stack.enter_context(made.open())
        ack = hms.AckMode.CLIENT if load.ack_every else hms.AckMode.AUTO
        self._opened = self._stack.enter_context(connection.session(ack=ack))
        return self._opened

    # ---- sending

    def open_sender(self, load: Load) -> None:
        """Connect and open a producer."""
        session = self._session(load)
        self._producer = session.producer(load.destination, persistent=load.is_durable)

    def _messages(self, bodies: Iterable[bytes]) -> Iterable[Any]:
        keys = self._load.keys
        if not keys:
            return bodies
        return (hms.Message(body, {"Key": i % keys}) for i, body in enumerate(bodies))

    def send_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """Send one after the other, waiting for each."""
        send, clock = self._producer.send, time.perf_counter_ns
        for body in bodies:
            begin = clock()
            send(body)
            times_ns.append(clock() - begin)

    def send_pipelined(self, bodies: Iterable[bytes]) -> None:
        """send_many; the node's max_requests is the window, in frames of up to 256 messages."""
        if self._is_async:
            self._send_async(bodies, self._load.window)
        else:
            self._receipts = self._producer.send_many(self._messages(bodies))

    def send_timed(self, bodies: Iterable[bytes]) -> None:
        """Each leaves when it is given."""
        self._send_async(bodies, self._load.window)

    def _send_async(self, bodies: Iterable[bytes], window: int) -> None:
        places = threading.Semaphore(window)
        failed: list[BaseException] = []

        def confirmed(done: "Future[Any]") -> None:
            error = done.exception()
            if error is not None:
                failed.append(error)
            else:
                self._times_ns.append(int(done.result().elapsed_s * 1e9))
            places.release()

        for body in bodies:
            self._enter(places, failed)
            self._producer.send_async(body).add_done_callback(confirmed)
        for _ in range(window):
            self._enter(places, failed)

    def _enter(self, places: threading.Semaphore, failed: list[BaseException]) -> None:
        if not places.acquire(timeout=self._load.timeout_s):
            raise RequestTimeout(what="a send", timeout_s=self._load.timeout_s)
        if failed:
            raise failed[0]

    @property
    def confirm_times_ns(self) -> list[int]:
        """How long the confirmations took, as the receipts tell; computed after the clock."""
        receipts = self._receipts
        return self._times_ns or [int(one.elapsed_s * 1e9) for one in receipts]

    # ---- receiving

    def open_receiver(self, load: Load) -> None:
        """Connect, and open the consumers in one session."""
        session = self._session(load)
        for i in range(load.fan):
            selector = load.selector.replace("{}", str(i)) or None
            self._consumers.append(
                session.consumer(load.destination, prefetch=load.prefetch, selector=selector)
            )

    def receive(self, sink: Sink) -> None:
        """What the first consumer has, then as much from each of the others: they all get the same
        number of messages. Several take an eighth of their credit at once, so that it is used up by
        all of them together and what they get next is the same for all."""
        every, prefetch = self._load.ack_every, self._load.prefetch
        size = every or (prefetch if len(self._consumers) == 1 else max(1, prefetch // 8))
        while sink.count < sink.expected:
            count = self._take_from(0, size, sink)
            for number in range(1, len(self._consumers)):
                left = count
                while left:
                    taken = self._take_from(number, left, sink)
                    left = left - taken if taken else 0
            if not count:
                return
            if every:
                self._opened.ack(wait=False)
        if every:
            self._opened.ack()

    def _take_from(self, number: int, count: int, sink: Sink) -> int:
        """Up to so many messages of a consumer; 0 when none came in time."""
        messages = self._consumers[number].receive_many(count, self._load.timeout_s)
        take = sink.take
        for message in messages:
            take(message.body, number)
        return len(messages)

    # ---- calling

    def open_caller(self, load: Load) -> None:
        """Connect as a Tmax client."""
        self._load = load
        tpmon.tpputenv(f"HMS_ADDRESS={self._address}")
        tpmon.tpstart(profile="")
        self._stack.callback(tpmon.tpend)

    def call_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """Call one after the other."""
        clock = time.perf_counter_ns
        for body in bodies:
            begin = clock()
            reply = tpmon.tpcall("ECHO", body)
            times_ns.append(clock() - begin)
            assert reply.data == body, "the service answered something else"

    def close(self) -> None:
        """Close sessions and connection."""
        self._stack.close()
