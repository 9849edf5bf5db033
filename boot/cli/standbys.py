"""hms standby: processes of this machine that wait to take a node over."""

from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.roles import role_of
from hms.boot.supervise import end_node, find

if TYPE_CHECKING:
    from hms.boot.entries import Config, Node

__all__ = ["lag_of", "standby"]

ASK_S = 3.0
"""So long the replica that leads is asked how far behind this one is."""


@click.group()
def standby() -> None:
    """Processes of this machine that wait to take a node over."""


@standby.command(name="list")
@target_options
@table_options
def list_(target: Target) -> None:
    """List those of hms.conf that wait, what they wait for, and how far behind they are."""
    config = _config(target)
    rows = [
        {**said, **lag_of(config, node)}
        for node in target.nodes(config)
        if (said := _waiting(node)) is not None
    ]
    columns = ("node", "pid", "waits_for", "since", "state", "lag_bytes")
    none = "no process of this hms.conf waits"
    show_table(target, rows, empty=none, columns=columns, times=("since",))


@standby.command()
@target_options
def show(target: Target) -> None:
    """Show one that waits: for what, since when, on which store, how far behind it is, and what its
    copy is. Refused for a node that is active, or does not run."""
    config = _config(target)
    node = config.node(target.node_name)
    said = _required(node, "show", "hms status shows it.")
    said |= lag_of(config, node) | _copy(config, node)
    show_values(target, {**said, "log": str(node.log_file)}, times=("since",))


@standby.command()
@target_options
@click.option(
    "--timeout", "timeout_s", type=float, default=60, show_default=True, help="Seconds to wait."
)
def stop(target: Target, timeout_s: float) -> None:
    """End one that waits; refused for a node that is active. One that takes over in that moment
    ends as with hms down. Without --node all that wait are ended."""
    config = _config(target)
    waiting = [node for node in target.nodes(config) if _waiting(node) is not None]
    moves = "hms switchover has another machine lead; hms down stops it."
    for node in waiting or target.nodes(config)[:1]:
        down = "hms down stops it, and one that stands by takes over."
        _required(node, "stop", down if node.replica is None else moves)
        process = end_node(node, is_prompt=False, timeout_s=timeout_s)
        said = {"node": node.name, "pid": process.pid, "stopped": True}
        target.say(f"{node.name} waits no more (process {process.pid})", said)


def _config(target: Target) -> "Config":
    if target.address:
        raise click.UsageError("processes of this machine are found by --config, not by --connect")
    return target.config()


def _waiting(node: "Node") -> dict[str, Any] | None:
    """What a process that waits says of itself."""
    process = find(node)
    told = None if process is None else role_of(node, process.pid)
    if process is None or told is None:
        return None
    return {
        "node": node.name,
        "replica": node.replica or "",
        "pid": process.pid,
        "waits_for": told["waits_for"],
        "since": told["since_ms"],
        "store": told["store"],
    }


def _required(node: "Node", what: str, instead: str) -> dict[str, Any]:
    """NodeNotRunning, and NotSupported for one that is active."""
    from hms.errors.catalogue import NodeNotRunning, NotSupported  # noqa: PLC0415 - not for --help

    said = _waiting(node)
    if said is None and find(node) is None:
        raise NodeNotRunning(node=node.name)
    if said is None:
        feature = f"hms standby {what} for {node.name}, which is active,"
        raise NotSupported(feature=feature, instead=instead)
    return said


def lag_of(config: "Config", node: "Node") -> dict[str, Any]:
    """What the replica that leads knows of this one's copy; fault: why that is not known. Of a
    shared store nothing lags: it is read at the take-over."""
    said: dict[str, Any] = {"state": "", "lag_bytes": None, "lag_s": None, "fault": ""}
    if node.replica is None:
        return {**said, "state": "SHARED"}
    from hms.boot.primary_questions import PrimaryQuestions  # noqa: PLC0415 - not for --help
    from hms.boot.replicating import make_arbiter  # noqa: PLC0415
    from hms.errors.tree import HmsError  # noqa: PLC0415
    from hms.server.replicas.frames import Inspect, Inspected  # noqa: PLC0415

    try:
        arbiter = make_arbiter(config, node)
        try:
            standing = arbiter.read()
            leader = None if standing is None else standing.leader
            if leader is not None and leader.replica == node.replica:  # there is nobody to ask
                text = f"{node.replica} has the lease, and leads when enough copies promise"
                return {**said, "state": "UNKNOWN", "fault": text}
            primary = PrimaryQuestions(arbiter, config, node, ASK_S)
            try:
                seen = primary.ask(Inspect(), Inspected)
            finally:
                primary.close()
        finally:
            arbiter.close()
    except HmsError as fault:
        return {**said, "state": "UNKNOWN", "fault": str(fault)}
    return {**said, "state": seen.state, "lag_bytes": seen.lag_bytes, "lag_s": seen.lag_s}


def _copy(config: "Config", node: "Node") -> dict[str, Any]:
    """Of a replica: whether it applies the log while it waits, and what is damaged of it."""
    if node.replica is None:
        return {}
    from hms.server.replicas.damage import read_damages  # noqa: PLC0415 - not for --help
    from hms.store.journal.disk import REAL_DISK  # noqa: PLC0415

    known = read_damages(REAL_DISK, node.store).values()
    damage = [f"segment {one.segment}, offset {one.offset}: {one.detail}" for one in known]
    return {"standby": config.replicas[node.replica].standby, "damage": damage}
