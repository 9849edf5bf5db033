"""RabbitMQ with pika: the client."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from typing import Any

from bench.peers.rabbitmq import EXCHANGE, key_arguments
from bench.peers.server import HOST
from hms.boot.bench.load import Load, Sink

__all__ = ["RabbitDriver"]

_QUEUE = "bench"
_SERVICE, _REPLIES = "echo", "amq.rabbitmq.reply-to"
_BURST = 200
_STORED, _PASSING = 2, 1
Work = Callable[["_Turn"], None]


class _Turn:
    """One event-driven connection with one channel, while work goes on."""

    def __init__(self, parameters: Any, work: Work) -> None:
        from pika.adapters.select_connection import SelectConnection  # noqa: PLC0415

        self._work, self._fault, self._is_over = work, "", False
        self.channel: Any = None
        self._connection = SelectConnection(
            parameters,
            on_open_callback=lambda one: one.channel(on_open_callback=self._opened),
            on_open_error_callback=lambda _, fault: self._closed(fault),
            on_close_callback=lambda _, fault: self._closed(fault),
        )
        self.loop = self._connection.ioloop

    def run(self) -> None:
        """Until over() is called."""
        self.loop.start()
        if self._fault:
            raise ConnectionError(self._fault)

    def over(self, fault: str = "") -> None:
        """The work is done, or has failed."""
        if not self._is_over:
            self._is_over, self._fault = True, fault
            self._connection.close()

    def _opened(self, channel: Any) -> None:
        self.channel = channel
        channel.add_on_close_callback(
            lambda _, fault: self.over("" if self._is_over else str(fault))
        )
        self._work(self)

    def _closed(self, fault: Any) -> None:
        if not self._is_over:
            self._fault = str(fault)
        self.loop.stop()


class _Unconfirmed:
    """Numbers of messages that the broker has not confirmed."""

    def __init__(self) -> None:
        self.tags: set[int] = set()
        self._last, self._oldest = 0, 1

    def sent(self) -> None:
        """One more."""
        self._last += 1
        self.tags.add(self._last)

    def confirmed(self, tag: int, *, is_multiple: bool) -> None:
        """That one, or all up to it."""
        if is_multiple:
            self.tags.difference_update(range(self._oldest, tag + 1))
            self._oldest = tag + 1
        else:
            self.tags.discard(tag)


def _answer(channel: Any, _: Any, properties: Any, body: bytes) -> None:
    channel.basic_publish("", properties.reply_to, body)


class RabbitDriver:
    """See hms.boot.bench.driver.Driver. Option type: of the durable queue."""

    def __init__(self, address: str, options: dict[str, str]) -> None:
        import pika  # noqa: PLC0415 - only where it is installed

        self._pika = pika
        self._parameters = pika.ConnectionParameters(HOST, int(address), heartbeat=0)
        self._arguments = {"x-queue-type": options.get("type", "classic")}
        self._queues: list[str] = []
        self._load: Load
        self._blocking: Any = None
        self._channel: Any = None

    @property
    def _is_topic(self) -> bool:
        return self._load.destination.startswith("topic:")

    def _open(self, load: Load) -> None:
        self._load = load
        self._blocking = self._pika.BlockingConnection(self._parameters)
        self._channel = self._blocking.channel()
        if self._is_topic:
            kind = "headers" if load.keys else "fanout"
            self._channel.exchange_declare(EXCHANGE, kind, durable=load.is_durable)
        elif load.is_durable:
            self._channel.queue_declare(_QUEUE, durable=True, arguments=self._arguments)
        else:
            self._channel.queue_declare(_QUEUE)
        self._target = (EXCHANGE, "") if self._is_topic else ("", _QUEUE)
        mode = _STORED if load.is_durable else _PASSING
        made, keys = self._pika.BasicProperties, range(load.keys)
        self._labels = [made(delivery_mode=mode, headers={"Key": number}) for number in keys]
        self._labels = self._labels or [made(delivery_mode=mode)]

    def open_sender(self, load: Load) -> None:
        """Connect and make what is sent to."""
        self._open(load)

    def send_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """One publish after the other, each confirmed."""
        channel, clock = self._channel, time.perf_counter_ns
        channel.confirm_delivery()
        for body in bodies:
            begin = clock()
            channel.basic_publish(*self._target, body, self._labels[0])
            times_ns.append(clock() - begin)

    def send_pipelined(self, bodies: Iterable[bytes]) -> None:
        """With a window of unconfirmed ones; what is not durable goes without confirmations."""
        begin = self._confirmed if self._load.is_durable else self._unconfirmed
        waiting = zip(bodies, cycle(self._labels))
        _Turn(self._parameters, lambda turn: begin(turn, waiting)).run()

    def send_timed(self, bodies: Iterable[bytes]) -> None:
        """Each when it is given; confirmations are read in between."""
        channel = self._channel
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish(*self._target, body, self._labels[0])

    def _confirmed(self, turn: _Turn, waiting: Iterator[tuple[bytes, Any]]) -> None:
        window, channel = _Unconfirmed(), turn.channel

        def pump() -> None:
            for body, label in islice(waiting, self._load.window - len(window.tags)):
                channel.basic_publish(*self._target, body, label)
                window.sent()
            if not window.tags:
                turn.over()

        def confirmed(frame: Any) -> None:
            if type(frame.method).__name__ != "Ack":
                turn.over("the broker refused a message")
            else:
                window.confirmed(frame.method.delivery_tag, is_multiple=frame.method.multiple)
                pump()

        channel.confirm_delivery(confirmed, callback=lambda _: pump())

    def _unconfirmed(self, turn: _Turn, waiting: Iterator[tuple[bytes, Any]]) -> None:
        channel = turn.channel

        def pump() -> None:
            batch = list(islice(waiting, _BURST))
            for body, label in batch:
                channel.basic_publish(*self._target, body, label)
            if batch:
                turn.loop.call_later(0, pump)
            else:  # answered when all before it was taken
                channel.exchange_declare("amq.fanout", passive=True, callback=lambda _: turn.over())

        pump()

    def open_receiver(self, load: Load) -> None:
        """Connect, make the queues, bind those of a topic."""
        self._open(load)
        self._queues = [_QUEUE]
        if self._is_topic:
            self._queues = [f"bench-{os.getpid()}-{i}" for i in range(load.fan)]
            for number, name in enumerate(self._queues):
                self._channel.queue_declare(name)
                how = key_arguments(number) if load.selector else None
                self._channel.queue_bind(name, EXCHANGE, arguments=how)

    def receive(self, sink: Sink) -> None:
        """Consume and acknowledge; what is not durable is acknowledged by being sent."""
        _Turn(self._parameters, lambda turn: self._consume(turn, sink)).run()

    def _consume(self, turn: _Turn, sink: Sink) -> None:
        every = self._load.ack_every or 1
        is_durable = self._load.is_durable

        def came(channel: Any, method: Any, _: Any, body: bytes) -> None:
            sink.take(body)
            if is_durable and (sink.count % every == 0 or sink.is_full):
                channel.basic_ack(method.delivery_tag, multiple=every > 1)
            if sink.is_full:
                channel.queue_declare(self._queues[0], passive=True, callback=lambda _: turn.over())

        def consume(_: Any) -> None:
            for name in self._queues:
                turn.channel.basic_consume(name, came, auto_ack=not is_durable)

        turn.channel.basic_qos(prefetch_count=self._load.prefetch, callback=consume)

    def open_caller(self, load: Load) -> None:
        """Connect, and wait for direct replies."""
        self._load = load
        self._blocking = self._pika.BlockingConnection(self._parameters)
        self._channel = self._blocking.channel()
        self._replies: list[bytes] = []
        self._channel.basic_consume(_REPLIES, self._replied, auto_ack=True)

    def _replied(self, *frame: Any) -> None:
        self._replies.append(frame[-1])

    def call_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """Request and direct reply, one after the other."""
        how = self._pika.BasicProperties(reply_to=_REPLIES, delivery_mode=_PASSING)
        publish, clock = self._channel.basic_publish, time.perf_counter_ns
        for body in bodies:
            begin = clock()
            publish("", _SERVICE, body, how)
            while not self._replies:
                self._blocking.process_data_events(time_limit=None)
            times_ns.append(clock() - begin)
            assert self._replies.pop() == body, "the service answered something else"

    def answer(self, ready: Callable[[], object]) -> None:
        """See bench.peers.echo.Answering."""
        channel = self._pika.BlockingConnection(self._parameters).channel()
        channel.queue_declare(_SERVICE)

        channel.basic_consume(_SERVICE, _answer, auto_ack=True)
        ready()
        channel.start_consuming()

    def close(self) -> None:
        """Disconnect."""
        self._blocking.close()
