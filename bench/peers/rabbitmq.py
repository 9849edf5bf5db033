"""RabbitMQ: classic and quorum queues; its client is in rabbit_driver.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.server import HOST, Peer, free_port, served
from hms.boot.bench.systems import Needs, Running

__all__ = ["EXCHANGE", "RABBITMQ_CLASSIC", "RABBITMQ_QUORUM", "key_arguments"]

EXCHANGE = "benchnews"


def key_arguments(number: int) -> dict[str, object]:
    """What binds a queue to messages with that Key, at an exchange that looks at headers."""
    return {"x-match": "all", "Key": number}


@dataclass(frozen=True, kw_only=True)
class Rabbit(Peer):
    """A RabbitMQ server."""

    @contextmanager
    def boot(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Start a port mapper and a server of its own with an empty store; make queues for durable
        subscriptions."""
        port, epmd_port = free_port(), free_port()
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = {HOST}:{port}\n")
        (folder / "plugins").write_text("[].\n")
        env = {
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "store"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        }
        epmd, server = str(self.program("epmd")), str(self.program("rabbitmq-server"))
        with (
            served([epmd], folder, epmd_port, env=env) as mapper,
            served([server], folder, port, env=env) as process,
        ):
            if needs.subscriptions:
                _subscribe(port, needs)
            yield Running(str(port), (process.pid, mapper.pid), self.settings)


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
RABBITMQ_CLASSIC = Rabbit(
    name="rabbitmq-classic",
    durability="classic queue, persistent, publisher confirms: synced before it is confirmed",
    workloads=_STORED_WORKLOADS | {"W5", "W6", "W7", "W7d", "W8"},
    settings={"type": "classic"},
    **_COMMON,
)
