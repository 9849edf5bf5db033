"""hms replica verify: this machine's copy beside that of the replica that leads."""

from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.replica_repair import check_there, node_with_replicas, own_copy
from hms.boot.cli.target import Target, target_options
from hms.boot.counts import counted

if TYPE_CHECKING:
    from hms.boot.copy_comparison import Compared

__all__ = ["verify"]

DIFFERS = 4
"""As hms store verify ends for what is damaged."""


@click.command()
@target_options
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=30,
    show_default=True,
    help="Seconds to wait for each answer.",
)
def verify(target: Target, timeout_s: float) -> None:
    """Compare this machine's copy with that of the replica that leads, by hash, segment by segment,
    while both work. Say it at the machine of each replica that follows. Changes nothing.

    Exit code 0: they are the same; 4: they differ, or this one lacks something.
    """
    from hms.boot.copy_comparison import compare  # noqa: PLC0415 - not for --help
    from hms.boot.primary_questions import PrimaryQuestions  # noqa: PLC0415
    from hms.boot.replicating import make_arbiter  # noqa: PLC0415

    config, node = node_with_replicas(target)
    check_there(node)
    arbiter = make_arbiter(config, node)
    try:
        primary = PrimaryQuestions(arbiter, config, node, timeout_s)
        try:
            found = compare(primary, node.store)
        finally:
            primary.close()
        standing = arbiter.read()
    finally:
        arbiter.close()
    own: dict[str, Any] = {} if standing is None else own_copy(node, standing.configuration)
    said = {"node": node.name, "replica": node.replica, **own, **found.described()}
    target.say("\n".join(_lines(str(node.replica), found)), said)
    if not found.is_same:
        click.get_current_context().exit(DIFFERS)


def _lines(me: str, found: "Compared") -> list[str]:
    what = f"{counted(found.segments, 'segment')}, {found.bytes >> 20} MiB"
    beside = f"{found.primary}, which leads in epoch {found.epoch}"
    if found.is_same:
        return [f"the copy of {me} is that of {beside}: {what} are the same"]
    lines = [f"the copy of {me} is not that of {beside}; compared: {what}"]
    if found.is_behind:
        lines.append(f"it is behind ({found.state}): boot it, and ask again when it is in sync")
    if found.lacks:
        numbers = ", ".join(map(str, found.lacks[:10])) + (" …" if found.lacks[10:] else "")
        lines.append(f"not here ({found.state}): {counted(len(found.lacks), 'segment')}, {numbers}")
    for one in found.differs:
        lines.append(f"segment {one.segment}, epoch {one.epoch}: differs from {one.offset} on")
        if one.here:
            lines.append(f"  here it is damaged {one.here}: hms replica repair")
        elif one.is_past:
            lines.append(
                "  here each record verifies; it lies behind the log: was something erased at one "
                "machine alone (hms erase)? Else read the other one: hms store verify"
            )
        else:
            lines.append(
                "  here each record verifies: read the other one too (hms store verify). When that "
                "is good as well, the copies have parted: keep the one that leads, and give this "
                "machine a new copy"
            )
    return lines
