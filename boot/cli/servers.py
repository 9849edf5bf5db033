"""hms server and hms service: server processes, what they offer, and how it goes."""

import re
import threading
import time
from typing import Any

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, target_options
from hms.boot.counts import counted
from hms.errors.catalogue import RequestTimeout, ServerNotFound, ServerRestartFailed, TpSecurity

__all__ = ["restarted", "server", "service"]

LOOK_S = 0.1
_SUPERVISED = re.compile(r":\d+$")
"""How a server that the node started names itself: NAME:PID."""


@click.group()
def service() -> None:
    """What services are offered, and how their calls go."""


@service.command("list")
@target_options
@table_options
def list_services(target: Target) -> None:
    """The services with servers, counts, rates, latencies in ms, and the last error."""
    columns = ("name", "servers", "calls", "failed", "p95_ms", "last_error")
    found = target.administer("service.list")
    show_table(target, found, empty="no service is offered", columns=columns)


@click.group()
def server() -> None:
    """List server processes, start them anew, have more or fewer of them."""


@server.command("list")
@target_options
@table_options
def list_servers(target: Target) -> None:
    """The servers of hms.conf with their processes, restarts and faults, and those that were
    started by hand with hms serve."""
    with target.connection() as connection:
        found = connection.administer("server.list")
        if not target.is_json:
            found = [{**row, "started": "by the node"} for row in found] + _by_hand(connection)
    columns = ("name", "started", "module", "pids", "restarts", "fault")
    show_table(target, found, empty="there is no server", columns=columns)


def _by_hand(connection: Any) -> list[dict[str, Any]]:
    """Servers that the node did not start, as far as one may see clients."""
    try:
        clients = connection.administer("client.list", {})
    except TpSecurity:
        return []
    found = [one["client_name"] for one in clients if one["is_server"]]
    hand = [name for name in found if not _SUPERVISED.search(name)]
    return [{"name": "-", "started": "by hand", "module": name} for name in hand]


@server.command()
@target_options
@click.argument("name")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), default=120, show_default=True)
def restart(target: Target, name: str, timeout_s: float) -> None:
    """Start the processes of a server anew, with new code, one by one; no call is refused.

    A new process serves before an old one finishes its call and ends. When a new one cannot begin,
    the old ones stay.
    """
    before, found = restarted(target, name, timeout_s)
    new = [pid for pid in found["pids"] if pid not in before["pids"]]  # an old one may still end
    pids = ", ".join(map(str, new))
    target.say(f"{name}: restarted, now process {pids}", {"name": name, "pids": new})


@server.command()
@target_options
@click.argument("name")
@click.argument("count", type=click.IntRange(0, 256))
def scale(target: Target, name: str, count: int) -> None:
    """Have COUNT processes of a server, until the node stops; the load may add more, up to MAX."""
    target.administer("server.scale", name=name, count=count)
    target.say(
        f"{name}: {counted(count, 'process', 'processes')} from now on",
        {"name": name, "count": count},
    )


def restarted(target: Target, name: str, timeout_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Have the processes of a server started anew; how it was before, and is."""
    with target.connection() as connection:
        before = _find(connection, name)
        connection.requests.begin_within(target.left_s)
        connection.administer("server.restart", {"name": name})
        until = min(target.until, time.monotonic() + timeout_s)
        return before, _await(connection, name, before, until, timeout_s)


def _find(connection: Any, name: str) -> dict[str, Any]:
    for found in connection.administer("server.list"):
        if found["name"] == name:
            return dict(found)
    raise ServerNotFound(server=name)


def _await(
    connection: Any, name: str, before: dict[str, Any], until: float, timeout_s: float
) -> dict[str, Any]:
    """The server when it was restarted; ServerRestartFailed, RequestTimeout."""
    pause = threading.Event()
    while (now := time.monotonic()) < until:
        connection.requests.begin_within(until - now)
        found = _find(connection, name)
        if found["restarted"] > before["restarted"]:
            return found
        if found["restart_faults"] > before["restart_faults"]:
            raise ServerRestartFailed(server=name, detail=found["restart_fault"])
        pause.wait(LOOK_S)
    raise RequestTimeout(what=f"server restart {name}", timeout_s=timeout_s)
