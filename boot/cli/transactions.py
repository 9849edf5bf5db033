"""hms transaction: branches in doubt, decisions not carried out yet, and an operator's word.

ID is a branch of this node, as FORMAT-GTRID-BQUAL, or a global transaction, as GTRID, both in
hexadecimal as `list` prints them.
"""

import time
from collections.abc import Iterator
from typing import Any

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options

__all__ = ["transaction"]

transaction = click.Group(
    "transaction", help="Distributed transactions: list, show, commit, roll back, forget."
)

_YES = click.option("--yes", is_flag=True, help="Do not ask.")
_RESOURCE = click.option(
    "--resource", default="", help="Of a global transaction: in this one only."
)


@transaction.command("list")
@target_options
@table_options
def list_(target: Target) -> None:
    """Branches of this node, decisions that wait for a resource manager, and what is active."""
    with target.connection() as connection:
        rows = [
            *(_branch_row(one) for one in connection.administer("transaction.list")),
            *(_decision_row(*one) for one in _decisions(connection)),
            *(_active_row(*one) for one in _active(connection)),
        ]
    show_table(target, rows, empty="no transaction is in doubt or under way")


@transaction.command()
@target_options
@click.argument("id_", metavar="ID")
def show(target: Target, id_: str) -> None:
    """One branch with what it sent and received where, or one global transaction."""
    with target.connection() as connection:
        if _is_branch(id_):
            found = connection.administer("transaction.show", {"xid": _packed(id_)})
            shown = found | {"xid": id_}
        else:
            shown = _shown_decision(connection, id_)
    show_values(target, shown)


@transaction.command()
@target_options
@click.argument("id_", metavar="ID")
@_RESOURCE
@_YES
def commit(target: Target, id_: str, resource: str, yes: bool) -> None:
    """Commit a branch in its transaction manager's stead (a heuristic decision): recorded, told to
    that one when it comes, and kept until it is forgotten. Others may have rolled back."""
    _decide(target, id_, resource, "commit", is_sure=yes)


@transaction.command()
@target_options
@click.argument("id_", metavar="ID")
@_RESOURCE
@_YES
def rollback(target: Target, id_: str, resource: str, yes: bool) -> None:
    """Roll a branch back in its transaction manager's stead; as commit. What it had received comes
    again."""
    _decide(target, id_, resource, "rollback", is_sure=yes)


@transaction.command()
@target_options
@click.argument("id_", metavar="ID")
@click.option("--force", is_flag=True, help="A decision too that is not carried out everywhere.")
@_YES
def forget(target: Target, id_: str, force: bool, yes: bool) -> None:
    """Drop the record of a heuristic outcome, or of a decision that is carried out."""
    if not yes:
        click.confirm(f"Forget {id_}?", abort=True, err=True)
    with target.connection() as connection:
        if _is_branch(id_):
            connection.administer("transaction.forget", {"xid": _packed(id_)})
        else:
            _forget_decision(connection, id_, is_forced=force)
    target.say(f"{id_}: forgotten", {"id": id_, "done": "forgotten"})


# ---- branches


def _is_branch(id_: str) -> bool:
    return "-" in id_


def _packed(id_: str) -> str:
    """A printed xid as an operator's command takes it."""
    from hms.errors.catalogue import InvalidArgument  # noqa: PLC0415 - not for --help
    from hms.wire.xid import Xid  # noqa: PLC0415

    try:
        return Xid.parse(id_).pack().hex()
    except ValueError as fault:
        raise InvalidArgument(what="ID", detail=str(fault)) from fault


def _branch_row(one: dict[str, Any]) -> dict[str, Any]:
    from hms.wire.xid import Xid  # noqa: PLC0415

    work = f"{one['sent']} sent, {one['received']} received, {one['bytes']} bytes"
    xid = str(Xid.unpack(bytes.fromhex(one["xid"])))
    return _row("branch", xid, one["state"], one["age_s"], work)


def _row(kind: str, id_: str, state: str, age_s: float, said: str) -> dict[str, Any]:
    return {"kind": kind, "id": id_, "state": state, "age_s": round(age_s, 1), "what": said}


def _decide(target: Target, id_: str, resource: str, verb: str, *, is_sure: bool) -> None:
    if not is_sure:
        risk = "Its transaction manager may decide otherwise"
        click.confirm(f"{risk}. {verb.capitalize()} {id_}?", abort=True, err=True)
    with target.connection() as connection:
        if _is_branch(id_):
            connection.administer(f"transaction.{verb}", {"xid": _packed(id_)})
            done = "committed" if verb == "commit" else "rolled back"
        else:
            done = f"{verb} ordered for {', '.join(_order(connection, id_, resource, verb))}"
    target.say(f"{id_}: {done}", {"id": id_, "done": done})


# ---- global transactions


def _decisions(connection: Any) -> Iterator[tuple[bytes, bytes, int, bool]]:
    """Every decision, but the node's name for itself that stands among them."""
    from hms.wire.branch_requests import ListDecisions  # noqa: PLC0415
    from tpmon.xa.decisions import IDENTITY  # noqa: PLC0415

    after, has_more = 0, True
    while has_more:
        page = connection.request(ListDecisions(after))
        after, has_more = page["position"], page["has_more"]
        yield from (tuple(one) for one in page["decisions"] if one[0] != IDENTITY)


def _decision_row(
    gtrid: bytes, participants: bytes, decided_at_ms: int, is_held: bool
) -> dict[str, Any]:
    found = _participants(gtrid, participants)
    said = ", ".join(f"{one['resource']} {one['state']}" for one in found)
    state = "committing" if is_held else "committed"
    return _row("decision", gtrid.hex(), state, time.time() - decided_at_ms / 1000, said)


def _participants(gtrid: bytes, packed: bytes) -> list[dict[str, str]]:
    from hms.errors.catalogue import DecisionUnreadable  # noqa: PLC0415
    from tpmon.xa import decisions  # noqa: PLC0415

    try:
        found = decisions.read(gtrid, packed)
    except DecisionUnreadable as error:
        return [{"resource": "?", "state": "unreadable", "note": str(error)}]
    return [
        {
            "resource": one.resource,
            "state": f"{one.state} (ordered: {one.order})" if one.order else one.state,
            "note": one.note,
        }
        for one in found
    ]


def _active(connection: Any) -> list[list[Any]]:
    from hms.wire.branch_requests import ListActive  # noqa: PLC0415

    found: list[list[Any]] = connection.request(ListActive())
    return found


def _active_row(gtrid: bytes, connection: int, since_ms: int, name: str) -> dict[str, Any]:
    said = f"connection {connection}{f', {name}' if name else ''}"
    return _row("global", gtrid.hex(), "active", time.time() - since_ms / 1000, said)


def _asked(connection: Any, id_: str) -> tuple[bytes, dict[str, Any]]:
    """A global transaction's name, and what the node says of it; DecisionNotFound."""
    from hms.errors.catalogue import DecisionNotFound, InvalidArgument  # noqa: PLC0415
    from hms.wire.branch_requests import AskDecision  # noqa: PLC0415
    from tpmon.xa.decisions import IDENTITY  # noqa: PLC0415

    try:
        gtrid = bytes.fromhex(id_)
    except ValueError as fault:
        raise InvalidArgument(what="ID", detail=f"{id_!r} is not hexadecimal") from fault
    said = connection.request(AskDecision(gtrid))
    if said["state"] == "unknown" or gtrid == IDENTITY:
        raise DecisionNotFound(gtrid=id_)
    return gtrid, said


def _shown_decision(connection: Any, id_: str) -> dict[str, Any]:
    gtrid, said = _asked(connection, id_)
    participants = _participants(gtrid, said["participants"])
    return {"id": id_, "state": said["state"], "participants": participants}


def _order(connection: Any, id_: str, resource: str, verb: str) -> list[str]:
    """Have recovery commit or roll back the branches that are left, of one resource manager or of
    all of them; their names."""
    from hms.errors.catalogue import BranchStateWrong  # noqa: PLC0415
    from hms.wire.branch_requests import NoteDecision  # noqa: PLC0415
    from tpmon.xa import decisions  # noqa: PLC0415

    gtrid, said = _asked(connection, id_)
    every = decisions.read(gtrid, said["participants"])
    meant = [p for p in every if p.resource == (resource or p.resource)]
    left = [p for p in meant if not decisions.is_settled(p)]
    if not left:
        detail = f"nothing is left to be done{f' in {resource}' if resource else ''}"
        raise BranchStateWrong(xid=id_, state=said["state"], detail=detail)
    changed = [_with_order(p, verb) if p in left else p for p in every]
    connection.request(NoteDecision(gtrid, decisions.encode(changed)))
    return [p.resource for p in left]


def _with_order(participant: Any, verb: str) -> Any:
    import msgspec  # noqa: PLC0415

    return msgspec.structs.replace(participant, order=verb)


def _forget_decision(connection: Any, id_: str, *, is_forced: bool) -> None:
    from hms.errors.catalogue import BranchStateWrong  # noqa: PLC0415
    from hms.wire.branch_requests import ForgetDecision  # noqa: PLC0415
    from tpmon.xa import decisions  # noqa: PLC0415

    gtrid, said = _asked(connection, id_)
    if is_forced:
        connection.request(ForgetDecision(gtrid))
        return
    every = decisions.read(gtrid, said["participants"])
    left = [p for p in every if not decisions.is_settled(p)]
    if left:
        names = ", ".join(p.resource for p in left)
        detail = f"{names} would roll it back after that; order commit or rollback, or --force"
        raise BranchStateWrong(xid=id_, state=said["state"], detail=detail)
    connection.request(ForgetDecision(gtrid))
