"""What all peers share: a server process in a folder of its own, on a free port of loopback, and
beside it, where it is called, a process that answers."""

import importlib.util
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from hms.boot.bench.systems import Needs, Running
from hms.testing.ports import free_port

__all__ = ["HOST", "Peer", "free_port", "served"]

HOST = "127.0.0.1"
START_S = 90.0
STOP_S = 30.0
_LOOK_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A system beside HMS. is_synced: whether a confirmed durable send is on the disk; programs and
    modules: what must be installed; workloads: what its client can do."""

    name: str
    driver: str
    durability: str
    is_synced: bool
    programs: tuple[str, ...]
    modules: tuple[str, ...]
    workloads: frozenset[str]
    folders: tuple[str, ...] = ()
    """Where programs are looked for before PATH."""
    settings: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> list[str]:
        """What is not installed."""
        programs = [name for name in self.programs if self.program(name) is None]
        modules = [name for name in self.modules if importlib.util.find_spec(name) is None]
        return [*programs, *(f"Python module {name}" for name in modules)]

    def program(self, name: str) -> str | None:
        """Where a program is."""
        found = [str(path) for one in self.folders for path in Path("/").glob(f"{one}/{name}")]
        return max(found, default=None) or shutil.which(name)

    def boot(self, folder: Path, needs: Needs) -> AbstractContextManager[Running]:
        """Start it with an empty store; a context in which it runs."""
        raise NotImplementedError

    @contextmanager
    def run(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Start it, and who answers calls; that one counts as part of the system."""
        with self.boot(folder, needs) as running:
            if not needs.has_service:
                yield running
                return
            with _echo(self.driver, running) as process:
                yield replace(running, pids=(*running.pids, process.pid))


@contextmanager
def served(
    command: Sequence[str],
    folder: Path,
    port: int,
    *,
    user: str = "",
    stop: int = signal.SIGTERM,
    env: Mapping[str, str] | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server while the block does; it begins when the port answers, and ends with it."""
    how: dict[str, Any] = as_user(user) | {"cwd": folder, "env": {**os.environ, **(env or {})}}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **how,
        )
    try:
        _await_port(process, port, folder)
        yield process
    finally:
        _end(process, stop)


@contextmanager
def _echo(driver: str, running: Running) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the driver that answers each request with its body."""
    options = msgspec.json.encode(dict(running.options)).decode()
    command = [sys.executable, "-m", "bench.peers.echo", driver, running.address, options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        if not select.select([process.stdout], [], [], START_S)[0]:
            raise TimeoutError(f"the service is not ready after {START_S:g} s")
        if process.stdout.readline() != b"ready\n":
            raise ConnectionError(f"the service ended with {process.wait(STOP_S)}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def as_user(name: str) -> dict[str, Any]:
    """Arguments of Popen that run it as another user, where that is allowed and needed."""
    if not name or os.geteuid() != 0:
        return {}
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


def _await_port(process: "subprocess.Popen[bytes]", port: int, folder: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(_LOOK_S)
    said = (folder / "server.log").read_text(errors="replace")[-1000:]
    raise TimeoutError(f"the server does not answer: {said}")


def _end(process: "subprocess.Popen[bytes]", stop: int) -> None:
    """End the server, and what it has started in its session."""
    if process.poll() is None:
        process.send_signal(stop)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
