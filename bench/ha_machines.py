"""A node with several copies of its log on one machine, each in a process and a folder of its own.

With a laboratory of network namespaces each of them, and the etcd, is in one of its own, so that
one may be cut off from the others; clients come over ipc, which no namespace cuts.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import hms
from hms.boot.bench.client_pool import BenchFailed
from hms.boot.config import load
from hms.boot.demo.arbiter import arbiter
from hms.boot.replicating import begin_replicas
from hms.server.links.keys import make_key_file
from hms.testing.nodes import TestNode
from hms.testing.ports import free_port
from hms.testing.toml_text import to_toml
from tests.acceptance.netns_rig import Lab, run

__all__ = ["Group", "group", "wait_for"]

WAIT_S = 120.0
LOOK_S = 0.02
APPLIED_BYTES = 1 << 20
"""So much of the log may be left for a copy to apply, where one fault follows another."""
_NUMBERS = count(1)


def wait_for(is_so: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
    """Return as soon as it is so. BenchFailed."""
    until = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > until:
            raise BenchFailed(f"waited {timeout_s:g} s in vain for {what}")
        time.sleep(LOOK_S)


class Group:
    """The machines of one node, a and on."""

    def __init__(self, machines: list[TestNode], lab: Lab | None) -> None:
        self.machines, self.lab = machines, lab

    @property
    def addresses(self) -> list[str]:
        """Where clients find them."""
        return [one.address for one in self.machines]

    def connect(self, **options: Any) -> Any:
        """A client of all of them."""
        given = {"reconnect_interval_s": 0.05, "connect_timeout_s": WAIT_S, **options}
        return hms.connect(self.addresses, **given)

    def replication(self) -> dict[str, Any]:
        """What the primary says of its copies."""
        with self.connect() as connection:
            found: dict[str, Any] = connection.administer("status")["replication"]
            return found

    @property
    def leader(self) -> TestNode:
        """The machine that leads."""
        return self._named(self.replication()["replica"])

    def _named(self, name: str) -> TestNode:
        return next(one for one in self.machines if one.folder.name == name)

    def boot(self) -> None:
        """All of them; until each counts and has applied the log, as a hot copy does that was not
        started a moment ago."""
        for one in self.machines:
            if not one.is_running:
                one.boot()
        wanted = len(self.machines)
        wait_for(lambda: self._in_sync() == wanted, "all copies")

    def _in_sync(self) -> int:
        found = self.replication()
        return 1 + sum(
            bool(row["is_in_sync"] and row["is_member"])
            and row["to_apply_bytes"] is not None
            and row["to_apply_bytes"] <= APPLIED_BYTES
            for row in found["replicas"]
        )

    def lose(self, one: TestNode) -> None:
        """Its machine is gone: cut off first, so that nobody is told, then killed with all that
        runs there."""
        assert self.lab is not None
        index = 1 + self.machines.index(one)
        self.lab.isolate(index)
        words = ["ip", "netns", "pids", self.lab.space(index)]
        pids = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with suppress(hms.HmsError, ProcessLookupError):
            one.kill()

    def heal(self) -> None:
        """All machines hear one another again."""
        if self.lab is not None:
            self.lab.heal()


@contextmanager
def group(
    folder: Path,
    copies: int,
    config: Mapping[str, Any],
    *,
    lab: Lab | None = None,
    lease_s: float = 3,
    node: Mapping[str, Any] | None = None,
) -> Iterator[Group]:
    """So many copies, all booted. config: of the node, as hms.conf has it; lab: with a namespace
    for each, and one for the etcd."""
    names = "abcdefg"[:copies]
    domain = f"bench{os.getpid()}x{next(_NUMBERS)}"
    replicas: dict[str, dict[str, Any]] = {}
    for index, name in enumerate(names, 1):
        (folder / name).mkdir(parents=True)
        if lab is None:
            replicas[name] = {"address": f"tcp://127.0.0.1:{free_port()}"}
            continue
        key = folder / name / "key"
        known = {"key_file": str(key), "public_key": make_key_file(key)}
        replicas[name] = {"address": f"tcp://{lab.address(index)}:7710", **known}
    with _arbiter(folder, lab, copies + 1) as decided_by:
        made: list[TestNode] = []
        for index, name in enumerate(names, 1):
            own = folder / name
            ipc = {} if lab is None else {"listen": [f"ipc://{own}/node.ipc"]}
            told = {
                **config,
                "domain": {"name": domain},
                "node": {"node1": {**(node or {}), **ipc, "replica": name}},
                "arbiter": {**decided_by, "lease_s": lease_s},
                "replica": replicas,
            }
            prefix = () if lab is None else lab.prefix(index)
            made.append(TestNode(own, own / "store", told, (), (), prefix))
        if lab is None:  # between namespaces clients use sockets of files
            _tell_addresses(made)
        _begin(made[0], lab)
        running = Group(made, lab)
        try:
            running.boot()
            yield running
        finally:
            for one in made:
                if one.is_running:
                    one.resume()
                    one.kill()


def _tell_addresses(machines: list[TestNode]) -> None:
    """Each machine tells clients where the others listen, as the how-to has it."""
    for one in machines:
        told = tomllib.loads(one.config_file.read_text())
        for other in machines:
            told["replica"][other.folder.name]["listen"] = [other.address]
        one.config_file.write_text(to_toml(told))


def _begin(first: TestNode, lab: Lab | None) -> None:
    if lab is None:
        config = load(first.config_file)
        begin_replicas(config, config.node())
        return
    words = [*lab.prefix(1), sys.executable, "-m", "hms.boot", "replica", "init"]
    words += ["--config", str(first.config_file)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchFailed(f"hms replica init: {done.stdout}{done.stderr}")


@contextmanager
def _arbiter(folder: Path, lab: Lab | None, index: int) -> Iterator[dict[str, Any]]:
    if lab is None:
        with arbiter(folder, None) as endpoint:
            yield {"kind": "etcd", "endpoints": [endpoint]}
        return
    host, cert, key = lab.address(index), folder / "etcd.pem", folder / "etcd.key"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30"
    made = [*words.split(), "-subj", "/CN=etcd", "-addext", f"subjectAltName=IP:{host}"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    url, peer = f"https://{host}:2379", f"http://{host}:2380"
    words_of_etcd = [
        *(*lab.prefix(index), shutil.which("etcd") or "etcd", "--data-dir", str(folder / "etcd")),
        *("--name", "one", "--logger", "zap", "--cert-file", str(cert), "--key-file", str(key)),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"one={peer}", "--election-timeout", "100"),
        *("--heartbeat-interval", "20"),
    ]
    with (folder / "etcd.log").open("ab") as log:
        process = subprocess.Popen(words_of_etcd, stdout=log, stderr=log, start_new_session=True)
    try:
        run("netns", "exec", lab.space(index), "true")
        probe = [*lab.prefix(index), "bash", "-c", f"exec 3<>/dev/tcp/{host}/2379"]
        wait_for(
            lambda: subprocess.run(probe, capture_output=True, check=False).returncode == 0,
            "the etcd",
        )
        yield {"kind": "etcd", "endpoints": [url], "ca_file": str(cert)}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
