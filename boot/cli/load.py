"""The load of hms bench: one sender and one receiver, each over a connection of its own.

Every body begins with a stamp: the run it belongs to, and when it was sent by this machine's
monotonic clock, so that the receiver tells how long it took, in another process too.
"""

import os
import struct
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from boot.cli.target import Target
from field_buffer.catalogue import RequestTimeout

__all__ = ["STAMP", "Load", "Received", "Sent", "receive_all", "send_all"]

STAMP = struct.Struct("<4s8sQ")
"""magic, run, monotonic nanoseconds."""
MAGIC = b"HMSB"

Progress = Callable[[int], None]
_PROGRESS_EVERY = 256


@dataclass(frozen=True, slots=True)
class Load:
    """What to do. rate: messages a second, 0 as fast as it goes; warm_up: messages before."""

    queue: str
    size: int
    count: int
    timeout_s: float
    in_flight: int = 1
    rate: float = 0
    warm_up: int = 0
    is_durable: bool = True
    run: bytes = field(default_factory=lambda: os.urandom(8))

    def body(self, filler: bytes) -> bytes:
        """A stamped body of the wanted size."""
        return STAMP.pack(MAGIC, self.run, time.monotonic_ns()) + filler

    @property
    def filler(self) -> bytes:
        """What follows the stamp."""
        return bytes(self.size - STAMP.size)


@dataclass(slots=True)
class Sent:
    """What the sender measured; times are from the send to its confirmation."""

    seconds: float = 0.0
    times_ns: "array[int]" = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class Received:
    """What the receiver measured; times are from the send to the receipt."""

    count: int = 0
    seconds: float = 0.0
    strangers: int = 0
    times_ns: "array[int]" = field(default_factory=lambda: array("q"))


class _Window:
    """At most so many sends are unconfirmed; a failed one ends the run."""

    def __init__(self, size: int, sent: Sent, timeout_s: float) -> None:
        self._places = threading.Semaphore(size)
        self._size, self._sent, self._timeout_s = size, sent, timeout_s
        self._fault: BaseException | None = None

    def enter(self) -> None:
        """Wait for a place."""
        if not self._places.acquire(timeout=self._timeout_s):
            raise RequestTimeout(what="a send", timeout_s=self._timeout_s)
        if self._fault is not None:
            raise self._fault

    def watch(self, pending: Any, begin: int) -> None:
        """Give the place back when this send, begun at that time, is confirmed."""

        def confirmed(done: Any) -> None:
            self._sent.times_ns.append(time.perf_counter_ns() - begin)
            self._fault = self._fault or done.exception()
            self._places.release()

        pending.add_done_callback(confirmed)

    def drain(self) -> None:
        """Wait until all is confirmed."""
        for _ in range(self._size):
            self.enter()


def send_all(target: Target, load: Load, progress: Progress) -> Sent:
    """Warm up, then send the load; returns when all of it is confirmed."""
    import hms  # noqa: PLC0415 - not for --help

    filler = load.filler
    with target.connection() as connection, connection.session() as session:
        producer = session.producer(hms.Queue(load.queue), persistent=load.is_durable)
        producer.send_many(hms.Message(load.body(filler)) for _ in range(load.warm_up))
        return _send_timed(producer, load, filler, progress)


def _send_timed(producer: Any, load: Load, filler: bytes, progress: Progress) -> Sent:
    sent = Sent()
    window = _Window(load.in_flight, sent, load.timeout_s)
    begin = time.perf_counter()
    for number in range(load.count):
        if load.rate:
            _wait_until(begin + number / load.rate)
        window.enter()
        begin_ns = time.perf_counter_ns()
        window.watch(producer.send_async(load.body(filler)), begin_ns)
        if number % _PROGRESS_EVERY == _PROGRESS_EVERY - 1:
            progress(_PROGRESS_EVERY)
    window.drain()
    sent.seconds = time.perf_counter() - begin
    progress(load.count % _PROGRESS_EVERY)
    return sent


def _wait_until(at: float) -> None:
    ahead = at - time.perf_counter()
    if ahead > 0:
        time.sleep(ahead)


def receive_all(
    target: Target,
    load: Load,
    progress: Progress,
    *,
    is_own_run: bool,
    ready: Callable[[], None] = lambda: None,
) -> Received:
    """Receive the load. is_own_run: count only what this run sent, its warm-up not timed.

    ready is called when the consumer is open. Ends early when nothing comes for the load's timeout.
    """
    import hms  # noqa: PLC0415 - not for --help

    with target.connection() as connection, connection.session() as session:
        consumer = session.consumer(hms.Queue(load.queue))
        ready()
        skipped = _skip(consumer, load) if is_own_run else Received()
        found = _receive_timed(consumer, load, progress, is_own_run=is_own_run)
    found.strangers += skipped.strangers
    return found


def _skip(consumer: Any, load: Load) -> Received:
    """Receive the warm-up."""
    skipped = Received()
    while skipped.count < load.warm_up:
        message = consumer.receive(timeout_s=load.timeout_s)
        if message is None:
            break
        is_own = _sent_at(message, load.run) is not None
        skipped.count += is_own
        skipped.strangers += not is_own
    return skipped


def _receive_timed(consumer: Any, load: Load, progress: Progress, *, is_own_run: bool) -> Received:
    # What waits already comes at once; what this run sends comes only when it is sent.
    found, begin, end = Received(), 0 if is_own_run else time.monotonic_ns(), 0
    while found.count < load.count:
        message = consumer.receive(timeout_s=load.timeout_s)
        if message is None:
            break
        end = time.monotonic_ns()
        begin = begin or end
        sent_at = _sent_at(message, load.run if is_own_run else None)
        if sent_at is not None:
            found.times_ns.append(end - sent_at)
        elif is_own_run:
            found.strangers += 1
            continue
        found.count += 1
        if found.count % _PROGRESS_EVERY == 0:
            progress(_PROGRESS_EVERY)
    progress(found.count % _PROGRESS_EVERY)
    found.seconds = max(end - begin, 0) / 1e9
    return found


def _sent_at(message: Any, run: bytes | None) -> int | None:
    """When the message was sent; None for one that is not of this run, or of none."""
    body = message.body
    if not isinstance(body, bytes) or len(body) < STAMP.size:
        return None
    magic, its_run, sent_at = STAMP.unpack_from(body)
    return int(sent_at) if magic == MAGIC and run in {None, its_run} else None
