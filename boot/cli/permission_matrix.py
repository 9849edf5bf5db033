"""hms permission matrix: who may do what, user by action by resource."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from hms.boot.cli.security_target import document_of
from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, target_options
from hms.engine.security import BUILT_IN, Permission, Policy, Rights
from hms.engine.security.actions import KINDS_OF
from hms.engine.security.permissions import nearest
from hms.errors.catalogue import InvalidArgument
from hms.server.logins import document_changes as changes
from hms.server.logins.policy_pages import asked_of, kept_out
from hms.server.logins.security_document import SecurityDocument, role_of
from hms.wire.commands import Action

__all__ = ["matrix"]

_ORDER = list(KINDS_OF)


@click.command()
@target_options
@table_options
@click.option("--user", "users", multiple=True, metavar="NAME", help="Of these users only.")
@click.option("--action", "actions", multiple=True, metavar="ACTION", help="These only.")
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="KIND:PATTERN",
    help="Such as queue:orders.*  [default: each that is granted]",
)
def matrix(
    target: Target, users: tuple[str, ...], actions: tuple[str, ...], resources: tuple[str, ...]
) -> None:
    """Who may do what: for each action and resource the users who may do it to all of it, and those
    who may to some of it. NAME:ROLE stands for users who have a role by authenticator NAME.
    """
    document = document_of(target)
    for name in users:
        changes.user_of(document, name)
    policy = Policy({name: role_of(entry) for name, entry in document.role.items()} | {**BUILT_IN})
    held = _held(document, policy, users)
    wanted = list(asked_of(resources)) if resources else _granted(held.values())
    chosen = _actions(actions)
    rows = [
        {"action": str(one.action), "resource": f"{one.kind}:{one.pattern}", **_who(held, one)}
        for one in sorted(wanted, key=lambda one: (_ORDER.index(one.action), one.kind, one.pattern))
        if one.action in chosen
    ]
    columns = ("action", "resource", "all", "some")
    show_table(target, rows, empty="Nothing is granted.", columns=columns)
    for name in users or document.user:
        if why := kept_out(document.user[name], datetime.now(UTC)):
            click.echo(f"{name} {why}, and may do nothing", err=True)


def _held(document: SecurityDocument, policy: Policy, users: Sequence[str]) -> dict[str, Rights]:
    """What everybody may who can log in."""
    names = users or sorted(document.user)
    held = {
        name: policy.rights_of(document.user[name].roles)
        for name in names
        if not kept_out(document.user[name], datetime.now(UTC))
    }
    if not users:
        for name, one in sorted(document.authenticator.items()):
            roles = sorted(set(one.role_map.values()))
            held |= {f"{name}:{role}": policy.rights_of([role]) for role in roles}
    return held


def _granted(held: Any) -> list[Permission]:
    every = {str(one): one for rights in held for one in rights.permissions}
    return list(every.values())


def _actions(words: Sequence[str]) -> frozenset[Action]:
    known = [str(action) for action in KINDS_OF]
    for word in words:
        if word not in known:
            detail = f"there is no action {word!r}{nearest(word, known)}"
            raise InvalidArgument(what="--action", detail=detail)
    return frozenset(map(Action, words or known))


def _who(held: Mapping[str, Rights], wanted: Permission) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"all": [], "some": []}
    decided: dict[int, str] = {}  # users of equal roles share their rights
    for name, rights in held.items():
        word = decided.get(id(rights))
        if word is None:
            word = "all" if rights.holds(wanted) else "some" if rights.meets(wanted) else ""
            decided[id(rights)] = word
        if word:
            found[word].append(name)
    return found
