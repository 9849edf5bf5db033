"""One message, an event while an application has it, and what becomes of the message.

A story is written once, as a coroutine, and told through every door: by threads, where nothing in
it ever waits, and in an event loop.
"""

import asyncio
import inspect
import os
import select
from dataclasses import dataclass, field

import hms
from tests.support.waiting import wait_until

WAIT_S = 60
LIMIT = 2
NONE, CLIENT = hms.AckMode.NONE, hms.AckMode.CLIENT
MODES = {
    "AUTO": {"ack": hms.AckMode.AUTO},
    "CLIENT": {"ack": hms.AckMode.CLIENT},
    "DUPS_OK": {"ack": hms.AckMode.DUPS_OK},
    "NONE": {"ack": hms.AckMode.NONE},
    "transacted": {"transacted": True},
}


class FailedOnPurposeError(Exception):
    """What a listener raises."""


async def result(value):
    """What an operation answers, whichever client it is of."""
    return await value if inspect.isawaitable(value) else value


def at_once(coroutine):
    """Run a coroutine in which nothing waits."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits")


@dataclass
class Story:
    """What an application saw of its message: delivery count and redelivered flag, each time;
    ended: how often it was done with it."""

    address: str
    queue: str
    event: str
    mode: str
    is_aio: bool
    seen: list = field(default_factory=list)
    ended: int = 0

    def saw(self, message):
        """The application was given the message."""
        self.seen.append((message.delivery_count, message.redelivered))

    async def connect(self):
        """A connection of its client."""
        connect = hms.aio.connect if self.is_aio else hms.connect
        return await result(connect(self.address, request_timeout_s=WAIT_S))

    async def happened(self, is_so):
        """Wait until something has come about."""
        await (asyncio.to_thread(wait_until, is_so) if self.is_aio else result(wait_until(is_so)))

    def told(self, coroutine):
        """Run it to its end."""
        return asyncio.run(coroutine) if self.is_aio else at_once(coroutine)

    # ---- events

    async def occur(self, connection, session, consumer, message):
        """The event, while the application has the message."""
        for step in self.event.split(", "):
            await self._step(step, connection, session, consumer, message)

    async def _step(self, step, connection, session, consumer, message):
        whose = {"consumer": consumer, "session": session, "connection": connection}
        if step.startswith("close "):
            await result(whose[step.removeprefix("close ")].close())
        elif step == "ack one":
            await result(message.ack())
        elif step == "ack all":
            await result(session.ack())
        elif step == "raise":
            raise FailedOnPurposeError
        elif step in ("recover", "commit", "rollback"):
            await result(getattr(session, step)())
        else:
            assert step in ("return", "timeout")

    # ---- doors

    async def receive(self, rounds, send):
        """As a receiver, with a connection for each round."""
        for turn in range(rounds):
            connection = await self.connect()
            session = await result(connection.session(**MODES[self.mode]))
            consumer = await result(session.consumer(hms.Queue(self.queue)))
            if self.event == "timeout" and not turn:
                assert await result(consumer.receive(0.01)) is None
            if not turn:
                send()
            message = await result(consumer.receive(WAIT_S))
            self.saw(message)
            await self.occur(connection, session, consumer, message)
            self.ended += 1
            await result(connection.close())

    async def listen(self, rounds, send):
        """Through a listener; a new connection whenever the event closes something."""
        send()
        is_new = "close" in self.event or self.event == "return" or self.event.startswith("ack")
        while self.ended < rounds:
            connection = await self.connect()
            session = await result(connection.session(**MODES[self.mode]))
            consumer = await result(session.consumer(hms.Queue(self.queue), prefetch=1))
            at = self.ended
            parts = connection, session, consumer
            await result(consumer.listen(self._listener(*parts, rounds)))
            await self.happened(lambda at=at: self.ended > at if is_new else self.ended >= rounds)
            await result(connection.close())

    def _listener(self, connection, session, consumer, rounds):
        async def handle(message):
            self.saw(message)
            try:
                await self.occur(connection, session, consumer, message)
            finally:
                self.ended += 1

        assert rounds
        return handle if self.is_aio else lambda message: at_once(handle(message))

    async def serve(self, rounds, send, pipes):
        """Through a service; the event comes from the listening client, while the service runs."""
        send()
        while self.ended < rounds:
            connection = await self.connect()
            session = await result(connection.session(asynchronous=True, **MODES[self.mode]))
            consumer = await result(session.consumer(hms.Queue(self.queue), listener="HELD"))
            if self.event in ("return", "raise", "recover"):
                while self.ended < rounds:
                    await self._served(session, pipes)
                await self.happened(pipes.is_settled)
            else:
                self.seen.append(await self._given(pipes))
                pipes.go(b"o")
                await self.occur(connection, session, consumer, None)
                self.ended += 1
            await result(connection.close())

    async def _served(self, session, pipes):
        """One run of the service."""
        self.seen.append(await self._given(pipes))
        if self.event == "recover":
            await result(session.recover())
        pipes.go(b"x" if self.event == "raise" else b"o")
        self.ended += 1

    async def _given(self, pipes):
        return await asyncio.to_thread(pipes.given) if self.is_aio else pipes.given()


class Pipes:
    """The test's ends of the pipes of a service; is_settled: whether no message is out."""

    def __init__(self, place, is_settled):
        self.place = str(place)
        self.is_settled = is_settled
        for end in ("given", "go"):
            os.mkfifo(f"{place}.{end}")
        self._given = os.open(f"{place}.given", os.O_RDWR)
        self._go = os.open(f"{place}.go", os.O_RDWR)
        self._read = b""

    def given(self):
        """What the service was given next."""
        poll = select.poll()
        poll.register(self._given, select.POLLIN)
        while b"\n" not in self._read:
            assert poll.poll(WAIT_S * 1000), "the service was not called"
            self._read += os.read(self._given, 1000)
        line, _, self._read = self._read.partition(b"\n")
        count, is_redelivered = line.split()
        return int(count), is_redelivered == b"1"

    def go(self, words):
        """Have the service end so; one word a run."""
        os.write(self._go, words)

    def close(self):
        """Give them back."""
        os.close(self._given)
        os.close(self._go)
