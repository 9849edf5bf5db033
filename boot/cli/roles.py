"""hms role, permission and security: what users may do."""

from collections.abc import Iterable

import click

from hms.boot.cli.permission_matrix import matrix
from hms.boot.cli.policy import diff, export, reload
from hms.boot.cli.security_target import DRY_RUN, apply, document_of, path_of
from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, target_options
from hms.boot.counts import counted
from hms.boot.security_file import load_security
from hms.engine.security import (
    BUILT_IN,
    Permission,
    Policy,
    Rights,
    Unacceptable,
    doubt_about,
    read_permission,
)
from hms.engine.security.roles import Role
from hms.errors.catalogue import InvalidArgument, SecurityFileError
from hms.server.logins import document_changes as changes
from hms.server.logins.security_document import SecurityDocument, may_secure, role_of

__all__ = ["permission", "role", "security"]


@click.group()
def role() -> None:
    """Roles: create, delete, list, show."""


@role.command()
@target_options
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="NAME", help="A role that it includes.")
@DRY_RUN
def create(target: Target, name: str, roles: tuple[str, ...], dry_run: bool) -> None:
    """A new role, without permissions of its own."""
    apply(target, lambda d: changes.create_role(d, name, roles), f"{name}: created", is_dry=dry_run)


@role.command()
@target_options
@click.argument("name")
@DRY_RUN
def delete(target: Target, name: str, dry_run: bool) -> None:
    """End a role that nobody has."""
    apply(target, lambda d: changes.delete_role(d, name), f"{name}: deleted", is_dry=dry_run)


@role.command("list")
@target_options
@table_options
def list_(target: Target) -> None:
    """All roles, the built-in ones too."""
    document = document_of(target)
    rows = [
        {
            "name": name,
            "built in": name in BUILT_IN,
            "permissions": len(one.permissions),
            "roles": list(one.roles),
            "users": [n for n, user in document.user.items() if name in user.roles],
        }
        for name, one in sorted(_roles(document).items())
    ]
    show_table(target, rows, empty="There are no roles.")


@role.command()
@target_options
@click.argument("name")
def show(target: Target, name: str) -> None:
    """Every permission of a role, with those that it includes."""
    known = _roles(document_of(target))
    if name not in known:
        raise InvalidArgument(what="role", detail=f"there is no role {name!r}")
    _show_rights(target, Policy(known).rights_of([name]))


@click.group()
def permission() -> None:
    """Permissions: grant, revoke, list, check, matrix."""


@permission.command()
@target_options
@click.argument("role_name", metavar="ROLE")
@click.argument("text", metavar="PERMISSION")
@DRY_RUN
def grant(target: Target, role_name: str, text: str, dry_run: bool) -> None:
    """Let a role do something, such as "produce queue:orders.*"."""
    said = f"{role_name}: may {text}"
    order = "permission.grant", {"name": role_name, "permission": text}
    apply(target, lambda d: changes.grant(d, role_name, text), said, is_dry=dry_run, order=order)
    _warn([read_permission(text)])


@permission.command()
@target_options
@click.argument("role_name", metavar="ROLE")
@click.argument("text", metavar="PERMISSION")
@DRY_RUN
def revoke(target: Target, role_name: str, text: str, dry_run: bool) -> None:
    """Let a role do something no more; what is open and needs it is closed."""
    said = f"{role_name}: may no longer {text}"
    order = "permission.revoke", {"name": role_name, "permission": text}
    apply(target, lambda d: changes.revoke(d, role_name, text), said, is_dry=dry_run, order=order)


def _warn(permissions: Iterable[Permission]) -> None:
    """Of each that is hardly meant as it is written, beside the answer."""
    for doubt in filter(None, map(doubt_about, permissions)):
        click.echo(f"warning: {doubt}", err=True)


@permission.command("list")
@target_options
@table_options
@click.option("--user", "name", help="Of one user only.")
def list_permissions(target: Target, name: str | None) -> None:
    """What users may do, and by which role."""
    document = document_of(target)
    names = [name] if name else sorted(document.user)
    policy = Policy(_roles(document))
    rows = [
        {"user": one, "permission": said}
        for one in names
        for said in policy.rights_of(changes.user_of(document, one).roles).describe()
    ]
    show_table(target, rows, empty="Nothing is granted.")


@permission.command()
@target_options
@click.argument("user_name", metavar="USER")
@click.argument("action")
@click.argument("resource")
def check(target: Target, user_name: str, action: str, resource: str) -> None:
    """Whether a user may do something, and why; exit code 1 when not."""
    document = document_of(target)
    entry = changes.user_of(document, user_name)
    try:
        asked = read_permission(f"{action} {resource}")
    except Unacceptable as fault:
        raise InvalidArgument(what="permission", detail=str(fault)) from fault
    rights = Policy(_roles(document)).rights_of(entry.roles)
    found = rights.explain(asked.action, asked.kind, asked.pattern)
    word = "may" if found.is_allowed else "may not"
    lines = [f"{user_name} {word} {asked}", *[f"  {one}" for one in found.by]]
    if not found.is_allowed:
        lines[1:1] = ["no role grants it; nearest:" if found.by else "no role grants it"]
    if not entry.enabled:
        lines.append(f"{user_name} is disabled and cannot log in")
    is_allowed = found.is_allowed and entry.enabled
    target.say("\n".join(lines), {"allowed": is_allowed, "by": list(found.by)})
    click.get_current_context().exit(0 if is_allowed else 1)


@click.group()
def security() -> None:
    """The security file of a node: check, reload, diff, export; and the addresses that it keeps
    out."""


@security.command("check")
@target_options
def check_file(target: Target) -> None:
    """Report every fault of the file at once, each with its line; exit code 1 when there is one."""
    path = path_of(target)
    try:
        document = load_security(path)
    except SecurityFileError as error:
        for fault in str(error.fields["report"]).splitlines():
            click.echo(fault, err=True)
        click.get_current_context().exit(1)
    counts = {"users": len(document.user), "roles": len(document.role), "version": document.version}
    said = f"{counted(len(document.user), 'user')}, {counted(len(document.role), 'role')}"
    if not may_secure(document):
        said += "; nobody may change users and roles but by this file"
    target.say(f"{path} is good: version {document.version}, {said}", counts)
    _warn(one for entry in document.role.values() for one in role_of(entry).permissions)


@security.command()
@target_options
@table_options
def locked(target: Target) -> None:
    """Addresses whose wrong logins go on: new connections from there are dropped, until when."""
    rows = target.administer("security.locked")
    if not target.is_json:
        for row in rows:
            row["since"], row["until"] = row.pop("since_ms"), row.pop("until_ms")
    show_table(target, rows, empty="no address is locked", times=("since", "until"))


@security.command()
@target_options
@click.argument("locked_address", metavar="ADDRESS")
def unlock(target: Target, locked_address: str) -> None:
    """Let in who comes from ADDRESS again, as if nobody had failed there."""
    target.administer("security.unlock", address=locked_address)
    said = {"address": locked_address, "unlocked": True}
    target.say(f"{locked_address}: unlocked; more wrong logins lock it again", said)


security.add_command(reload)
security.add_command(diff)
security.add_command(export)
permission.add_command(matrix)


def _roles(document: SecurityDocument) -> dict[str, Role]:
    own = {name: role_of(entry) for name, entry in document.role.items()}
    return {**own, **BUILT_IN}


def _show_rights(target: Target, rights: Rights) -> None:
    rows = [{"permission": said} for said in rights.describe()]
    show_table(target, rows, empty="It has no permissions.")
