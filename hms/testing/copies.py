"""Copies of a node's log for a test: who leads, and how another one comes to."""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from hms.client.connection import Connection, connect
from hms.errors.catalogue import BootFailed, ConnectionLost, InvalidArgument, RequestTimeout

__all__ = [
    "COPIES_MAX",
    "Copy",
    "arbiter_section",
    "await_copies",
    "await_successor",
    "begin_copies",
    "fresh_domain",
    "leading",
    "move",
]

COPIES_MAX: Final = 7
WAIT_S: Final = 120.0
"""A test's machine may be busy."""
LOOK_S: Final = 0.05


class Copy(Protocol):
    """One of them, in a process of its own."""

    @property
    def address(self) -> str:
        """Where clients find it."""

    @property
    def replica(self) -> str:
        """Its name."""

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""


C = TypeVar("C", bound=Copy)


def arbiter_section(given: str) -> dict[str, Any]:
    """[arbiter] for one that runs already, by its address. InvalidArgument."""
    if given.startswith(("http://", "https://")):
        return {"kind": "etcd", "endpoints": given.split(",")}
    if given.startswith(("postgresql://", "postgres://")):
        return {"kind": "postgresql", "endpoints": [given]}
    detail = (
        f'{given!r} is neither "etcd", for one of its own, nor the address of an etcd (http://) or '
        "of a PostgreSQL (postgresql://). Copies are processes: they share no memory"
    )
    raise InvalidArgument(what="arbiter", detail=detail)


def fresh_domain() -> str:
    """A name under which no arbiter knows anything."""
    return f"test-{uuid.uuid4().hex[:16]}"


def begin_copies(config_file: Path, environment: dict[str, str]) -> None:
    """Say hms replica init, once, before any of them is booted. BootFailed."""
    command = [sys.executable, "-P", "-m", "hms.boot", "replica", "init"]
    command += ["--config", str(config_file)]
    done = subprocess.run(  # noqa: S603 - our own command
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    if done.returncode:
        raise BootFailed(reason=(done.stderr or done.stdout).strip(), log=str(config_file))


def connected(copies: Sequence[Copy]) -> Connection:
    """To the one that leads; it waits for a take-over."""
    addresses = [one.address for one in copies]
    return connect(
        addresses,
        profile="",
        reconnect_interval_s=LOOK_S,
        connect_timeout_s=WAIT_S,
        request_timeout_s=WAIT_S,
    )


def replication(copies: Sequence[Copy]) -> dict[str, Any]:
    """What the one that leads says of them."""
    with connected(copies) as connection:
        found: dict[str, Any] = connection.administer("status")["replication"]
        return found


def leading(copies: Sequence[C]) -> C:
    """The one that leads; it waits for a take-over."""
    name = replication(copies)["replica"]
    return next(one for one in copies if one.replica == name)


def await_copies(copies: Sequence[Copy]) -> None:
    """Until all that run have the whole log and count. RequestTimeout."""

    def have_all() -> bool:
        running = {one.replica for one in copies if one.is_running}
        return running <= _that_count(replication(copies))

    _wait(have_all, "the wait until all copies have everything")


def await_successor(copies: Sequence[Copy], to: Copy | None = None) -> None:
    """Until that one, or any other, could take over from the one that leads. RequestTimeout."""

    def is_there() -> bool:
        said = replication(copies)
        fit = _that_count(said) - {said["replica"]}
        return bool(fit) if to is None else to.replica in {*fit, said["replica"]}

    whom = "another copy" if to is None else to.replica
    _wait(is_there, f"the wait until {whom} has everything")


def _that_count(said: dict[str, Any]) -> set[str]:
    """Names of those with the whole log, with the one that leads."""
    rows = (row for row in said["replicas"] if row["is_in_sync"] and row["is_member"])
    return {said["replica"], *(row["replica"] for row in rows)}


def move(copies: Sequence[C], to: C | None) -> C:
    """A planned move; the one that leads then. SwitchoverRefused."""
    before = replication(copies)["epoch"]
    with connected(copies) as connection, suppress(ConnectionLost):  # it may end before it is read
        connection.administer("replica.switchover", {} if to is None else {"to": to.replica})
    _wait(lambda: bool(replication(copies)["epoch"] > before), "the wait until another copy leads")
    return leading(copies)


def _wait(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > until:
            raise RequestTimeout(what=what, timeout_s=WAIT_S)
        time.sleep(LOOK_S)
