"""What is measured: a real node in a process of its own, and the null broker."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hms.testing import node

__all__ = ["HMS", "HmsSystem", "NullSystem", "Running", "System"]

_FRAME_MESSAGES = 256
STOP_S = 10


@dataclass(frozen=True, slots=True)
class Running:
    """A system that runs: where it listens, what its clients need to know, its processes."""

    address: str
    pids: tuple[int, ...]
    options: Mapping[str, str] = field(default_factory=dict)


class System(Protocol):
    """A broker that can be started with an empty store."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    @property
    def driver(self) -> str:
        """Its client, "module:class"."""

    @property
    def durability(self) -> str:
        """What a confirmation of a durable send is worth."""

    def run(self, folder: Path, needs: "Needs") -> AbstractContextManager[Running]:
        """A context in which it runs, as Running."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a workload needs of the system. window: unconfirmed messages of a sender."""

    queues: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    subscriptions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Durable ones by name: topic and selector."""
    window: int = 1000
    is_durable: bool = True
    is_filled: bool = False
    has_service: bool = False
    is_packed: bool = True
    node: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the node's own that the workload needs, of HMS alone."""


class HmsSystem:
    """A node as it boots by itself, with the window given in frames and room for topics."""

    name = "hms"
    driver = "hms.boot.bench.hms_driver:HmsDriver"
    durability = "written and synced (fdatasync) before it is confirmed"

    @contextmanager
    def run(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Boot a node; it is killed at the end, as its store goes too."""
        serve = ["hms.boot.bench.echo"] if needs.has_service else []
        with node(store=folder / "store", config=self.config(needs), serve=serve) as running:
            yield Running(running.address, (running.pid,))

    def config(self, needs: Needs) -> dict[str, Any]:
        """The configuration that is measured."""
        own = {
            "segment_bytes": "64 MiB",
            "max_requests": max(1, -(-needs.window // _FRAME_MESSAGES)),
            "max_pending_bytes": "768 MiB",
            **needs.node,
        }
        found: dict[str, Any] = {
            "queue": {name: {} for name in needs.queues},
            "topic": {name: {} for name in needs.topics},
            "subscription": {
                name: {"topic": topic, "selector": selector}
                for name, (topic, selector) in needs.subscriptions.items()
            },
        }
        return {"node": {"node1": own}, "hms": found}


class NullSystem:
    """The null broker, with a log when the workload is durable."""

    name = "limit"
    driver = "hms.boot.bench.null_driver:NullDriver"
    durability = "overwritten and synced (fdatasync) before it is confirmed"

    @contextmanager
    def run(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Start it."""
        log = str(folder / "null.log") if needs.is_durable else ""
        command = [sys.executable, "-m", "hms.boot.bench.null", log]
        command += ["echo"] if needs.has_service else []
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            options = {} if needs.is_packed else {"pack": "1"}
            options |= {"fill": "yes"} if needs.is_filled else {}
            yield Running(address, (process.pid,), options)
        finally:
            _end_group(process)
            process.stdout.close()


def _end_group(process: "subprocess.Popen[str]") -> None:
    """End a process and its children, by the group that was made for it."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_S)


HMS = HmsSystem()
