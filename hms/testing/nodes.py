"""A real node for a test: configuration, process, readiness, signals."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from importlib import resources
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from hms.errors.catalogue import BootFailed, InvalidArgument, NodeNotRunning, NodeStillStopping
from hms.testing import copies
from hms.testing.clusters import make_cluster, node_names
from hms.testing.etcd import TestEtcd
from hms.testing.ports import free_port
from hms.testing.toml_text import to_toml

BOOT_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 90.0
"""drain_s is 30 s, servers and log come behind it, and a test's machine may be busy."""
HEARTBEAT_S = 5.0
ConfigSource = Mapping[str, Any] | str | Path | None


class TestNode:
    """A node in a process of its own; the same store and port over kill() and boot()."""

    __test__ = False  # pytest would take the name for a test class

    def __init__(
        self,
        folder: Path,
        store: Path,
        config: ConfigSource,
        serve: Sequence[str],
        python_path: Sequence[str | Path],
        command_prefix: Sequence[str],
        nodes: int = 1,
    ) -> None:
        self.folder = folder
        self.store = store
        self.log_file = folder / "node.log"
        self.config_file = folder / "hms.conf"
        self._prefix = list(command_prefix)
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.nodes = [self]
        """All nodes of the cluster, this one first."""
        self.replicas = [self]
        """All copies of its log, this one first."""
        self.replica = ""
        """Its name among them."""
        self.arbiter: TestEtcd | None = None
        """Who decides which of them leads: the etcd of this test, if it has one of its own."""
        settings = _read(config)
        names = node_names(settings, nodes)
        if nodes > 1:
            make_cluster(settings, names, [free_port() for _ in names])
        self._name = names[0]
        stores = [store, *[folder / name / "store" for name in names[1:]]]
        sections = [settings["node"][name] for name in names]
        runtimes = [folder / "run", *[folder / name / "run" for name in names[1:]]]
        addresses = [_place(*one) for one in zip(sections, stores, runtimes, strict=True)]
        self.address = addresses[0]
        _add_servers(settings, serve, python_path)
        self.config_file.write_text(to_toml(settings))
        self.nodes += [_sibling(self, *one) for one in zip(names[1:], addresses[1:], strict=True)]

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self._name

    # life

    def boot(self, *, warm: bool | None = None, standby: bool = False) -> None:
        """Start the process and return when it is ready, or stands by; BootFailed tells why it does
        not."""
        if self._process is not None and self._process.poll() is None:
            raise BootFailed(
                reason=f"it runs already as process {self.pid}", log=str(self.log_file)
            )
        reader, writer = os.pipe()
        command = [*self._prefix, sys.executable, "-P", "-m", "hms.boot.node"]
        command += ["--config", str(self.config_file), "--node", self._name]
        command += ["--ready-fd", str(writer)]
        command += [] if warm is None else ["--warm" if warm else "--cold"]
        command += ["--standby"] if standby else []
        try:
            append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with os.fdopen(os.open(self.log_file, append, 0o640), "ab") as log:
                self._process = subprocess.Popen(  # noqa: S603 - our own command
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[writer],
                    env=_environment(),
                    start_new_session=True,
                )
            self._pid = self._process.pid  # a boot that is interrupted is ended by it
            os.close(writer)
            writer = -1
            self._await_ready(reader)
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if self._prefix:
            self._pid = _node_pid(self._process.pid)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM: drain and stop; the exit code. NodeStillStopping: it goes on."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """SIGKILL: a crash."""
        self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def pause(self) -> None:
        """SIGSTOP: alive, and silent."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the process has ended; its exit code, or subprocess.TimeoutExpired."""
        if self._process is None:
            raise NodeNotRunning(node=self._name)
        return self._process.wait(timeout_s)

    # copies of its log

    @property
    def addresses(self) -> list[str]:
        """Of all copies: what a client is to be given."""
        return [one.address for one in self.replicas]

    @property
    def primary(self) -> "TestNode":
        """The copy that leads; this node, where there is no other. It waits for a take-over."""
        return self if len(self.replicas) == 1 else copies.leading(self.replicas)

    def kill_primary(self) -> "TestNode":
        """SIGKILL for the copy that leads, when another one has everything; the one that was
        killed. boot() has it follow."""
        copies.await_successor(self.replicas)
        killed = self.primary
        killed.kill()
        return killed

    def switchover(self, to: "TestNode | None" = None) -> "TestNode":
        """A planned move to that copy, or to the one that is least behind, when it has everything;
        the one that leads then. SwitchoverRefused, as for an operator."""
        copies.await_successor(self.replicas, to)
        return copies.move(self.replicas, to)

    def wait_for_copies(self) -> None:
        """Until all copies that run have everything and count. RequestTimeout."""
        copies.await_copies(self.replicas)

    # looking

    @property
    def pid(self) -> int:
        """The node's process id, also under a command_prefix."""
        if not self.is_running:
            raise NodeNotRunning(node=self._name)
        return self._pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the node has written to its log so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    # inside

    def _await_ready(self, reader: int) -> None:
        assert self._process is not None
        said, until = b"", time.monotonic() + BOOT_TIMEOUT_S
        poll = select.poll()  # select() refuses a descriptor above 1023
        poll.register(reader, select.POLLIN)
        while b"\n" not in said or said.startswith(b"progress "):
            if not poll.poll(max(until - time.monotonic(), 0) * 1000):
                self._process.kill()
                self._process.wait()
                raise BootFailed(
                    reason=f"not ready after {BOOT_TIMEOUT_S} s", log=str(self.log_file)
                )
            part = os.read(reader, 65536)
            if not part:
                break
            said = _without_progress(said + part)
            until = time.monotonic() + BOOT_TIMEOUT_S
        word = said.decode(errors="replace").strip()
        if word not in ("ready", "standby"):
            code = self._ended(STOP_TIMEOUT_S)
            reason = word.removeprefix("failed ") or f"exit code {code}: {self.log[-2000:]}"
            raise BootFailed(reason=reason, log=str(self.log_file))

    def _end(self, number: int, timeout_s: float) -> int:
        if self._process is None or self._process.poll() is not None:
            return self._process.returncode if self._process is not None else 0
        with suppress(ProcessLookupError):  # the program that runs it has still to end
            os.kill(self._pid, number)
        return self._ended(timeout_s)

    def _ended(self, timeout_s: float) -> int:
        """The exit code of one that was told to stop."""
        try:
            return self.wait(timeout_s)
        except TimeoutExpired as fault:
            raise NodeStillStopping(node=self._name, timeout_s=timeout_s, pid=self._pid) from fault


def _without_progress(said: bytes) -> bytes:
    """What a booting node told besides how much of its store it has read."""
    while said.startswith(b"progress ") and b"\n" in said:
        said = said.partition(b"\n")[2]
    return said


@contextmanager
def node(
    store: str | Path | None = None,
    config: ConfigSource = None,
    serve: Sequence[str] = (),
    python_path: Sequence[str | Path] = (),
    command_prefix: Sequence[str] = (),
    *,
    warm: bool | None = None,
    nodes: int = 1,
    replicas: int = 1,
    arbiter: str = "etcd",
) -> Iterator[TestNode]:
    """Boot a real node on a free loopback port and end it with the block.

    store: its directory, a private one if not given; config: TOML text, a file, to whose folder
    its paths are relative, or nested dictionaries, the sample's destinations if not given; serve:
    modules with services, each run in a server process; python_path: where those are found;
    command_prefix: runs the node under another program; nodes: so many form a cluster, `.nodes` has
    them all, the first one is given; replicas: so many copies of its log, each in a process and a
    folder of its own, `.replicas` has them all, the first one is given; arbiter: who decides which
    of them leads, "etcd" for one of its own, or the address of an etcd or a PostgreSQL that runs.
    Messages have up to 1 MiB where config says neither segment_bytes nor max_message_bytes.
    """
    # Servers of a node that was killed may write there until they notice.
    with (
        tempfile.TemporaryDirectory(prefix="hms-test-", ignore_cleanup_errors=True) as folder,
        ExitStack() as ends,
    ):
        where = Path(folder)
        given = serve, [Path(one).absolute() for one in python_path], command_prefix
        own = Path(store).absolute() if store is not None else where / "store"
        if replicas == 1:
            running = TestNode(where, own, config, *given, nodes)
        else:
            _check_copies(nodes, replicas)
            running = _copies(where, own, config, given, replicas, arbiter, ends)
        try:
            for one in (*running.nodes, *running.replicas[1:]):
                one.boot(warm=warm)
            if running.replicas[1:]:
                running.wait_for_copies()
            yield running
        finally:
            for one in (*running.nodes, *running.replicas[1:]):
                with suppress(NodeNotRunning, ProcessLookupError):  # it may end just now
                    one.resume()
                one.kill()


def _check_copies(nodes: int, replicas: int) -> None:
    detail = ""
    if not 1 < replicas <= copies.COPIES_MAX:
        detail = f"{replicas}; a node has 2 to {copies.COPIES_MAX}, or 1 without copies"
    elif nodes > 1:
        detail = f"{replicas}, with {nodes} nodes: copies are of one node here"
    if detail:
        raise InvalidArgument(what="replicas", detail=detail)


def _copies(
    folder: Path,
    store: Path,
    config: ConfigSource,
    given: tuple[Sequence[str], Sequence[Path], Sequence[str]],
    count: int,
    arbiter: str,
    ends: ExitStack,
) -> TestNode:
    """So many copies of one node, the first of which has begun. The store of each is beside that of
    the first one."""
    etcd = TestEtcd(folder) if arbiter == "etcd" else None
    section = copies.arbiter_section(arbiter if etcd is None else etcd.url)
    settings = _read(config)
    settings["arbiter"] = {**settings.get("arbiter", {}), **section}
    if etcd is None:  # it may know other copies; with one of its own a store keeps its node
        settings["domain"] = {"name": copies.fresh_domain(), **settings.get("domain", {})}
    names = "abcdefg"[:count]
    made = [_copy_of(folder, store, settings, given, name) for name in names]
    addresses = {one.replica: one.address for one in made}
    links = {name: f"tcp://127.0.0.1:{free_port()}" for name in names}
    for one in made:
        told = tomllib.loads(one.config_file.read_text())
        told["replica"] = {
            name: {"address": links[name], "listen": [addresses[name]]} for name in names
        }
        one.config_file.write_text(to_toml(told))
        one.replicas, one.arbiter = made, etcd
    if etcd is not None:
        ends.callback(etcd.stop)
        etcd.start()
    copies.begin_copies(made[0].config_file, _environment())
    return made[0]


def _copy_of(
    folder: Path,
    store: Path,
    settings: dict[str, Any],
    given: tuple[Sequence[str], Sequence[Path], Sequence[str]],
    name: str,
) -> TestNode:
    own = folder / name
    own.mkdir()
    title = node_names(settings, 1)[0]
    told = {**settings, "node": {title: {**settings["node"][title], "replica": name}}}
    place = store if name == "a" else store.with_name(f"{store.name}-{name}")
    made = TestNode(own, place, _copy(told), *given)
    made.replica = name
    return made


_SMALL = {
    "max_message_bytes": "1 MiB",
    "max_transaction_bytes": "2 MiB",
    "segment_bytes": "8 MiB",
}


PATH_KEYS = frozenset(
    {
        *("security", "store", "backups", "runtime", "log_file", "rules"),
        *("server_key_file", "link_key_file", "key_file", "ca_file", "cert_file"),
    }
)
"""Keys of hms.conf that are one path; hms.boot knows them, and is known to nobody."""


def _read(config: ConfigSource) -> dict[str, Any]:
    if config is None:
        text = resources.files("hms.boot").joinpath("sample.conf").read_text(encoding="utf-8")
        data = tomllib.loads(text)
        return {"hms": data.get("hms", {})}
    if isinstance(config, Mapping):
        return _copy(config)
    if isinstance(config, str) and ("\n" in config or "[" in config or not config):
        return tomllib.loads(config)
    file = Path(config).absolute()
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    _make_absolute(data, file.parent)
    for server in data.get("server", {}).values():
        server["python_path"] = [str(file.parent / p) for p in server.get("python_path", ["."])]
    return data


def _make_absolute(settings: dict[str, Any], folder: Path) -> None:
    """The paths of a file are relative to its folder."""
    for key, value in settings.items():
        if isinstance(value, dict):
            _make_absolute(value, folder)
        elif key in PATH_KEYS and isinstance(value, str):
            settings[key] = str(folder / value)


def _copy(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in data.items()}


def _place(node: dict[str, Any], store: Path, runtime: Path) -> str:
    """Where one node listens and keeps what it has; its address."""
    listen = [one for one in node.get("listen", ()) if one.startswith("ipc://")]
    address = listen[0] if listen else f"tcp://127.0.0.1:{free_port()}"
    listeners = [one for one in node.get("listen", ()) if "://" not in one]
    node |= {"listen": [address, *listeners], "store": str(store), "runtime": str(runtime)}
    node.setdefault("heartbeat_s", HEARTBEAT_S)
    if "segment_bytes" not in node and "max_message_bytes" not in node:
        node |= _SMALL
    return address


def _sibling(first: TestNode, name: str, address: str) -> TestNode:
    """Another node of the same configuration."""
    made = copy(first)
    made._name, made.address = name, address  # noqa: SLF001 - its own class
    made.log_file = first.folder / f"{name}.log"
    made.store = first.folder / name / "store"
    made.nodes = [made]
    return made


def _add_servers(
    settings: dict[str, Any], serve: Sequence[str], python_path: Sequence[str | Path]
) -> None:
    servers = settings.setdefault("server", {})
    for i, module in enumerate(serve, 1):
        servers[f"test{i}"] = {"module": module, "MIN": 1, "MAX": 1}
    for server in servers.values():
        paths = [*map(str, python_path), *server.get("python_path", [])]
        if paths:
            server["python_path"] = paths


def _environment() -> dict[str, str]:
    """Ours first; the user's own path is for the server processes."""
    env = dict(os.environ)
    users = env.pop("PYTHONPATH", None)
    if users is not None:
        env.setdefault("HMS_USER_PYTHONPATH", users)
    env["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent.parent)
    env.pop("COVERAGE_PROCESS_START", None)
    return env


def _node_pid(parent: int) -> int:
    """The node among the descendants of the program that runs it."""
    waiting = [parent]
    while waiting:
        pid = waiting.pop()
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            continue
        if b"hms.boot.node" in words and b"python" in Path(words[0].decode()).name.encode():
            return pid
        waiting += [int(child) for child in children]
    return parent
