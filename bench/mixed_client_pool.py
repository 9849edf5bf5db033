"""The processes of the mixed load: clients and probes, what they have said so far, their end."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from bench.mixed_words import Leg, Part, Said
from hms.boot.bench.client_pool import BenchFailed

__all__ = ["READY_S", "Client", "Process", "client_pool", "probe"]

READY_S = 60.0
_END_S = 30.0
_ROOT = Path(__file__).resolve().parent.parent


class Process:
    """A process whose lines are taken on a thread of their own; ready after its first one."""

    def __init__(
        self, module: str, arguments: Sequence[str], take: Callable[[bytes], None]
    ) -> None:
        self.name = " ".join([module, *arguments])
        command = [sys.executable, "-m", module, *arguments]
        before = os.environ.get("PYTHONPATH", "")
        path = str(_ROOT) + (os.pathsep + before if before else "")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=path),
        )
        self.pid = self._process.pid
        self._take = take
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == b"ready\n":
                self._ready.set()
            else:
                self._take(line)

    def await_ready(self) -> None:
        """BenchFailed when it does not say so, or has ended."""
        until = time.monotonic() + READY_S
        while not self._ready.wait(0.1):
            if self.is_over or time.monotonic() > until:
                raise BenchFailed(f"{self.name} did not begin")

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def write(self, line: bytes) -> None:
        """A line for its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """End its input, wait until it has said all; kill it when it does not end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Client(Process):
    """A client and its last report; on_said: what hears of each."""

    def __init__(self, part: Part, on_said: Callable[[Part, Said], None]) -> None:
        self.part, self.said = part, Said()
        self.is_sender = part.role in {"send", "call"}
        self._on_said = on_said
        arguments = [msgspec.json.encode(part).decode()]
        super().__init__("bench.mixed_client", arguments, self._said)
        self.name = f"{part.kind.name} {part.role}"

    def _said(self, line: bytes) -> None:
        said = msgspec.json.decode(line, type=Said)
        if said.error:
            said = msgspec.structs.replace(self.said, error=said.error, counts={}, slow=[])
        self.said = said
        self._on_said(self.part, said)

    def begin(self, leg: Leg) -> None:
        """Hand over the next leg."""
        self.write(msgspec.json.encode(leg))

    def check(self) -> None:
        """BenchFailed when it has failed."""
        if self.said.error or self.is_over:
            raise BenchFailed(f"{self.name}: {self.said.error or 'ended'}")


@contextmanager
def client_pool(
    parts: Sequence[Part], on_said: Callable[[Part, Said], None]
) -> Iterator[list[Client]]:
    """Start all; receivers first, so that no message of a topic is too early for one."""
    with ExitStack() as stack:
        clients = []
        for part in parts:
            clients.append(Client(part, on_said))
            stack.callback(clients[-1].end)
        for client in clients:
            client.await_ready()
        yield clients


@contextmanager
def probe(arguments: Sequence[str], take: Callable[[bytes], None]) -> Iterator[Process]:
    """A probe, while the block runs."""
    process = Process("bench.mixed_probe", arguments, take)
    try:
        process.await_ready()
        yield process
    finally:
        process.end()
