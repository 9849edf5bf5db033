"""hms replica: copies of a node's log on several machines."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hms.boot.cli.cells import timed
from hms.boot.cli.replica_comparison import verify
from hms.boot.cli.replica_repair import node_with_replicas, own_copy, repair, standing_of
from hms.boot.cli.tables import WATCH, again_and_again
from hms.boot.cli.target import Target, interruptible, show_table, show_values, target_options

if TYPE_CHECKING:
    from hms.boot.entries import Config, Node
    from hms.server.arbiter import Configuration

__all__ = ["replica", "switchover"]


@click.group()
def replica() -> None:
    """Copies of a node's log on several machines, of which one leads."""


@replica.command()
@target_options
def init(target: Target) -> None:
    """Make this machine's store the first copy, once: where there is a log already, there.

    Then boot the machines; the others get the log.
    """
    from hms.boot.replicating import begin_replicas  # noqa: PLC0415 - not for --help
    from hms.boot.supervise import find  # noqa: PLC0415
    from hms.errors.catalogue import NodeRunning, NotSupported  # noqa: PLC0415

    config, node = _node(target)
    if config.replicas[node.replica or ""].mode == "ASYNC":
        feature = f"hms replica init at {node.replica}, which is ASYNC and would lead,"
        raise NotSupported(feature=feature, instead="Run it on the machine of a SYNC replica.")
    if (process := find(node)) is not None:
        raise NodeRunning(node=node.name, pid=process.pid)
    first = begin_replicas(config, node)
    said = {"node": node.name, "replica": node.replica, "log": first.log, "epoch": first.epoch}
    target.say(f"{node.replica} has the first copy of {node.name}; boot it, then the others", said)


@replica.command()
@target_options
@click.argument("name")
@click.option(
    "--timeout", "timeout_s", type=float, default=600, show_default=True, help="Seconds to wait."
)
def add(target: Target, name: str, timeout_s: float) -> None:
    """Have a replica count that hms.conf has by now, or that was removed; returns when it has the
    whole log and counts. Boot it meanwhile; the node works on. What its mode is by now holds from
    here on: an ASYNC one gets the whole log and does not count, also when it did."""
    from hms.boot.replicating import await_members, make_arbiter  # noqa: PLC0415 - not for --help

    config, node = _node(target)
    goes_on = f"hms replica status tells when {name} has the whole log; it counts then"
    with closing(make_arbiter(config, node)) as arbiter, interruptible(goes_on):
        target.administer("replica.add", name=name)
        is_async = name in config.replicas and config.replicas[name].mode == "ASYNC"

        def is_so(one: "Configuration") -> bool:
            if is_async:
                return name not in (*_members(one), *one.removed) and _has_log(target, name)
            return name in _members(one)

        now = await_members(arbiter, is_so, timeout_s)
    _tell_members(target, node, now, f"{name} to have the whole log", timeout_s)


def _has_log(target: Target, name: str) -> bool:
    """Of a copy that does not count, as the replica that leads knows it."""
    rows = target.administer("status")["replication"]["replicas"]
    return any(row["replica"] == name and row["is_in_sync"] for row in rows)


@replica.command()
@target_options
@click.argument("name")
@click.option(
    "--timeout", "timeout_s", type=float, default=60, show_default=True, help="Seconds to wait."
)
def remove(target: Target, name: str, timeout_s: float) -> None:
    """Have a replica count no more, until it is added. Then stop it, and take it out of hms.conf.

    Refused while it leads, and where too few copies would be left.
    """
    from hms.boot.replicating import await_members, make_arbiter  # noqa: PLC0415 - not for --help

    config, node = _node(target)
    arbiter = make_arbiter(config, node)
    try:
        target.administer("replica.remove", name=name)
        now = await_members(arbiter, lambda one: name in one.removed, timeout_s)
    finally:
        arbiter.close()
    _tell_members(target, node, now, f"{name} to count no more", timeout_s)


@replica.command()
@target_options
@click.argument("name")
@click.option("--lossy", "is_lossy", is_flag=True, help="Go on without the others.")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout", "timeout_s", type=float, default=60, show_default=True, help="Seconds to wait."
)
def promote(target: Target, name: str, is_lossy: bool, is_agreed: bool, timeout_s: float) -> None:
    """Have this machine's copy lead although too few others are left for a take-over. What they had
    confirmed and it lacks is lost: its clients are told so.

    Refused while another one leads, or enough copies answer: then one takes over by itself.
    """
    from hms.boot.promoting import Promotion  # noqa: PLC0415 - not for --help
    from hms.boot.replicating import make_arbiter  # noqa: PLC0415
    from hms.boot.roles import is_standing_by  # noqa: PLC0415
    from hms.errors.catalogue import TakeOverRefused  # noqa: PLC0415

    config, node = _node(target)

    def is_waiting() -> bool:
        return is_standing_by(node)

    def agrees(what: str) -> bool:
        question = f"{what}. What others confirmed behind that is lost. Go on?"
        return is_lossy and (is_agreed or click.confirm(question, err=True))

    detail = _not_here(config, node, name)
    if not detail and not is_waiting():
        detail = "it does not stand by: it leads, or does not run (hms boot)"
    if detail:
        raise TakeOverRefused(replica=name, node=node.name, detail=detail)
    goes_on = "hms replica status tells who leads; until it was agreed to, nothing was changed"
    with closing(make_arbiter(config, node)) as arbiter, interruptible(goes_on):
        now = Promotion(arbiter, config, node, is_waiting, agrees).run(timeout_s)
    said = {"node": node.name, "primary": now.primary, "epoch": now.epoch}
    target.say(f"{now.primary} leads {node.name} in epoch {now.epoch}", said)


def _not_here(config: "Config", node: "Node", name: str) -> str:
    """Why a copy cannot be promoted by a command on this machine; "" when it can."""
    names = [one.name for one in config.replicas_of(node)]
    if name not in names:
        return f"hms.conf has no [replica.{name}] of this node; its replicas are {', '.join(names)}"
    if name != node.replica:
        return f"this machine is {node.replica}: say it on the machine of {name}"
    return ""


def _members(now: "Configuration") -> list[str]:
    return [one.name for one in now.members]


def _tell_members(
    target: Target, node: "Node", now: "Configuration | None", what: str, timeout_s: float
) -> None:
    from hms.errors.catalogue import RequestTimeout  # noqa: PLC0415 - not for --help

    if now is None:
        raise RequestTimeout(what=what, timeout_s=timeout_s)
    names = _members(now)
    said = {"node": node.name, "members": names, "copies": now.copies, "version": now.version}
    target.say(f"copies of {node.name} that count: {', '.join(names)}", said)


@replica.command()
@target_options
@WATCH
def status(target: Target, watch_s: float | None) -> None:
    """Show who leads, which copies count and what they have; while the arbiter does not answer,
    what this machine knows. Exit code 1: at the machine that leads, no copy may be lost now; at one
    that follows, it lacks something; this machine does not run the node, one copy only counts,
    nobody leads, or nobody can tell."""
    if not again_and_again(lambda: _show_standing(target), watch_s):
        click.get_current_context().exit(1)


def _show_standing(target: Target) -> bool:
    """Whether somebody leads, and one copy is to spare."""
    from hms.errors.catalogue import ArbiterUnavailable  # noqa: PLC0415 - not for --help
    from hms.server.replicas.promises import promises_needed  # noqa: PLC0415

    try:
        config, node, standing = standing_of(target)
    except ArbiterUnavailable as fault:
        _show_alone(target, fault)
        return False
    now, leader = standing.configuration, standing.leader
    members = [one.name for one in now.members]
    seen = _seen_here(config, node)
    said: dict[str, Any] = {
        "node": node.name,
        "log": now.log,
        "epoch": now.epoch,
        "version": now.version,
        "primary": now.primary if leader is not None else "",
        "members": members,
        "copies": now.copies,
        "promises": promises_needed(now),
        "copies_min": config.copies_min_of(node),
        "is_protected": seen.is_protected and len(members) > 1,
        **seen.leads,
        "removed": list(now.removed),
        "lossy": list(now.lossy),
        "set_aside": _set_aside(node),
        **own_copy(node, now),
    }
    _show_copies(target, said, seen.rows)
    return leader is not None and len(members) > 1 and seen.is_well


def _show_alone(target: Target, fault: Exception) -> None:
    """What this machine knows of its own copy while the arbiter does not answer."""
    config, node = _node(target)
    said = {"node": node.name, "arbiter": str(fault), "set_aside": _set_aside(node)}
    seen = _seen_here(config, node)
    _show_copies(target, {**said, **seen.leads, **own_copy(node, None)}, seen.rows)


def _show_copies(target: Target, said: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if target.is_json:
        show_values(target, {**said, "replicas": rows})
        return
    if last := said.get("last_take_over"):
        said = {**said, "last_take_over": timed(last, "at_ms", "at")}
    show_values(target, said)
    click.echo()
    show_table(target, rows, empty="this machine does not run the node")


@click.command()
@target_options
@click.option("--to", default="", help="The replica that is to lead; else the best one in sync.")
@click.option(
    "--drain-s",
    type=click.FloatRange(0, 3600),
    help="Seconds that what was begun has to end; as configured (30) without.",
)
@click.option(
    "--apply-s",
    type=click.FloatRange(0, 3600),
    help="Seconds that the replica has to apply the log before; 60 without.",
)
@click.option("--force", "is_forced", is_flag=True, help="Then cut off what has not ended.")
@click.option(
    "--timeout", "timeout_s", type=float, default=60, show_default=True, help="Seconds to wait."
)
def switchover(
    target: Target,
    to: str,
    drain_s: float | None,
    apply_s: float | None,
    is_forced: bool,
    timeout_s: float,
) -> None:
    """Have another replica lead, planned; returns when it does. The one that led lets what was
    begun end, and follows from then on. Clients go along by themselves. Without --to it is the
    preferred one if that has everything, else the one that is least behind. A machine that follows
    sends the command on to the one that leads.

    A replica that was booted a moment ago applies the log first, and all goes on here meanwhile.

    Refused, and nothing is changed, while no other copy has everything, when more than 64 KiB of
    the log are to be applied after --apply-s, and when transactions have work, consumers have
    messages or calls run after --drain-s. --force waits no longer, and goes on.
    """
    from hms.boot.ordering import leading_epoch, switch_over  # noqa: PLC0415 - not for --help
    from hms.boot.replicating import await_leader, make_arbiter  # noqa: PLC0415
    from hms.boot.roles import is_standing_by  # noqa: PLC0415
    from hms.errors.catalogue import ConnectionLost, RequestTimeout  # noqa: PLC0415
    from hms.wire.operations import APPLY_S, SwitchOver  # noqa: PLC0415

    config, node = _node(target)
    limits = {"drain_s": drain_s, "apply_s": apply_s}
    given = {name: value for name, value in limits.items() if value is not None}
    patience_s = timeout_s + (node.drain_s if drain_s is None else drain_s)
    patience_s += APPLY_S if apply_s is None else apply_s
    told: dict[str, Any] = {}
    moves_to = to
    lost: ConnectionLost | None = None
    goes_on = "a move that was begun goes on; hms status tells of it (drains_for, move_waits_for)"
    with closing(make_arbiter(config, node)) as arbiter, interruptible(goes_on):
        if target.address is None and is_standing_by(node):
            asked = SwitchOver(to, is_forced, drain_s, apply_s)
            moves_to, before = switch_over(arbiter, config, node, asked, patience_s)
        else:
            patient, led = replace(target, work_s=patience_s), leading_epoch(arbiter)
            try:
                told = patient.administer("replica.switchover", to=to, is_forced=is_forced, **given)
                moves_to, before = told["to"], told["epoch"]
            except ConnectionLost as fault:
                if led is None:
                    raise
                lost, before = fault, led  # that machine ended before its answer was read
        now = await_leader(arbiter, before, timeout_s)
    if lost is not None and now is None:
        raise lost
    moves_to = moves_to or (now.primary if now is not None else "another replica")
    if now is None:
        raise RequestTimeout(what=f"{moves_to} to lead", timeout_s=timeout_s)
    applied = {
        name: told[name] for name in ("to_apply_bytes", "left_bytes", "applied_s") & told.keys()
    }
    said = {"node": node.name, "primary": now.primary, "epoch": now.epoch, **applied}
    about = f"{now.primary} leads {node.name} in epoch {now.epoch}"
    if now.primary != moves_to:
        about = f"{moves_to} does not lead {node.name}: {now.primary} was granted epoch {now.epoch}"
        about += ", and serves when enough copies promise; hms replica status tells of them"
    target.say(f"{about}{_applied(said)}", said)
    if now.primary != moves_to:
        click.get_current_context().exit(1)


def _applied(said: dict[str, Any]) -> str:
    """What was waited for, if anything."""
    begun, left = (said.get(name) for name in ("to_apply_bytes", "left_bytes"))
    if begun is None or left is None or begun == left:
        return ""
    sizes = f"up to {begun >> 10:,} KiB of the log in {said['applied_s']:g} s"
    return f"; before that it applied {sizes}, all but {left >> 10:,} KiB"


@replica.command()
@target_options
def history(target: Target) -> None:
    """Show which copies counted when, who led them, and why, as this machine's log and history have
    it; the newest last."""
    from hms.history.audit_trail import configurations_of_log  # noqa: PLC0415 - not for --help

    _, node = _node(target)
    rows = [{"at": one.at_ms, "copies": one.copies} for one in configurations_of_log(node.store)]
    show_table(target, rows, empty="nothing of it is in this log", times=("at",))


replica.add_command(verify)
replica.add_command(repair)


def _set_aside(node: "Node") -> list[str]:
    """Segments in this machine's store with records that were never confirmed nor adopted."""
    from hms.server.replicas.log_copy import aside_names  # noqa: PLC0415 - not for --help
    from hms.store.journal.disk import REAL_DISK  # noqa: PLC0415

    return aside_names(REAL_DISK, node.store) if node.store.is_dir() else []


_OF_LEADER = (
    *("confirmed_lsn", "failures_survived", "blocked_since_s", "lease_left_s", "proof"),
    *("last_take_over", "take_overs", "switchovers"),
)


class _Seen(NamedTuple):
    """What this machine's process knows. leads: of the node, where that leads; is_protected: as the
    one that leads knows it, None where nobody here does; members that are away still count for
    replica_lost_s. is_well: a copy
    may be lost; or this one, which follows, has everything."""

    rows: list[dict[str, Any]]
    leads: Mapping[str, Any] = MappingProxyType({})
    is_protected: bool | None = True
    is_well: bool = True


def _seen_here(config: "Config", node: "Node") -> _Seen:
    from hms.boot.cli.standbys import lag_of  # noqa: PLC0415 - not for --help
    from hms.boot.roles import role_of  # noqa: PLC0415
    from hms.boot.supervise import find  # noqa: PLC0415
    from hms.errors.tree import HmsError  # noqa: PLC0415

    process = find(node)
    if process is None:
        return _Seen([], is_protected=None, is_well=False)
    if (waiting := role_of(node, process.pid)) is not None:
        mode = config.replicas[node.replica or ""].mode
        row = {"replica": node.replica, "role": "standby", "mode": mode}
        row |= {"waits_for": waiting["waits_for"]}
        lag = lag_of(config, node)
        return _Seen([row | lag], is_well=lag["state"] == "IN_SYNC")
    own = Target(config.path, node.listen[0], node.name, is_json=False)
    try:
        said = own.administer("status")["replication"]
    except HmsError as fault:  # it begins, or ends
        row = {"replica": node.replica, "role": "unknown", "fault": str(fault)}
        return _Seen([row], is_protected=False, is_well=False)
    mode = config.replicas[node.replica or ""].mode
    rows = [{"replica": node.replica, "role": "primary", "mode": mode}, *said["replicas"]]
    leads = {name: said[name] for name in _OF_LEADER if name in said}
    return _Seen(rows, leads, said["is_protected"], said["is_protected"])


def _node(target: Target) -> "tuple[Config, Node]":
    return node_with_replicas(target)
