"""hms arbiter: what decides who leads, looked at and tried."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from hms.boot.cli.target import Target, show_table, show_values, target_options

if TYPE_CHECKING:
    from hms.boot.entries import Config, Node
    from hms.server.arbiter.examination import Finding

__all__ = ["arbiter"]

FAILED, WARNED = 1, 3


@click.group()
def arbiter() -> None:
    """The arbiter, which decides who of a node's copies leads."""


@arbiter.command()
@target_options
def status(target: Target) -> None:
    """Show each endpoint, its version, how long a read takes, how it keeps what it has, and who
    leads by it. Exit code 1: it does not answer."""
    from hms.boot.arbiter_examination import endpoints_of  # noqa: PLC0415 - not for --help

    config = _config(target)
    rows = [msgspec.to_builtins(one) for one in endpoints_of(config)]
    nodes = [_led(config, one) for one in target.nodes(config) if one.replica is not None]
    assert config.arbiter is not None
    said = {"kind": config.arbiter.kind, "lease_s": config.arbiter.lease_s, "nodes": nodes}
    if target.is_json:
        show_values(target, {**said, "endpoints": rows})
    else:
        show_values(target, said)
        click.echo()
        show_table(target, rows, empty="")
    if all(row["fault"] for row in rows) or any(one["fault"] for one in nodes):
        click.get_current_context().exit(FAILED)


@arbiter.command()
@target_options
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Reads and writes that are timed.",
)
def check(target: Target, count: int) -> None:
    """Try the arbiter from this machine, each endpoint: reached, TLS, version, clock, latency, and
    whether a key of the check's own is kept, read back and compared. The node's keys stay as they
    are, and the check's is gone afterwards.

    Exit code 0: all well; 1: something failed; 3: there are warnings.
    """
    from hms.boot.arbiter_examination import findings_of  # noqa: PLC0415 - not for --help

    config = _config(target)
    found = list(findings_of(config, config.node(target.node_name), count))
    _tell(target, found)
    verdicts = {one.verdict.value for one in found}
    if "fail" in verdicts:
        click.get_current_context().exit(FAILED)
    if "warn" in verdicts:
        click.get_current_context().exit(WARNED)


def _config(target: Target) -> "Config":
    from hms.boot.arbiter_examination import require_arbiter  # noqa: PLC0415 - not for --help

    if target.address:
        raise click.UsageError("the arbiter is asked from this machine, by --config")
    config = target.config()
    require_arbiter(config)
    return config


def _led(config: "Config", node: "Node") -> dict[str, Any]:
    """Who leads a node by the arbiter; fault: why that is not known."""
    from hms.boot.replicating import endpoint_of, make_arbiter  # noqa: PLC0415 - not for --help
    from hms.errors.catalogue import ReplicasNotBegun  # noqa: PLC0415
    from hms.errors.tree import HmsError  # noqa: PLC0415

    said: dict[str, Any] = {"node": node.name, "primary": "", "epoch": 0, "version": 0, "fault": ""}
    try:
        asked = make_arbiter(config, node)
        try:
            standing = asked.read()
        finally:
            asked.close()
    except HmsError as fault:
        return {**said, "fault": str(fault)}
    if standing is None:
        none = ReplicasNotBegun(endpoint=endpoint_of(config), node=node.name)
        return {**said, "fault": str(none)}
    now, leader = standing.configuration, standing.leader
    primary = "" if leader is None else leader.replica
    return {**said, "primary": primary, "epoch": now.epoch, "version": now.version}


def _tell(target: Target, found: "list[Finding]") -> None:
    if target.is_json:
        show_table(target, [msgspec.to_builtins(one) for one in found], empty="")
        return
    for one in found:
        click.echo(f"{one.verdict:5} {one.check:16} {one.endpoint}: {one.value}")
        if one.why:
            click.echo(f"      {one.why}. {one.cure}")
