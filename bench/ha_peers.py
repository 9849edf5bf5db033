"""Failover of other brokers, timed as ours is: three servers on loopback, and each message is at a
majority of them before it is confirmed.

crash   kill -9 of the server where the queue's or the stream's leader is
stall   SIGSTOP of that one, for 10 s, then it goes on
move    another one is to lead: `rabbitmq-upgrade drain`, the step-down of NATS

Their clients are told errors, and send again at once, so what was stored may be doubled: what is
there at the end is counted. Ours are told nothing.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.ha_failover import RECEIVE_S, STALL_S
from bench.ha_gaps import FILLING, Books, Gaps, Sender
from bench.ha_machines import WAIT_S, wait_for
from bench.peers.nats import NATS_JETSTREAM
from bench.peers.rabbitmq import RABBITMQ_QUORUM_3, server_settings
from bench.peers.server import HOST, Peer, free_port, served

__all__ = ["PEERS", "Nats", "Rabbit", "Servers", "peer_failover"]

FAULTS = ("crash", "stall", "move")
SERVERS = 3
AGAIN_S = 0.02
"""Between two attempts of a client that was told an error."""
NATS_WAITS_S = 0.25
"""What its client waits for an acknowledgement before it sends again."""
_QUEUE, _STREAM, _SUBJECT = "bench", "bench", "bench.all"
_FILL_AT_ONCE = 1_000


class Servers(ABC):
    """Three servers, each in a folder of its own, with a queue that has a copy at each."""

    peer: Peer

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.ports = [free_port() for _ in range(SERVERS)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        for port in self.ports:
            (folder / str(port)).mkdir(parents=True)

    def boot(self) -> None:
        """Those that do not run; until each has everything."""
        for port in self.ports:
            if port not in self._running:
                self._running[port] = self._stack.enter_context(self._served(port))
        self.prepare()
        wait_for(self.is_whole, f"all servers of {self.peer.name}")

    @abstractmethod
    def _served(self, port: int) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        """One of them, in a context."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the queue, unless it is there."""

    @abstractmethod
    def is_whole(self) -> bool:
        """Whether each server has a copy that is up to date."""

    @property
    @abstractmethod
    def leader(self) -> int:
        """The port of the server that leads, 0 while nobody does."""

    def kill(self, port: int) -> None:
        """With all that it has started."""
        process = self._running.pop(port)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stall(self, port: int) -> None:
        """With all that it has started, for a while."""
        process = self._running[port]
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(STALL_S)
        os.killpg(process.pid, signal.SIGCONT)

    @abstractmethod
    def move(self) -> None:
        """Another server is to lead."""

    @abstractmethod
    def settle(self) -> None:
        """What a move has taken away is given back."""

    @abstractmethod
    def client(self) -> AbstractContextManager[Callable[[bytes], object]]:
        """See bench.ha_gaps.Sender."""

    @abstractmethod
    def fill(self, waiting: int) -> None:
        """So many messages wait there."""

    @abstractmethod
    def received(self) -> list[bytes]:
        """Bodies of all that waits there; they are gone then."""


class Rabbit(Servers):
    """RabbitMQ with a quorum queue."""

    peer = RABBITMQ_QUORUM_3

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        port = free_port()
        self._env = {"HOME": str(folder), "ERL_EPMD_ADDRESS": HOST, "ERL_EPMD_PORT": str(port)}
        mapper = served([str(self.peer.program("epmd"))], folder, port, env=self._env)
        stack.enter_context(mapper)
        self._settings = {p: server_settings(folder / str(p), p, self.ports) for p in self.ports}
        self._moved = 0

    def _served(self, port: int) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        command = [str(self.peer.program("rabbitmq-server"))]
        env = self._env | self._settings[port]
        return served(command, self.folder / str(port), port, env=env)

    def _says(self, program: str, port: int, *words: str) -> str:
        command = [str(self.peer.program(program)), "-q", "-n", f"bench{port}@localhost", *words]
        given: dict[str, Any] = {"capture_output": True, "text": True, "timeout": WAIT_S}
        return subprocess.run(command, check=False, env={**os.environ, **self._env}, **given).stdout

    def _connection(self) -> Any:
        import pika  # noqa: PLC0415 - only where it is installed

        ports = [port for port in self.ports if port in self._running]
        return pika.BlockingConnection(
            [pika.ConnectionParameters(HOST, port, heartbeat=0) for port in ports]
        )

    def prepare(self) -> None:
        """See Servers."""
        with self._connection() as connection:
            how = {"x-queue-type": "quorum"}
            connection.channel().queue_declare(_QUEUE, durable=True, arguments=how)

    def _row(self) -> dict[str, Any]:
        """What a server that runs says of the queue."""
        port = next(iter(self._running))
        words = "list_queues", "--formatter", "json", "name", "leader", "online"
        found = self._says("rabbitmqctl", port, *words)
        rows: list[dict[str, Any]] = json.loads(found) if found else []
        return next((row for row in rows if row["name"] == _QUEUE), {})

    def is_whole(self) -> bool:
        """See Servers."""
        return len(self._row().get("online", ())) == SERVERS

    @property
    def leader(self) -> int:
        """See Servers."""
        name = str(self._row().get("leader", ""))
        return int(name.removeprefix("bench").partition("@")[0] or 0)

    def move(self) -> None:
        """See Servers."""
        self._moved = self.leader
        self._says("rabbitmq-upgrade", self._moved, "drain")

    def settle(self) -> None:
        """See Servers."""
        if self._moved:
            self._says("rabbitmq-upgrade", self._moved, "revive")
            self._moved = 0

    @contextmanager
    def client(self) -> Iterator[Callable[[bytes], object]]:
        """See Servers."""
        import pika  # noqa: PLC0415

        how = pika.BasicProperties(delivery_mode=2)
        opened: list[Any] = []

        def channel() -> Any:
            if not opened:
                opened.append(self._connection())
                opened.append(opened[0].channel())
                opened[1].confirm_delivery()
            return opened[1]

        def close() -> None:
            with suppress(pika.exceptions.AMQPError):
                for connection in opened[:1]:
                    connection.close()
            opened.clear()

        def send(body: bytes) -> None:
            while True:
                try:
                    return channel().basic_publish("", _QUEUE, body, how)
                except pika.exceptions.AMQPError:
                    close()
                    time.sleep(AGAIN_S)

        yield send
        close()

    def fill(self, waiting: int) -> None:
        """See Servers."""
        import pika  # noqa: PLC0415

        how = pika.BasicProperties(delivery_mode=2)
        with self._connection() as connection:
            channel = connection.channel()
            for _ in range(waiting - 1):
                channel.basic_publish("", _QUEUE, FILLING, how)
            channel.confirm_delivery()  # of the last one: the queue takes them in order
            channel.basic_publish("", _QUEUE, FILLING, how)

    def received(self) -> list[bytes]:
        """See Servers."""
        found: list[bytes] = []
        with self._connection() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=_FILL_AT_ONCE)
            for method, _, body in channel.consume(_QUEUE, inactivity_timeout=RECEIVE_S):
                if method is None:
                    break
                found.append(body)
                channel.basic_ack(method.delivery_tag)
            channel.cancel()
        return found


class Nats(Servers):
    """NATS with a JetStream stream of three replicas."""

    peer = NATS_JETSTREAM

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        self._routes = {port: free_port() for port in self.ports}
        self._runner = stack.enter_context(asyncio.Runner())

    def _served(self, port: int) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        own = self.folder / str(port)
        routes = ", ".join(f'"nats://{HOST}:{one}"' for one in self._routes.values())
        config = own / "nats.conf"
        config.write_text(
            f'server_name: "s{port}"\nlisten: "{HOST}:{port}"\n'
            f'jetstream {{ store_dir: "{own}/jetstream" }}\n'
            f'cluster {{ name: bench, listen: "{HOST}:{self._routes[port]}", '
            f"routes: [{routes}] }}\n"
        )
        return served(["nats-server", "-c", str(config)], own, port)

    async def _connect(self) -> Any:
        import nats  # noqa: PLC0415 - only where it is installed

        async def tell_nobody(_: Exception) -> None:
            """A server that is gone is what is measured."""

        return await nats.connect(
            [f"nats://{HOST}:{port}" for port in self.ports],
            error_cb=tell_nobody,
            connect_timeout=1,
            reconnect_time_wait=AGAIN_S,
            max_reconnect_attempts=-1,
        )

    def _ask(self, act: Callable[[Any], Any]) -> Any:
        """What comes of it with a connection of its own; None of an error."""
        import nats  # noqa: PLC0415

        async def asked() -> Any:
            connection = await self._connect()
            try:
                return await act(connection)
            except (nats.errors.Error, TimeoutError):
                return None
            finally:
                await connection.close()

        return self._runner.run(asked())

    def prepare(self) -> None:
        """See Servers."""
        made = {"name": _STREAM, "subjects": [_SUBJECT], "storage": "file"}

        def make(connection: Any) -> Any:
            stream = connection.jetstream(timeout=NATS_WAITS_S * 20)
            return stream.add_stream(num_replicas=SERVERS, retention="workqueue", **made)

        wait_for(lambda: self._ask(make) or self._cluster(), "the stream")

    def _cluster(self) -> Any:
        """What they say of the stream's copies."""
        found = self._ask(lambda connection: connection.jetstream().stream_info(_STREAM))
        return found and found.cluster

    def is_whole(self) -> bool:
        """See Servers."""
        known = self._cluster()
        if not known or not known.leader:
            return False
        others = known.replicas or ()
        return sum(bool(one.current and not one.offline) for one in others) == SERVERS - 1

    @property
    def leader(self) -> int:
        """See Servers."""
        known = self._cluster()
        return int(known.leader.removeprefix("s")) if known and known.leader else 0

    def move(self) -> None:
        """See Servers."""
        subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{_STREAM}"
        self._ask(lambda connection: connection.request(subject, b"", timeout=WAIT_S))

    def settle(self) -> None:
        """Nothing: the server that led goes on with the others."""

    @contextmanager
    def client(self) -> Iterator[Callable[[bytes], object]]:
        """See Servers."""
        import nats  # noqa: PLC0415

        with asyncio.Runner() as runner:
            connection = runner.run(self._connect())
            stream = connection.jetstream(timeout=NATS_WAITS_S)

            async def send(body: bytes) -> None:
                while True:
                    try:
                        await stream.publish(_SUBJECT, body)
                    except (nats.errors.Error, TimeoutError):
                        await asyncio.sleep(AGAIN_S)
                    else:
                        return

            yield lambda body: runner.run(send(body))
            runner.run(connection.close())

    def fill(self, waiting: int) -> None:
        """See Servers."""

        async def fill(connection: Any) -> bool:
            stream = connection.jetstream(timeout=WAIT_S)
            for begin in range(0, waiting, _FILL_AT_ONCE):
                count = min(_FILL_AT_ONCE, waiting - begin)
                sent = [await stream.publish_async(_SUBJECT, FILLING) for _ in range(count)]
                await asyncio.gather(*sent)
            return True

        assert self._ask(fill), "the stream takes no messages"

    def received(self) -> list[bytes]:
        """See Servers."""
        import nats  # noqa: PLC0415

        found: dict[int, bytes] = {}

        async def drain(connection: Any) -> bool:
            stream = connection.jetstream(timeout=WAIT_S)
            reader = await stream.pull_subscribe(_SUBJECT, "reader")
            while (await stream.stream_info(_STREAM)).state.messages:  # some may be on their way
                with suppress(nats.errors.TimeoutError):
                    for message in await reader.fetch(_FILL_AT_ONCE, timeout=RECEIVE_S):
                        found[message.metadata.sequence.stream] = message.data
                        await message.ack()
            return bool(await stream.delete_consumer(_STREAM, "reader"))

        wait_for(lambda: self._ask(drain), "all messages")
        return list(found.values())


PEERS: tuple[type[Servers], ...] = (Rabbit, Nats)


def peer_failover(
    folder: Path,
    kind: type[Servers],
    times: int,
    waiting: int,
    said: Callable[[str], object],
    faults: Sequence[str] = FAULTS,
) -> list[Gaps]:
    """Each fault so many times, with so many messages waiting."""
    found = []
    name = f"{kind.peer.name.removesuffix('-3')}-3"
    with ExitStack() as stack:
        servers = kind(folder / name, stack)
        servers.boot()
        for fault in faults:
            if waiting:
                servers.fill(waiting)
            books = Books()
            gaps = tuple(_once(servers, fault, books) for _ in range(times))
            lost, doubled = books.settle(servers.received())
            found.append(Gaps(fault, gaps, name, books.confirmed, lost, doubled))
            said(str(found[-1]))
    return found


def _once(servers: Servers, fault: str, books: Books) -> float:
    wait_for(lambda: servers.leader, "a leader")
    leader = servers.leader
    sender = Sender(servers.client(), books)
    sender.await_sends(20)
    begun_s = time.monotonic()
    if fault == "move":
        servers.move()
        wait_for(lambda: servers.leader not in {0, leader}, "another leader")
        sender.first_after(time.monotonic())
        gap_s = sender.longest_since(begun_s)
    elif fault == "stall":
        servers.stall(leader)
        gap_s = sender.stood_still(begun_s)
    else:
        servers.kill(leader)
        gap_s = sender.first_after(time.monotonic()) - begun_s
    sender.end()
    servers.settle()
    servers.boot()
    return gap_s
