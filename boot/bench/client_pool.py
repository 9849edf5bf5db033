"""A client pool: client processes that connect, begin together and report."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

import hms
from hms.boot.bench.client import Report, Task

__all__ = ["BenchFailed", "ClientPool"]

READY_S = 120.0
STOP_S = 30.0
_READ_BYTES = 1 << 16


class BenchFailed(Exception):  # noqa: N818 - reads as what happened
    """A client process did not do what it was asked to."""


class _Client:
    """One process, and what it has printed so far."""

    def __init__(self, task: Task, wrapper: Sequence[str]) -> None:
        self.role = task.role
        command = [*wrapper, sys.executable, "-m", "hms.boot.bench.client"]
        command.append(msgspec.json.encode(task).decode())
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
        )
        self._said = b""

    def line(self, timeout_s: float) -> bytes:
        """The next line that it prints."""
        assert self.process.stdout is not None
        number, until = self.process.stdout.fileno(), time.monotonic() + timeout_s
        while b"\n" not in self._said:
            left = until - time.monotonic()
            if left <= 0 or not select.select([number], [], [], left)[0]:
                raise BenchFailed(f"{self.role} said nothing for {timeout_s:g} s")
            part = os.read(number, _READ_BYTES)
            if not part:
                raise BenchFailed(f"{self.role} ended with {self.process.wait(STOP_S)}")
            self._said += part
        line, _, self._said = self._said.partition(b"\n")
        return line

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def report(self, timeout_s: float) -> Report:
        report = msgspec.json.decode(self.line(timeout_s), type=Report)
        if report.error:
            raise BenchFailed(f"{self.role}: {report.error}")
        return report

    def end(self) -> None:
        """Let it disconnect; end it when it does not."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
            self.process.wait(STOP_S)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class ClientPool:
    """Processes that are ready; go() lets them begin, reports() waits for them."""

    def __init__(self, clients: list[_Client]) -> None:
        self._clients = clients

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [client.process.pid for client in self._clients]

    def go(self) -> None:
        """Begin."""
        for client in self._clients:
            client.go()

    def reports(self, timeout_s: float) -> list[Report]:
        """What each did; BenchFailed."""
        return [client.report(timeout_s) for client in self._clients]


@contextmanager
def client_pool(tasks: Sequence[Task], wrapper: Sequence[str] = ()) -> Iterator[ClientPool]:
    """Start a process for each task; they are ready when the block begins."""
    clients: list[_Client] = []
    try:
        for task in tasks:  # one by one: a fault must not leave those before it running
            clients += [_Client(task, wrapper)]
        for client in clients:
            if (said := client.line(READY_S)) != b"ready":
                report = msgspec.json.decode(said, type=Report)
                raise BenchFailed(f"{client.role}: {report.error}")
        yield ClientPool(clients)
    finally:
        for client in clients:
            client.end()


def _environment() -> dict[str, str]:
    """Ours first, so that a client process finds us."""
    root = str(Path(hms.__file__).resolve().parent.parent)
    before = os.environ.get("PYTHONPATH", "")
    return dict(os.environ, PYTHONPATH=root + (os.pathsep + before if before else ""))
