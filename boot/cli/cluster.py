"""hms cluster: who is there, what moves, and how to empty a node."""

import time
from dataclasses import replace
from typing import Any

import click

from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.errors.catalogue import ConnectionRefused, RequestTimeout

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
            "clock_ahead_s": links[member["node"]].get("clock_ahead_s"),
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


@cluster.command("upgrade-check")
@target_options
def upgrade_check(target: Target) -> None:
    """Releases and store formats of the nodes in hms.conf, and what keeps the next one from being
    upgraded, or the stores from being finalized. Exit code 1 when something does."""
    from hms.errors.tree import HmsError  # noqa: PLC0415 - not for --help

    rows = []
    for node in target.config().nodes.values():
        row: dict[str, Any] = {"node": node.name, "release": "", "format": "", "newest": ""}
        told = Target(target.path, node.listen[0], None, target.is_json)
        try:
            status, found = told.administer("status"), told.administer("cluster.status")
        except HmsError as fault:
            rows.append(row | {"in_the_way": str(fault)})
            continue
        row["release"] = status["version"]
        # a release that cannot raise the format of its store does not say it
        known = status.get("store_format", "older"), status.get("newest_store_format", 0)
        row["format"], row["newest"] = known
        away = [member["node"] for member in found["members"] if not member["is_up"]]
        rows.append(row | {"in_the_way": f"it does not hear {', '.join(away)}" if away else ""})
    newest = [row["newest"] for row in rows if row["newest"] != ""]
    for row in rows:
        if row["newest"] != "" and row["newest"] < max(newest):
            row["in_the_way"] = "upgrade it before any store is finalized"
    show_table(target, rows, empty="there is no node", columns=tuple(rows[0]) if rows else ())
    if any(row["in_the_way"] for row in rows):
        click.get_current_context().exit(1)


@cluster.command()
@click.argument("node", metavar="NODE")
@target_options
@click.option("--off", is_flag=True, help="End it: the node takes messages again.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), default=60, show_default=True)
def drain(target: Target, node: str, off: bool, timeout_s: float) -> None:
    """Move all messages of global queues out of NODE before maintenance; it takes no more until it
    is booted again, or with --off. Exit code 1 when some are left when the time is over."""
    address = target.address or target.config().node(node).listen[0]
    told = replace(target, address=address, node_name=None)
    said = told.administer("cluster.drain", is_on=not off)
    until = time.monotonic() + timeout_s
    while not off and said["left"] and time.monotonic() < until:
        time.sleep(LOOK_S)
        try:
            said = told.administer("cluster.drain", is_on=True)
        except (ConnectionRefused, RequestTimeout):
            if told.left_s:
                raise
    text = f"{node} takes messages again" if off else f"{node} is drained, {said['left']} are left"
    target.say(text, said)
    if not off and said["left"]:
        click.get_current_context().exit(1)
