"""A client process of the mixed load: `python -m bench.mixed_client PART`, PART in JSON.

It connects, says "ready", and reports twice a second as a line of JSON. A line on its standard
input is a leg; the end of the input ends it. Every message is due at a moment that the leg's rate
gives, whether those before it are done or not, and its latency counts from that moment: so a pause
counts for all messages that were due in it, not only for the one that was on its way.

The garbage collector is set as an application with many messages would set it: what is there when
the load begins is frozen, and a collection looks at 20,000 new objects.
"""

import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import msgspec

import hms
import tpmon
from bench.mixed_tally import Tally
from bench.mixed_words import KIND_NUMBERS, Leg, Part, Said
from hms.boot.bench.load import MAGIC, STAMP

__all__ = ["main"]

_EVERY_NS = 500_000_000
_NAP_S = 0.1
_GROUPS_PER_S = 250
_GROUP_MAX = 32
_MOVED_MAX = 16
_Queues = queue.SimpleQueue["Leg | None"]


class Client:
    """What all roles share: the connection, the tally, the reports and the end."""

    def __init__(self, part: Part, stack: ExitStack) -> None:
        self.part, self.stack = part, stack
        self.tally = Tally()
        self.is_over = False
        self.legs: _Queues = queue.SimpleQueue()
        self._next_ns = 0
        self._number = 0
        self._filler = bytes(part.kind.size - STAMP.size)
        self._sender = KIND_NUMBERS[part.kind.name] * 16 + part.number

    def connect(self, *, is_transacted: bool = False) -> Any:
        """A session; a connection that is lost ends the run."""
        name = f"mixed {self.part.kind.name} {self.part.role}"
        connected = hms.connect(self.part.address, client_name=name, reconnect=False)
        connection = self.stack.enter_context(connected)
        return self.stack.enter_context(connection.session(transacted=is_transacted))

    def listen(self) -> None:
        """Take legs from the standard input until it ends."""
        rest = b""
        while part := os.read(0, 1 << 16):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                self.legs.put(msgspec.json.decode(line, type=Leg))
        self.is_over = True
        self.legs.put(None)

    def report(self, now_ns: int) -> None:
        """Tell what is new, when it is time."""
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + _EVERY_NS
            say(msgspec.json.encode(self.tally.told()))

    def body(self, due_ns: int) -> bytes:
        """The next message: run, kind, number and when it was due."""
        self._number += 1
        stamp = STAMP.pack(MAGIC, self.part.run, self._sender, self._number, due_ns)
        return stamp + self._filler

    def take(self, body: object, copy: int = 0) -> int:
        """A message of this run has arrived; now, in nanoseconds."""
        now_ns = time.monotonic_ns()
        assert isinstance(body, bytes), f"a body is {type(body).__name__}"
        magic, run, sender, number, due_ns = STAMP.unpack_from(body)
        ours = (MAGIC, self.part.run, self._sender)
        assert (magic, run, sender) == ours, f"a stranger's message: {body[:24]!r}"
        self.tally.arrived(copy, number, due_ns, now_ns)
        return now_ns

    def due(self, leg: Leg) -> Iterator[tuple[int, int]]:
        """When each group is due, and how many messages it has; waits for it, if it is not late."""
        rate = leg.rate * self.part.kind.share * self.part.fraction
        size = max(1, min(_GROUP_MAX, int(rate / _GROUPS_PER_S)))
        if self.part.role == "call":
            size = 1
        for group in range(max(1, int(rate * leg.seconds / size))):
            due_ns = leg.begin_ns + int(group * size / rate * 1e9)
            while (now_ns := time.monotonic_ns()) < due_ns and not self.is_over:
                self.report(now_ns)
                time.sleep(min((due_ns - now_ns) / 1e9, _NAP_S))
            if self.is_over:
                return
            self.report(now_ns)
            yield due_ns, size

    def work(self, group: Callable[[int, int], object]) -> None:
        """All legs, one after the other."""
        while True:
            try:
                leg = self.legs.get(timeout=_NAP_S)
            except queue.Empty:
                self.report(time.monotonic_ns())
                continue
            if leg is None:
                return
            for due_ns, count in self.due(leg):
                group(due_ns, count)
            self.tally.said.legs_done += 1
            self._next_ns = 0


def send(client: Client) -> Callable[[], None]:
    """Groups by send_async; the first one that is refused ends it."""
    kind, failed = client.part.kind, list[BaseException]()
    name = "topic:mixed.topic" if kind.name == "topic" else f"queue:mixed.{kind.name}"
    producer = client.connect().producer(name, persistent=kind.is_durable)

    def confirmed(done: "Future[Any]") -> None:
        error = done.exception()
        if error is not None:
            failed.append(error)

    def group(due_ns: int, count: int) -> None:
        for _ in range(count):
            producer.send_async(client.body(due_ns)).add_done_callback(confirmed)
        client.tally.said.sent += count
        if failed:
            raise failed[0]

    def work() -> None:
        client.work(group)
        producer.close()  # waits for the confirmations
        if failed:
            raise failed[0]

    return work


def receive(client: Client) -> Callable[[], None]:
    """A consumer of the queue, or of the one that messages were moved to."""
    name = client.part.kind.name
    name = "moved" if name == "move" else name
    return _receiving(client, [client.connect().consumer(f"queue:mixed.{name}")])


def subscribe(client: Client) -> Callable[[], None]:
    """All subscribers of the topic, in one session."""
    session = client.connect()
    copies = range(client.part.kind.copies)
    return _receiving(client, [session.consumer("topic:mixed.topic") for _ in copies])


def _receiving(client: Client, consumers: Sequence[Any]) -> Callable[[], None]:
    def work() -> None:
        while not client.is_over:
            for copy, consumer in enumerate(consumers):
                message = consumer.receive(_NAP_S)
                if message is None:
                    client.report(time.monotonic_ns())
                else:
                    client.report(client.take(message.body, copy))

    return work


def move(client: Client) -> Callable[[], None]:
    """Transactions that receive what is there, send it on, and commit."""
    session = client.connect(is_transacted=True)
    consumer = session.consumer("queue:mixed.move")
    producer = session.producer("queue:mixed.moved")

    def work() -> None:
        while not client.is_over:
            message, bodies = consumer.receive(_NAP_S), []
            while message is not None:
                bodies.append(message.body)
                message = consumer.receive_nowait() if len(bodies) < _MOVED_MAX else None
            if bodies:
                producer.send_many(bodies)
                session.commit()
            client.report(time.monotonic_ns())

    return work


def call(client: Client) -> Callable[[], None]:
    """A caller, which waits for each reply."""
    tpmon.tpputenv(f"HMS_ADDRESS={client.part.address}")
    tpmon.tpstart()
    client.stack.callback(tpmon.tpend)

    def group(due_ns: int, count: int) -> None:
        for _ in range(count):
            client.tally.said.sent += 1
            client.take(tpmon.tpcall("ECHO", client.body(due_ns)).data)

    return lambda: client.work(group)


ROLES = {"send": send, "receive": receive, "subscribe": subscribe, "move": move, "call": call}


def say(line: bytes) -> None:
    """One line."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()


def _run(client: Client) -> None:
    work = ROLES[client.part.role](client)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    say(b"ready")
    threading.Thread(target=client.listen, daemon=True).start()
    work()


def main(arguments: Sequence[str]) -> None:
    """One part; a fault is in the last report."""
    part = msgspec.json.decode(arguments[0], type=Part)
    with ExitStack() as stack:
        client = Client(part, stack)
        try:
            _run(client)
            last = client.tally.told()
        except Exception as fault:  # noqa: BLE001 - told to the process that measures
            last = Said(error=f"{type(fault).__name__}: {fault}")
        say(msgspec.json.encode(last))


if __name__ == "__main__":
    main(sys.argv[1:])
