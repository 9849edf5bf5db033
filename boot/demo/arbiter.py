"""An arbiter for the demonstration: the etcd that is named, or one of its own."""

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hms.errors.catalogue import ArbiterUnavailable
from hms.testing.ports import free_port

__all__ = ["arbiter"]

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0


@contextmanager
def arbiter(folder: Path, given: str | None) -> Iterator[str]:
    """The address of an etcd. ArbiterUnavailable where none is named and none is installed."""
    if given is not None:
        yield given
        return
    program = shutil.which("etcd")
    if program is None:
        detail = "no etcd is installed here (Debian: apt install etcd-server), and none is named"
        raise ArbiterUnavailable(endpoint="--arbiter", detail=detail)
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [program, "--data-dir", str(folder / "etcd"), "--name", "one", "--logger", "zap"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"one={peer}"]
    with (folder / "etcd.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own words
    try:
        _await_health(client, process)
        yield client
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _await_health(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_TIMEOUT_S
    while not _is_healthy(url):
        if process.poll() is not None or time.monotonic() > until:
            raise ArbiterUnavailable(endpoint=url, detail="the etcd of the demonstration is not up")
        time.sleep(0.1)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as said:  # noqa: S310 - our own URL
            return b"true" in said.read()
    except OSError:
        return False
