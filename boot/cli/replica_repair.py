"""hms replica repair: a copy that is damaged, or that went back, gets what it lacks from the one
that leads."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.target import Target, target_options

if TYPE_CHECKING:
    from hms.boot.entries import Config, Node
    from hms.server.arbiter import Configuration, Standing

__all__ = ["check_there", "node_with_replicas", "own_copy", "repair", "standing_of"]

LOOK_S = 0.1


@click.command()
@target_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout", "timeout_s", type=float, default=60, show_default=True, help="Seconds to wait."
)
def repair(target: Target, yes: bool, timeout_s: float) -> None:
    """Read this machine's copy through, and get what is damaged from the replica that leads. A copy
    that went back to an older state is moved aside as a whole; booted, this machine gets a new one.

    Exit code 1: it is not repaired yet, as nobody leads or this machine's process does not run.
    """
    from hms.errors.catalogue import NodeRunning, NotSupported  # noqa: PLC0415 - not for --help
    from hms.store.journal.store_examination import examine  # noqa: PLC0415

    _, node, standing = standing_of(target)
    now = standing.configuration
    process, said = _process(node), own_copy(node, now)
    if process is not None and now.primary == node.replica and not _follows(node, process):
        raise NotSupported(
            feature=f"hms replica repair at {node.replica}, which leads,",
            instead="Run hms switchover: then this machine follows, and repairs itself.",
        )
    check_there(node)
    if said["copy"].startswith("went back"):
        if process is not None:
            raise NodeRunning(node=node.name, pid=process)
        if not yes:
            click.confirm(f"Move {node.store} aside ({said['copy']})?", abort=True, err=True)
        target.say(f"the copy is kept as {_moved(node.store)}; boot: a new one comes", said)
        return
    _note(node.store, examine(node.store).damages)
    found = own_copy(node, now)["damage"]
    if process is not None:
        _await_repair(node.store, timeout_s)
    left = own_copy(node, now)["damage"]
    lines = [f"damaged: {one}" for one in found] or [f"the copy of {node.replica} is good"]
    lines += ["it is repaired"] if found and not left else []
    lines += ["boot: it is repaired when it follows"] if left and process is None else []
    target.say("\n".join(lines), {"found": found, "left": left})
    if left:
        click.get_current_context().exit(1)


def own_copy(node: "Node", now: "Configuration | None") -> dict[str, Any]:
    """What this machine's copy is, and what is known to be damaged of it. now: None where the
    arbiter does not say."""
    from hms.errors.catalogue import ReplicaUnknown  # noqa: PLC0415 - not for --help
    from hms.server.replicas.copy_state import read_state  # noqa: PLC0415
    from hms.server.replicas.damage import read_damages  # noqa: PLC0415
    from hms.store.journal.disk import REAL_DISK  # noqa: PLC0415

    try:
        state = read_state(REAL_DISK, node.store, node.replica or "")
    except ReplicaUnknown as fault:
        return {"copy": f"unknown: {fault.fields['detail']}", "damage": []}
    known = read_damages(REAL_DISK, node.store)
    damage = [f"segment {d.segment}, offset {d.offset}: {d.detail}" for d in known.values()]
    if state is None:
        return {"copy": "none", "damage": damage}
    members = [] if now is None else now.members
    mine = next((one for one in members if one.copy_id == state.copy_id), None)
    if mine is not None and state.starts < mine.start:
        words = f"went back: it started {state.starts} times, {mine.start} are known"
    elif damage:
        words = "damaged"
    elif now is None:
        words = "unknown: the arbiter does not say whether it counts"
    else:
        words = "counts" if mine is not None else "does not count"
    return {"copy": words, "damage": damage}


def check_there(node: "Node") -> None:
    """ReplicaUnknown where this machine has no copy, as its disk was replaced."""
    from hms.errors.catalogue import ReplicaUnknown  # noqa: PLC0415 - not for --help
    from hms.server.replicas.copy_state import read_state  # noqa: PLC0415
    from hms.store.journal.disk import REAL_DISK  # noqa: PLC0415
    from hms.store.journal.segment_walk import all_files  # noqa: PLC0415

    me = node.replica or ""
    if read_state(REAL_DISK, node.store, me) is not None:
        return
    if node.store.is_dir() and all_files(REAL_DISK, node.store):
        detail = f"{node.store} holds a log that is none"
    else:
        detail = f"{node.store} is empty: hms boot gets the whole log"
    raise ReplicaUnknown(replica=me, detail=detail)


def node_with_replicas(target: Target) -> "tuple[Config, Node]":
    """What hms.conf says. NotSupported for a node that has none."""
    from hms.errors.catalogue import NotSupported  # noqa: PLC0415 - not for --help

    config = target.config()
    node = config.node(target.node_name)
    if node.replica is None:
        instead = "Add [arbiter] and a [replica.NAME] for each copy to hms.conf."
        if node.shared or node.database is not None:
            instead = "hms down on the machine that has the store has one that stands by take over."
        raise NotSupported(
            feature=f"a move or a copy of {node.name}, which has no replicas,", instead=instead
        )
    return config, node


def standing_of(target: Target) -> "tuple[Config, Node, Standing]":
    """What the arbiter of a node with replicas says now. ReplicasNotBegun."""
    from hms.boot.replicating import endpoint_of, make_arbiter  # noqa: PLC0415 - not for --help
    from hms.errors.catalogue import ReplicasNotBegun  # noqa: PLC0415

    config, node = node_with_replicas(target)
    arbiter = make_arbiter(config, node)
    try:
        standing = arbiter.read()
    finally:
        arbiter.close()
    if standing is None:
        raise ReplicasNotBegun(endpoint=endpoint_of(config), node=node.name)
    return config, node, standing


def _process(node: "Node") -> int | None:
    """The process that has the store, however it was started."""
    from hms.store.journal.store_examination import holder  # noqa: PLC0415 - not for --help

    pid = holder(node.store)
    return int(pid) if pid is not None and pid.isdigit() else None


def _follows(node: "Node", pid: int) -> bool:
    from hms.boot.roles import role_of  # noqa: PLC0415 - not for --help

    return role_of(node, pid) is not None


def _note(store: Path, found: list[Any]) -> None:
    from hms.server.replicas.damage import Damage, note_damages  # noqa: PLC0415 - not for --help
    from hms.store.journal.disk import REAL_DISK  # noqa: PLC0415

    damages = [Damage(int(one.file.stem), one.offset, one.detail) for one in found]
    if damages:
        note_damages(REAL_DISK, store, damages)


def _await_repair(store: Path, timeout_s: float) -> None:
    from hms.server.replicas.damage import read_damages  # noqa: PLC0415 - not for --help
    from hms.store.journal.disk import REAL_DISK  # noqa: PLC0415

    until_s, look = time.monotonic() + timeout_s, threading.Event()
    while read_damages(REAL_DISK, store) and time.monotonic() < until_s:
        look.wait(LOOK_S)


def _moved(store: Path) -> Path:
    """Beside its place, under a name that nothing has."""
    number = 1
    while (aside := store.with_name(f"{store.name}.aside-{number}")).exists():
        number += 1
    return store.rename(aside)
