"""What logins and permissions cost where there are many: the parts of `python -m bench.secure` that
have a bar of their own. Each prints its figure beside its bar.

`back`: clients that come back to a node that was booted anew, without one argon2 verification;
`topics`: publications among 10,000 wildcard subscriptions of 100 users, of which 8 match, beside
the same without permissions; `flood`: W4 while 50 addresses send 10,000 wrong passwords.
"""

import argparse
import getpass
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

import hms
from bench.topics import MATCHING, WholeEngine, other_patterns
from hms.boot.bench.measure import measure
from hms.boot.bench.systems import HmsSystem, Needs, Running
from hms.boot.bench.workloads import WORKLOADS
from hms.boot.descriptors import raise_limit
from hms.boot.security_file import save_security
from hms.engine.effects import Effects
from hms.engine.engine import ConsumerRequest
from hms.server.links.keys import make_key_file
from hms.server.logins.identities import Identities
from hms.server.logins.passwords import hash_password
from hms.server.logins.security_document import (
    RoleEntry,
    SecurityDocument,
    SecuritySettings,
    UserEntry,
)
from hms.testing import node
from hms.testing.ports import free_port
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.client_identity import SECRET_BYTES, uid_of

__all__ = ["BACK_S_MAX", "FLOOD_BAR", "FLOOD_MESSAGES", "TOPICS_BAR", "back", "flood", "topics"]

BACK_S_MAX = 5.0
TOPICS_BAR = 0.95
FLOOD_BAR = 0.90
FLOOD_MESSAGES = 1_000_000
"""So many take W4 as long as the wrong logins take."""
PASSWORD = "correct horse"
WAIT_S = 120.0
SUBSCRIPTIONS, USERS = 10_000, 100
ADDRESSES = 50
IN_TURN = 10
"""Attempts of one address that wait for their answer."""


def _document(**roles: tuple[str, ...]) -> SecurityDocument:
    """A user with a cheap password for each role; the user of this process is the administrator."""
    hashed = hash_password(PASSWORD, time_cost=1, memory_kib=8 << 10)
    users = {name: UserEntry(password=hashed, roles=(name,)) for name in roles}
    own = UserEntry(os_users=(getpass.getuser(),), roles=("admin", "security"))
    granted = {
        name: RoleEntry(permissions=("connect listener:*", *given)) for name, given in roles.items()
    }
    return SecurityDocument(security=SecuritySettings(), user={**users, "bench": own}, role=granted)


# clients that come back


def back(count: int) -> str:
    """The figure; BACK_S_MAX is its bar."""
    raise_limit(8 * count)
    with tempfile.TemporaryDirectory(prefix="hms-secure-") as place:
        path = Path(place) / "security.toml"
        save_security(path, _document(u=()))
        own = {
            "listen": [f"ipc://{place}/s"],
            "security": str(path),
            "max_connections": count + 10,
        }
        config = {"domain": {"MAXSESSION": 4 * count}, "node": {"node1": own}}
        with node(config=config) as running:
            said = {"user": "u", "password": PASSWORD, "connect_timeout_s": WAIT_S}
            with ThreadPoolExecutor(8) as threads:
                made = threads.map(
                    lambda _: hms.connect(running.address, **said),  # type: ignore[arg-type]
                    range(count),
                )
                clients = list(made)
            before = _let_in(running, "PASSWORD")
            running.kill()
            _await(lambda: not any(one.is_connected for one in clients))
            running.boot()
            began = time.monotonic()
            _await(lambda: all(one.is_connected for one in clients))
            took_s = time.monotonic() - began
            hashes = _let_in(running, "PASSWORD") - before
            resumed = _let_in(running, "RESUME")
            for one in clients:
                one.close()
    return (
        f"back: {count} clients are back {took_s:.2f} s after the node was ready "
        f"(bar {BACK_S_MAX:g}); {resumed} by their tokens, {hashes} by a password (bar 0)"
    )


def _let_in(running: Any, mechanism: str) -> int:
    return int(running.log.count(f"is let in by {mechanism}"))


def _await(is_so: Any) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError("the clients did not come back")
        time.sleep(0.01)


# publications among subscriptions of many users


class _Judge:
    """What a node that checks logins answers its engine, of permissions alone."""

    def __init__(self, document: SecurityDocument) -> None:
        self._identities = Identities(document, lambda _: "", lambda _u, _g: ())

    def may_receive(self, user: str, topic: str, queue: str) -> bool:  # noqa: ARG002 - none has one
        """As LoginGate has it."""
        return self._identities.may_receive(user, topic)

    def check_schedule(self, owner: str, name: str, kind: str, place: str, flags: int) -> None:
        """Nothing is scheduled here."""

    def check_retain(self, connection: int, topic: str) -> None:
        """Nothing is retained here."""


class _OfUsers(WholeEngine):
    """The same engine, whose subscriptions belong to 100 users; is_judged: they have permissions,
    of which each grants what is published."""

    def __init__(self, *, is_judged: bool, size: int) -> None:
        super().__init__(0)
        engine, rng = self.engine, random.Random(size)
        texts = [
            *MATCHING["levels"],
            *other_patterns("levels", size - len(MATCHING["levels"]), rng),
        ]
        rng.shuffle(texts)
        for at in range(USERS):
            engine.open_connection(at + 2, at + 2, "", f"u{at}")
            engine.open_session(at + 2, 1, 3, "")
        for at, text in enumerate(texts):
            request = ConsumerRequest(at + 1, 1, "topic", text, 8192)
            engine.open_consumer(at % USERS + 2, request, 1, 1, Effects())
        if is_judged:
            users = {
                f"u{at}": ("subscribe topic:shop", "subscribe topic:none") for at in range(USERS)
            }
            engine.obey(_Judge(_document_of(users)))

    def cold(self) -> float:
        """Publications per second, each the first on its topic since a subscription changed."""
        self.engine.state.space.changed()
        return self.publish(100)


def _document_of(users: dict[str, tuple[str, ...]]) -> SecurityDocument:
    """Without passwords: nobody logs in."""
    return SecurityDocument(
        user={name: UserEntry(roles=(name,)) for name in users},
        role={name: RoleEntry(permissions=given) for name, given in users.items()},
    )


def topics(rounds: int, size: int = SUBSCRIPTIONS) -> str:
    """The figure, of the best of so many rounds in turn; TOPICS_BAR is its bar."""
    pair = {True: _OfUsers(is_judged=True, size=size), False: _OfUsers(is_judged=False, size=size)}
    warm, cold = dict.fromkeys(pair, 0.0), dict.fromkeys(pair, 0.0)
    for _ in range(rounds):
        for is_judged, engine in pair.items():
            cold[is_judged] = max(cold[is_judged], engine.cold())
            warm[is_judged] = max(warm[is_judged], engine.publish())
    return (
        f"topics: {size} wildcard subscriptions of {USERS} users, 8 match: "
        f"{warm[True]:,.0f}/s beside {warm[False]:,.0f}/s without permissions, "
        f"ratio {warm[True] / warm[False]:.2f} (bar {TOPICS_BAR}); "
        f"the first on its topic: ratio {cold[True] / cold[False]:.2f}"
    )


# W4 beside wrong passwords


class _Target(HmsSystem):
    """A secured node at a local socket, where W4 runs, and over TCP; logins: so many wrong ones
    come while it is measured, none for 0."""

    def __init__(self, logins: int) -> None:
        self.name = f"{logins} wrong logins"
        self._logins = logins
        self.attempts = 0

    @contextmanager
    def run(self, folder: Path, needs: Needs) -> Iterator[Running]:
        """Boot it, and let the flood begin."""
        config = self.config(needs)
        own = config["node"]["node1"]
        with tempfile.TemporaryDirectory(prefix="hms-secure-") as place:
            address = f"tcp://127.0.0.1:{free_port()}"
            server = make_key_file(Path(place) / "server.key")
            config["listener"] = {
                "c": {
                    "address": address,
                    "server_key_file": f"{place}/server.key",
                    "client_keys": "ANY",
                }
            }
            own |= {"listen": [f"ipc://{place}/s", "c"], "security": f"{place}/security.toml"}
            save_security(Path(place) / "security.toml", _document(victim=()))
            with node(store=folder / "store", config=config) as running:
                local = Running(f"ipc://{place}/s", (running.pid,))
                if self._logins:
                    with self._flooded(address, server):
                        yield local
                else:
                    yield local

    @contextmanager
    def _flooded(self, address: str, server_key: str) -> Iterator[None]:
        """From the first refusal on."""
        command = [sys.executable, "-m", "bench.secure_logins", address, server_key]
        process = subprocess.Popen([*command, str(self._logins)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield
        finally:
            process.terminate()
            said, _ = process.communicate()
            self.attempts = int(said)


def flood(logins: int, count: int, runs: int) -> str:
    """The figure, of pairs in turn; FLOOD_BAR is its bar."""
    workload = WORKLOADS["W4"].with_count(count)
    quiet, beside = _Target(0), _Target(logins)
    ratios, sent, seconds, node_us = [], 0, 0.0, 0.0
    with tempfile.TemporaryDirectory(prefix="hms-bench-") as folder:
        for _ in range(runs):
            alone = measure(quiet, workload, Path(folder))
            flooded = measure(beside, workload, Path(folder))
            ratios.append(flooded.rate / alone.rate)
            sent, seconds = sent + beside.attempts, seconds + flooded.seconds
            node_us += flooded.system_cpu_us * flooded.messages
            node_us -= alone.system_cpu_us * alone.messages
    middle = sorted(ratios)[len(ratios) // 2]
    return (
        f"flood: W4 of {seconds:.1f} s beside {sent} wrong logins from {ADDRESSES} addresses: "
        f"ratio {middle:.2f} (bar {FLOOD_BAR}), of {', '.join(f'{one:.2f}' for one in ratios)}; "
        f"{node_us / max(1, sent):.0f} µs of the node's processor time a login; "
        "the flood's own work is on this machine too"
    )


class _Attempts:
    """Wrong logins over encrypted connections, each of one address; a process of its own."""

    def __init__(self, address: str, server_key: str) -> None:
        self._address, self._server_key = address, server_key
        self._context = zmq.Context()
        self._context.max_sockets = 4 * ADDRESSES * IN_TURN
        self._poller = zmq.Poller()
        self._sources: dict[Any, int] = {}
        self.refused = 0

    def begin(self, source: int) -> None:
        """A connection from that address says HELLO."""
        one = self._context.socket(zmq.DEALER)
        one.linger = 0
        one.curve_publickey, one.curve_secretkey = zmq.curve_keypair()
        one.curve_serverkey = self._server_key.encode()
        one.connect(self._address.replace("tcp://", f"tcp://127.0.1.{source + 1}:0;"))
        secret = os.urandom(SECRET_BYTES)
        hello = wire.Hello(
            uid_of(secret), secret=secret, mechanisms=("PASSWORD",), protocol=wire.PROTOCOL
        )
        one.send_multipart(frames.frame(frames.Kind.HELLO, wire.encode(hello), 1))
        self._sources[one] = source
        self._poller.register(one, zmq.POLLIN)

    def go_on(self) -> None:
        """Answer what came; a refused connection begins anew."""
        for one, _ in self._poller.poll(100):
            envelope = frames.decode_envelope(one.recv_multipart(), 1 << 20)
            if envelope.kind is frames.Kind.CHALLENGE:
                auth = wire.Auth("PASSWORD", "victim", b"wrong")
                one.send_multipart(frames.frame(frames.Kind.AUTH, wire.encode(auth), 2))
                continue
            self.refused += 1
            self._poller.unregister(one)
            one.close()
            self.begin(self._sources.pop(one))


def _attack(address: str, server_key: str, logins: int, addresses: int) -> None:
    """Wrong logins until there were so many, or the end is asked for; then their count is said."""
    os.nice(19)  # an attacker has machines of its own
    raise_limit(4 * ADDRESSES * IN_TURN)  # two each, and those that are closed behind
    attempts, is_over, is_told = _Attempts(address, server_key), list[bool](), False
    signal.signal(signal.SIGTERM, lambda _n, _f: is_over.append(True))
    for number in range(min(logins, addresses * IN_TURN)):
        attempts.begin(number % addresses)
    while not is_over and attempts.refused < logins:
        attempts.go_on()
        if attempts.refused and not is_told:
            is_told = True
            print("begun", flush=True)
    while not is_over:
        time.sleep(0.05)
    print(attempts.refused, flush=True)
    os._exit(0)  # its sockets are of no use any more


def main() -> None:
    """The flood; see _Target."""
    parser = argparse.ArgumentParser(description="Wrong logins; started by bench.secure.")
    parser.add_argument("address")
    parser.add_argument("server_key")
    parser.add_argument("logins", type=int)
    parser.add_argument("--addresses", type=int, default=ADDRESSES)
    given = parser.parse_args()
    _attack(given.address, given.server_key, given.logins, given.addresses)


if __name__ == "__main__":
    main()
