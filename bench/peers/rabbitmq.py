"""RabbitMQ: classic and quorum queues; its client is in rabbit_driver.py."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.server import HOST, Peer, free_port, served
from hms.boot.bench.systems import Needs, Running

__all__ = [
    "EXCHANGE",
    "RABBITMQ_CLASSIC",
    "RABBITMQ_QUORUM",
    "RABBITMQ_QUORUM_3",
    "key_arguments",
    "server_settings",
]

EXCHANGE = "benchnews"


def key_arguments(number: int) -> dict[str, object]:
    """What binds a queue to messages with that Key, at an exchange that looks at headers."""
    return {"x-match": "all", "Key": number}


@dataclass(frozen=True, kw_only=True)
class Rabbit(Peer):
    """A RabbitMQ server."""

    nodes: int = 1
    """So many servers; each queue has a member at each."""

    @contextmanager
    def boot(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Start a port mapper and servers of its own with empty stores, one after the other, so
        that they form a cluster; make queues for durable subscriptions."""
        epmd_port, ports = free_port(), [free_port() for _ in range(self.nodes)]
        env = {"HOME": str(folder), "ERL_EPMD_ADDRESS": HOST, "ERL_EPMD_PORT": str(epmd_port)}
        epmd, server = str(self.program("epmd")), str(self.program("rabbitmq-server"))
        with ExitStack() as stack:
            pids = [stack.enter_context(served([epmd], folder, epmd_port, env=env)).pid]
            for port in ports:
                own = folder / str(port)
                own.mkdir()
                told = env | server_settings(own, port, ports)
                pids.insert(0, stack.enter_context(served([server], own, port, env=told)).pid)
            if needs.subscriptions:
                _subscribe(ports[0], needs)
            yield Running(str(ports[0]), tuple(pids), self.settings)


def server_settings(folder: Path, port: int, ports: Sequence[int]) -> dict[str, str]:
    """The environment of one server, whose files it writes."""
    lines = [f"listeners.tcp.1 = {HOST}:{port}"]
    if len(ports) > 1:
        lines.append("cluster_formation.peer_discovery_backend = classic_config")
        named = enumerate(ports, 1)
        lines += [
            f"cluster_formation.classic_config.nodes.{i} = bench{p}@localhost" for i, p in named
        ]
    (folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
    (folder / "plugins").write_text("[].\n")
    return {
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "store"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }


def _subscribe(port: int, needs: Needs) -> None:
    """A durable queue for each, bound by the number that its selector `Key = number` asks for."""
    import pika  # noqa: PLC0415 - only where it is installed

    with pika.BlockingConnection(pika.ConnectionParameters(HOST, port, heartbeat=0)) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "headers", durable=True)
        for name, (_, selector) in needs.subscriptions.items():
            channel.queue_declare(name, durable=True)
            how = key_arguments(int(selector.rpartition("=")[2]))
            channel.queue_bind(name, EXCHANGE, arguments=how)


_COMMON: dict[str, Any] = {
    "driver": "bench.peers.rabbit_driver:RabbitDriver",
    "programs": ("rabbitmq-server", "epmd"),
    "modules": ("pika",),
    "folders": ("usr/lib/rabbitmq/lib/*/sbin",),
    "is_synced": True,
}
_STORED_WORKLOADS = frozenset({"W1", "W2", "W2s", "W3", "W3b", "W4", "W4r"})
RABBITMQ_QUORUM = Rabbit(
    name="rabbitmq-quorum",
    durability="quorum queue of one member, publisher confirms: synced before it is confirmed",
    workloads=_STORED_WORKLOADS,
    settings={"type": "quorum"},
    **_COMMON,
)
RABBITMQ_QUORUM_3 = Rabbit(
    name="rabbitmq-quorum-3",
    durability="quorum queue of three members: synced by two of them before it is confirmed",
    workloads=_STORED_WORKLOADS,
    settings={"type": "quorum"},
    nodes=3,
    **_COMMON,
)
RABBITMQ_CLASSIC = Rabbit(
    name="rabbitmq-classic",
    durability="classic queue, persistent, publisher confirms: synced before it is confirmed",
    workloads=_STORED_WORKLOADS | {"W5", "W6", "W7", "W7d", "W8"},
    settings={"type": "classic"},
    **_COMMON,
)
