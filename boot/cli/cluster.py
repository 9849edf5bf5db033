"""hms cluster: who is there, what moves, and how to empty a node."""

import time
from typing import Any

import click

from hms.boot.cli.target import Target, show_table, show_values, target_options

__all__ = ["cluster"]

LOOK_S = 0.2


@click.group()
def cluster() -> None:
    """The nodes that act as one."""


@cluster.command()
@target_options
def status(target: Target) -> None:
    """Members, lag, counts, moves and last errors, as one node sees them."""
    found = target.administer("cluster.status")
    if target.is_json:
        show_values(target, found)
        return
    alone = {key: value for key, value in found.items() if not isinstance(value, list)}
    show_values(target, alone)
    click.echo()
    show_table(target, _members(found), empty="there is no other node")
    click.echo()
    show_table(target, _queues(found), empty="there is no global queue")


def _members(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Links and moves of each other node on one line."""
    links = {link["node"]: link for link in found["links"]}
    return [
        {
            "node": member["node"],
            "presence": links[member["node"]]["presence"],
            "heard_s_ago": links[member["node"]]["heard_s_ago"],
            "offered": member["offered"],
            "lag_ms": member["lag_ms"],
            "moved_in": member["moved_in"],
            "moved_out": member["moved_out"],
            "refused": member["refused"] + links[member["node"]]["refused"],
            "last_error": links[member["node"]]["last_error"] or member["last_error"],
        }
        for member in found["members"]
    ]


def _queues(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**queue, "elsewhere": {n: q["length"] for n, q in queue["elsewhere"].items()}}
        for queue in found["queues"]
    ]


@cluster.command()
@click.argument("node", metavar="NODE")
@target_options
@click.option("--off", is_flag=True, help="End it: the node takes messages again.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), default=60, show_default=True)
def drain(target: Target, node: str, off: bool, timeout_s: float) -> None:
    """Move all messages of global queues out of NODE before maintenance; it takes no more until it
    is booted again, or with --off. Exit code 1 when some are left when the time is over."""
    address = target.address or target.config().node(node).listen[0]
    told = Target(target.path, address, None, target.is_json)
    said = told.administer("cluster.drain", is_on=not off)
    until = time.monotonic() + timeout_s
    while not off and said["left"] and time.monotonic() < until:
        time.sleep(LOOK_S)
        said = told.administer("cluster.drain", is_on=True)
    text = f"{node} takes messages again" if off else f"{node} is drained, {said['left']} are left"
    target.say(text, said)
    if not off and said["left"]:
        click.get_current_context().exit(1)
