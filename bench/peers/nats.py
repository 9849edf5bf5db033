"""NATS with nats-py: JetStream streams in files, and plain subjects."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.server import HOST, Peer, free_port, served
from hms.boot.bench.load import Load, Sink
from hms.boot.bench.systems import Needs, Running

__all__ = ["NATS_CORE", "NATS_JETSTREAM", "NatsDriver"]

_STREAM, _SUBJECT, _SERVICE = "bench", "bench.all", "bench.echo"
_BURST = 100
_UNLIMITED = 1 << 40
_TIMEOUT_S = 30


class NatsDriver:
    """See hms.boot.bench.driver.Driver. Option store "yes": through a JetStream stream."""

    def __init__(self, address: str, options: dict[str, str]) -> None:
        self._address = address
        self._is_stored = options.get("store") == "yes"
        self._runner = asyncio.Runner()
        self._connections: list[Any] = []
        self._stream: Any = None
        self._sink: Sink | None = None
        self._load: Load

    async def _join(self) -> Any:
        import nats  # noqa: PLC0415 - only where it is installed

        connection = await nats.connect(f"nats://{HOST}:{self._address}", allow_reconnect=False)
        self._connections.append(connection)
        return connection

    async def _connect(self, load: Load) -> Any:
        self._load = load
        connection = await self._join()
        if self._is_stored:
            self._stream = connection.jetstream(
                publish_async_max_pending=load.window, timeout=_TIMEOUT_S
            )
            await self._stream.add_stream(
                name=_STREAM, subjects=[_SUBJECT], retention="workqueue", storage="file"
            )
        return connection

    def open_sender(self, load: Load) -> None:
        """Connect."""
        self._runner.run(self._connect(load))

    def send_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """One publish after the other, each acknowledged by the stream."""

        async def send() -> None:
            publish, clock = self._stream.publish, time.perf_counter_ns
            for body in bodies:
                begin = clock()
                await publish(_SUBJECT, body)
                times_ns.append(clock() - begin)

        self._runner.run(send())

    def send_pipelined(self, bodies: Iterable[bytes]) -> None:
        """With a window of unacknowledged ones, or at full speed without a stream."""
        self._runner.run(self._send(bodies) if self._is_stored else self._publish(bodies))

    def send_timed(self, bodies: Iterable[bytes]) -> None:
        """Each when it is given."""
        self._runner.run(self._send(bodies, every=1))

    async def _send(self, bodies: Iterable[bytes], every: int = _BURST) -> None:
        pending = []
        for number, body in enumerate(bodies):
            pending.append(await self._stream.publish_async(_SUBJECT, body))
            if number % every == 0:
                await asyncio.sleep(0)
        await self._stream.publish_async_completed()
        for one in pending:
            one.result()

    async def _publish(self, bodies: Iterable[bytes]) -> None:
        connection = self._connections[0]
        for number, body in enumerate(bodies):
            await connection.publish(_SUBJECT, body)
            if number % _BURST == 0:
                await asyncio.sleep(0)
        await connection.flush()

    def open_receiver(self, load: Load) -> None:
        """Connect; without a stream subscribe too, as nothing waits for a late subscriber."""
        self._runner.run(self._open_receiver(load))

    async def _open_receiver(self, load: Load) -> None:
        for _ in range(load.fan):
            connection = await self._connect(load)
            if not self._is_stored:
                await connection.subscribe(
                    _SUBJECT,
                    cb=self._came,
                    pending_msgs_limit=_UNLIMITED,
                    pending_bytes_limit=_UNLIMITED,
                )
                await connection.flush()

    async def _came(self, message: Any) -> None:
        assert self._sink is not None
        self._sink.take(message.data)
        if self._is_stored:
            await message.ack()
        if self._sink.is_full:
            self._done.set()

    def receive(self, sink: Sink) -> None:
        """Until the sink is full."""
        self._sink = sink
        self._runner.run(self._receive())

    async def _receive(self) -> None:
        self._done = asyncio.Event()
        if self._is_stored:
            from nats.js.api import ConsumerConfig  # noqa: PLC0415

            config = ConsumerConfig(ack_policy="explicit", max_ack_pending=self._load.prefetch)  # type: ignore[arg-type]
            await self._stream.subscribe(
                _SUBJECT,
                durable="one",
                stream=_STREAM,
                cb=self._came,
                manual_ack=True,
                config=config,
            )
        await asyncio.wait_for(self._done.wait(), self._load.timeout_s * 2)
        await self._connections[0].flush()

    def open_caller(self, load: Load) -> None:
        """Connect."""
        self._runner.run(self._connect(load))

    def call_each(self, bodies: Iterable[bytes], times_ns: list[int]) -> None:
        """Request and reply, one after the other."""

        async def call() -> None:
            request, clock = self._connections[0].request, time.perf_counter_ns
            for body in bodies:
                begin = clock()
                reply = await request(_SERVICE, body, timeout=_TIMEOUT_S)
                times_ns.append(clock() - begin)
                assert reply.data == body, "the service answered something else"

        self._runner.run(call())

    def answer(self, ready: Callable[[], object]) -> None:
        """See bench.peers.echo.Answering."""

        async def respond(message: Any) -> None:
            await message.respond(message.data)

        async def serve() -> None:
            connection = await self._join()
            await connection.subscribe(_SERVICE, cb=respond)
            await connection.flush()
            ready()
            await asyncio.Event().wait()

        self._runner.run(serve())

    def close(self) -> None:
        """Disconnect."""
        for connection in self._connections:
            self._runner.run(connection.close())
        self._runner.close()


@dataclass(frozen=True, kw_only=True)
class Nats(Peer):
    """A NATS server."""

    @contextmanager
    def boot(self, folder: Path, needs: Needs) -> Iterator[Running]:  # noqa: ARG002
        """Start it with an empty store."""
        port = free_port()
        config = folder / "nats.conf"
        store = folder / "jetstream"
        config.write_text(
            f'listen: "{HOST}:{port}"\njetstream {{ store_dir: "{store}" }}\nmax_pending: 1GB\n'
        )
        with served(["nats-server", "-c", str(config)], folder, port) as process:
            yield Running(str(port), (process.pid,), self.settings)


_COMMON: dict[str, Any] = {
    "driver": "bench.peers.nats:NatsDriver",
    "programs": ("nats-server",),
    "modules": ("nats",),
    "is_synced": False,
}
NATS_JETSTREAM = Nats(
    name="nats-jetstream",
    durability="file stream, acknowledged before it is synced (every 2 minutes)",
    workloads=frozenset({"W1", "W2", "W2s", "W3", "W4", "W4r"}),
    settings={"store": "yes"},
    **_COMMON,
)
NATS_CORE = Nats(
    name="nats-core",
    durability="nothing is stored; a slow receiver loses messages",
    workloads=frozenset({"W5", "W6", "W8"}),
    **_COMMON,
)
