"""Redis with redis-py: streams with an append-only file, lists and channels without one."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bench.peers.server import HOST, Peer, free_port, served
from hms.boot.bench.load import Load, Sink
from hms.boot.bench.systems import Needs, Running

__all__ = ["REDIS_ALWAYS", "REDIS_EVERY_SECOND", "REDIS_MEMORY", "RedisDriver"]

_GROUP = "bench"
_REQUESTS, _REPLIES = "requests", "replies"
_BLOCK_MS = 500
_READ = 1000


class RedisDriver:
    """See hms.boot.bench.driver.Driver."""

    def __init__(self, address: str, options: dict[str, str]) -> None:  # noqa: ARG002
        import redis  # noqa: PLC0415 - only where it is installed

        self._client: Any = redis.Redis(HOST, int(address), protocol=2)
        self._fault = redis.ResponseError
        self._channels: list[Any] = []
        self._load: Load

    def _open(self, load: Load) -> None:
        self._load = load
        self._client.ping()
        if load.is_durable:
            with suppress(self._fault):  # the other side has made it
                self._client.xgroup_create(load.destination, _GROUP, id="0", mkstream=True)

    def open_sender(self, load: Load) -> None:
        """Connect."""
        self._open(load)

    def send_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """XADD, one after the other."""
        add, name, clock = self._client.xadd, self._load.destination, time.perf_counter_ns
        for body in bodies:
            begin = clock()
            add(name, {"b": body})
            times_ns.append(clock() - begin)

    def send_pipelined(self, bodies: Iterable[bytes]) -> None:
        """Pipelines of a window each."""
        waiting = iter(bodies)
        while batch := list(islice(waiting, self._load.window)):
            self._send(batch)

    def send_timed(self, bodies: Iterable[bytes]) -> None:
        """Each when it is given."""
        for body in bodies:
            self._send([body])

    def _send(self, batch: Sequence[bytes]) -> None:
        name = self._load.destination
        pipeline = self._client.pipeline(transaction=False)
        for body in batch:
            if name.startswith("topic:"):
                pipeline.publish(name, body)
            elif self._load.is_durable:
                pipeline.xadd(name, {"b": body})
            else:
                pipeline.rpush(name, body)
        pipeline.execute()

    def open_receiver(self, load: Load) -> None:
        """Connect; subscribe to a channel."""
        self._open(load)
        for _ in range(load.fan if load.destination.startswith("topic:") else 0):
            channel = self._client.pubsub(ignore_subscribe_messages=True)
            channel.subscribe(load.destination)
            channel.get_message(timeout=1.0)
            self._channels.append(channel)

    def receive(self, sink: Sink) -> None:
        """From the stream, the list or the channels."""
        if self._channels:
            self._receive_channels(sink)
        elif self._load.is_durable:
            self._receive_stream(sink)
        else:
            self._receive_list(sink)

    def _receive_stream(self, sink: Sink) -> None:
        name, every = self._load.destination, self._load.ack_every or 1
        while not sink.is_full:
            found = self._client.xreadgroup(
                _GROUP, "one", {name: ">"}, count=self._load.prefetch, block=_BLOCK_MS
            )
            for _, entries in found:
                for _, fields in entries:
                    sink.take(fields[b"b"])
                pipeline = self._client.pipeline(transaction=False)
                for at in range(0, len(entries), every):
                    ids = [number for number, _ in entries[at : at + every]]
                    pipeline.xack(name, _GROUP, *ids)
                    pipeline.xdel(name, *ids)
                pipeline.execute()

    def _receive_list(self, sink: Sink) -> None:
        name = self._load.destination
        while not sink.is_full:
            found = self._client.blmpop(_BLOCK_MS / 1000, 1, name, direction="LEFT", count=_READ)
            for body in found[1] if found else ():
                sink.take(body)

    def _receive_channels(self, sink: Sink) -> None:
        while not sink.is_full:
            for channel in self._channels:
                message = channel.get_message(timeout=self._load.timeout_s)
                if message is not None:
                    sink.take(message["data"])

    def open_caller(self, load: Load) -> None:
        """Connect."""
        self._load = load
        self._client.ping()

    def call_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """A request into one list and the reply out of another, asked for in one go."""
        clock = time.perf_counter_ns
        for body in bodies:
            begin = clock()
            pipeline = self._client.pipeline(transaction=False)
            found = pipeline.rpush(_REQUESTS, body).blpop(_REPLIES, self._load.timeout_s).execute()
            times_ns.append(clock() - begin)
            assert found[1][1] == body, "the service answered something else"

    def answer(self, ready: Callable[[], object]) -> None:
        """See bench.peers.echo.Answering. The reply goes with the question for the next request."""
        self._client.ping()
        ready()
        request = self._client.blpop(_REQUESTS, 0)
        while True:
            pipeline = self._client.pipeline(transaction=False)
            request = pipeline.rpush(_REPLIES, request[1]).blpop(_REQUESTS, 0).execute()[1]

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


@dataclass(frozen=True, kw_only=True)
class Redis(Peer):
    """A Redis server."""

    @contextmanager
    def boot(self, folder: Path, needs: Needs) -> Iterator[Running]:  # noqa: ARG002
        """Start it with an empty store."""
        port = free_port()
        command = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(folder)]
        command += ["--save", "", "--client-output-buffer-limit", "pubsub 0 0 0"]
        for name, value in self.settings.items():
            command += [f"--{name}", value]
        with served(command, folder, port) as process:
            yield Running(str(port), (process.pid,))


_STORED = frozenset({"W1", "W2", "W2s", "W3", "W3b", "W4", "W4r"})
_COMMON: dict[str, Any] = {
    "driver": "bench.peers.redis:RedisDriver",
    "programs": ("redis-server",),
    "modules": ("redis",),
}
REDIS_ALWAYS = Redis(
    name="redis-always",
    durability="stream, appendonly yes, appendfsync always: synced before it is confirmed",
    is_synced=True,
    workloads=_STORED,
    settings={"appendonly": "yes", "appendfsync": "always"},
    **_COMMON,
)
REDIS_EVERY_SECOND = Redis(
    name="redis-everysec",
    durability="stream, appendonly yes, appendfsync everysec: a second may be lost",
    is_synced=False,
    workloads=_STORED,
    settings={"appendonly": "yes", "appendfsync": "everysec"},
    **_COMMON,
)
REDIS_MEMORY = Redis(
    name="redis-memory",
    durability="list or channel in memory: nothing is stored",
    is_synced=False,
    workloads=frozenset({"W5", "W6", "W8"}),
    settings={"appendonly": "no"},
    **_COMMON,
)
