"""What security costs: `python -m bench.secure` measures, in turn, an open node beside a secured
one at a local socket, and TCP without beside TCP with encryption; then what has a bar of its own
(secure_logins.py): clients that come back, publications for many users, a flood of wrong logins.

    python -m bench.secure                                  # all, five pairs each
    python -m bench.secure --only back                      # 1,000 clients
    python -m bench.secure --only topics
    python -m bench.secure --only tcp                       # or local: all of these pairs
    python -m bench.secure --only flood
    python -m bench.secure --only local --control           # how far chance alone takes a ratio
    python -m bench.secure --runs 1 --count 20000           # all in one short run
"""

import argparse
import getpass
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hms
from bench.secure_logins import FLOOD_MESSAGES, back, flood, topics
from hms.boot.bench.hms_driver import HmsDriver
from hms.boot.bench.load import Load
from hms.boot.bench.pairs import Row, compare, rows_text
from hms.boot.bench.systems import HmsSystem, Needs, Running
from hms.boot.bench.workloads import WORKLOADS, Workload
from hms.boot.security_file import save_security
from hms.server.links.keys import make_key_file
from hms.server.logins.security_document import SecurityDocument, UserEntry
from hms.testing import node
from hms.testing.ports import free_port

__all__ = ["CurveDriver", "main"]

LOCAL = ("W1", "W2", "W3", "W5", "W6", "W8")
NETWORK = ("W1", "W2", "W4r")
LONGER = {"W1": 2, "W3": 4, "W6": 2, "W8": 3}
"""So many times the usual messages: a run of half a second says little of 2 %."""


class CurveDriver(HmsDriver):
    """Over an encrypted connection. Options: server_key, key_file."""

    def __init__(self, address: str, options: dict[str, str]) -> None:
        super().__init__(address, options)
        self._keys = {"server_keys": [options["server_key"]], "key_file": options["key_file"]}

    def _session(self, load: Load) -> Any:
        self._load = load
        connection = self._stack.enter_context(
            hms.connect(self._address, client_name="hms bench", reconnect=False, **self._keys)
        )
        ack = hms.AckMode.CLIENT if load.ack_every else hms.AckMode.AUTO
        self._opened = self._stack.enter_context(connection.session(ack=ack))
        return self._opened


class _Node(HmsSystem):
    """is_local: at a local socket, and not over TCP; is_secured: with logins, and over TCP
    encrypted."""

    def __init__(self, name: str, *, is_local: bool, is_secured: bool) -> None:
        self.name = name
        self._is_local, self._is_secured = is_local, is_secured
        if is_secured and not is_local:
            self.driver = "bench.secure:CurveDriver"

    @contextmanager
    def run(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Boot a node; it is killed at the end, as its store goes too."""
        serve = ["hms.boot.bench.echo"] if needs.has_service else []
        config, options = self.config(needs), {}
        own = config["node"]["node1"]
        with tempfile.TemporaryDirectory(prefix="hms-secure-") as place:
            if self._is_local or self._is_secured:
                own["listen"] = [f"ipc://{place}/s"]
            address = ""
            if self._is_secured:
                own["security"] = f"{place}/security.toml"
                keys = self._keys(config, Path(place)) if not self._is_local else {}
                options, address = keys, config.get("listener", {}).get("c", {}).get("address", "")
                save_security(Path(own["security"]), _document(keys))
            with node(store=folder / "store", config=config, serve=serve) as running:
                known = {word: options[word] for word in ("server_key", "key_file") if options}
                yield Running(address or running.address, (running.pid,), known)

    @staticmethod
    def _keys(config: dict[str, Any], place: Path) -> dict[str, str]:
        server, public = make_key_file(place / "server.key"), make_key_file(place / "c.key")
        address = f"tcp://127.0.0.1:{free_port()}"
        config["listener"] = {
            "c": {"address": address, "server_key_file": str(place / "server.key")}
        }
        config["node"]["node1"]["listen"].append("c")
        return {"server_key": server, "key_file": str(place / "c.key"), "public": public}


def _document(keys: dict[str, str]) -> SecurityDocument:
    """Its user is the administrator, by its process or its key."""
    own = tuple(one for one in [keys.get("public", "")] if one)
    user = UserEntry(os_users=(getpass.getuser(),), keys=own, roles=("admin", "security"))
    return SecurityDocument(user={"bench": user})


def _costs(rows: Sequence[Row]) -> str:
    """What hangs less on who else works on the machine."""
    secured, other = rows
    node = secured.system_cpu_us / other.system_cpu_us
    both = node, secured.clients_cpu_us / other.clients_cpu_us
    half = secured.times_ms.get("p50", 0) / (other.times_ms.get("p50") or 1)
    said = f"processor time of node and clients, to the other's: {both[0]:.2f}, {both[1]:.2f}"
    return said + (f"; median time: {half:.2f}" if half else "")


def _workload(name: str, count: int) -> Workload:
    usual = WORKLOADS[name]
    workload = usual.with_count(LONGER.get(name, 1) * usual.count)
    return workload.shortened(count) if 0 < count < workload.count else workload


PAIRS = {
    "local": (LOCAL, "secured ipc", "open ipc", True),
    "tcp": (NETWORK, "curve tcp", "plain tcp", False),
}


def main(words: list[str] | None = None) -> None:
    """Run it."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m bench.secure", description=__doc__, formatter_class=raw
    )
    parser.add_argument("--runs", type=int, default=5, help="pairs, in turn")
    parser.add_argument(
        "--count", type=int, default=0, help="messages at most, where it is less than the usual"
    )
    parser.add_argument("--only", default="", help="these, such as local,tcp,W2,back,topics,flood")
    parser.add_argument(
        "--control", action="store_true", help="pairs of the same system, which should be level"
    )
    parser.add_argument("--clients", type=int, default=1000, help="those that come back")
    parser.add_argument("--logins", type=int, default=10_000, help="wrong ones, of the flood")
    given = parser.parse_args(words)
    wanted = given.only.split(",") if given.only else [*LOCAL, *NETWORK, "back", "topics", "flood"]
    with tempfile.TemporaryDirectory(prefix="hms-bench-") as folder:
        for kind, (names, first, second, is_local) in PAIRS.items():
            first_name = f"{second} again" if given.control else first
            pair = [
                _Node(first_name, is_local=is_local, is_secured=not given.control),
                _Node(second, is_local=is_local, is_secured=False),
            ]
            for name in names:
                if name in wanted or kind in wanted:
                    workload = _workload(name, given.count)
                    rows = compare(pair, workload, Path(folder), given.runs)
                    print(f"{rows_text(rows)}\n{_costs(rows)}\n", flush=True)
    if "back" in wanted:
        print(back(given.clients), flush=True)
    if "topics" in wanted:
        print(topics(4 * given.runs), flush=True)
    if "flood" in wanted:
        print(flood(given.logins, given.count or FLOOD_MESSAGES, given.runs), flush=True)


if __name__ == "__main__":
    main()
