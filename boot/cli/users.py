"""hms user: who may log in, and how."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.erasing import forget
from hms.boot.cli.security_target import (
    DRY_RUN,
    apply,
    document_of,
    ends_at,
    password_from,
    path_of,
)
from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.security_file import change_security
from hms.errors.catalogue import InvalidArgument
from hms.server.logins import document_changes as changes
from hms.server.logins.passwords import hash_password
from hms.server.logins.policy_pages import facts_of
from hms.server.logins.security_document import SecurityDocument, UserEntry, limits_of

__all__ = ["user"]

_FILE = click.option(
    "--password-file",
    "file",
    type=click.Path(path_type=Path),
    help="Where the password is; else it is read from standard input.",
)
_MANY: dict[str, Any] = {"multiple": True, "metavar": "NAME"}
_NETWORKS: dict[str, Any] = {"multiple": True, "metavar": "NETWORK"}


@click.group()
def user() -> None:
    """Users of a secured node: add, change, list, delete …"""


@user.command()
@target_options
@click.argument("name")
@click.option("--role", "roles", help="A role that it has.", **_MANY)
@click.option("--os-user", "os_users", help="Whose processes need no password.", **_MANY)
@click.option("--key", "keys", help="The public key of its client.", multiple=True, metavar="KEY")
@click.option("--password", "is_asked", is_flag=True, help="Read a password.")
@_FILE
@click.option("--two-factors", is_flag=True, help="Key or process, and password or token too.")
@DRY_RUN
def add(
    target: Target,
    name: str,
    roles: tuple[str, ...],
    os_users: tuple[str, ...],
    keys: tuple[str, ...],
    is_asked: bool,
    file: Path | None,
    two_factors: bool,
    dry_run: bool,
) -> None:
    """A new user. Without --password it logs in by key or process only."""
    path_of(target)
    given = password_from(file) if is_asked or file is not None else ""
    entry = UserEntry(
        password=_hashed(target, given) if given or is_asked or file is not None else "",
        roles=roles,
        os_users=os_users,
        keys=keys,
        two_factors=two_factors,
    )
    apply(target, lambda d: changes.add_user(d, name, entry), f"{name}: added", is_dry=dry_run)


def _hashed(target: Target, given: str) -> str:
    """As [security] wants it."""
    wanted = document_of(target).security
    cost = {"time_cost": wanted.password_passes, "memory_kib": wanted.password_memory_kib}
    return hash_password(given, **cost)


@user.command()
@target_options
@click.argument("name")
@_FILE
@DRY_RUN
def password(target: Target, name: str, file: Path | None, dry_run: bool) -> None:
    """Another password; what the user has open is closed."""
    changes.user_of(document_of(target), name)
    hashed = _hashed(target, password_from(file))
    said = f"{name}: password changed"
    apply(target, lambda d: changes.alter_user(d, name, password=hashed), said, is_dry=dry_run)


@user.command()
@target_options
@click.argument("name")
@click.option("--role", "roles", help="A role that it gets.", **_MANY)
@click.option("--no-role", "lost", help="A role that it loses.", **_MANY)
@click.option("--os-user", "os_users", help="Whose processes need no password.", **_MANY)
@click.option("--no-os-user", "left", help="Whose processes need one again.", **_MANY)
@click.option("--os-group", "groups", help="A group whose processes need none.", **_MANY)
@click.option("--no-os-group", "no_groups", help="Whose processes need one again.", **_MANY)
@click.option("--address", "networks", help="A network that it comes from alone.", **_NETWORKS)
@click.option("--no-address", "no_networks", help="No more; none left: from anywhere.", **_NETWORKS)
@click.option(
    "--not-after", metavar="TIME", help="Until when it may log in, such as 2027-01-31; or none."
)
@click.option(
    "--two-factors/--no-two-factors",
    "two_factors",
    default=None,
    help="Key or process, and password or token too; or one of them.",
)
@DRY_RUN
def alter(
    target: Target,
    name: str,
    roles: tuple[str, ...],
    lost: tuple[str, ...],
    os_users: tuple[str, ...],
    left: tuple[str, ...],
    groups: tuple[str, ...],
    no_groups: tuple[str, ...],
    networks: tuple[str, ...],
    no_networks: tuple[str, ...],
    not_after: str | None,
    two_factors: bool | None,
    dry_run: bool,
) -> None:
    """Change the roles of a user, whose processes are it, from where and until when it comes, or
    how many proofs it takes."""
    ends = None if not_after is None else _time_of(not_after)

    def change(document: SecurityDocument) -> SecurityDocument:
        known = changes.user_of(document, name)
        return changes.alter_user(
            document,
            name,
            roles=_changed(known.roles, roles, lost),
            os_users=_changed(known.os_users, os_users, left),
            os_groups=_changed(known.os_groups, groups, no_groups),
            addresses=_changed(known.addresses, networks, no_networks),
            not_after=known.not_after if not_after is None else ends,
            two_factors=known.two_factors if two_factors is None else two_factors,
        )

    apply(target, change, f"{name}: altered", is_dry=dry_run)


def _time_of(given: str) -> datetime | None:
    """In UTC where it does not say otherwise; None for "none"."""
    if given == "none":
        return None
    try:
        found = datetime.fromisoformat(given)
    except ValueError as fault:
        raise InvalidArgument(what="--not-after", detail=f"{given!r}: {fault}") from fault
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@user.command()
@target_options
@click.argument("name")
@click.argument("key")
@click.option("--remove", "is_removed", is_flag=True, help="Take the key away.")
@DRY_RUN
def key(target: Target, name: str, key: str, is_removed: bool, dry_run: bool) -> None:
    """A client key more, or less, of a user."""
    said = f"{name}: key {'removed' if is_removed else 'added'}"
    apply(
        target, lambda d: changes.set_key(d, name, key, is_removed=is_removed), said, is_dry=dry_run
    )


@user.command()
@target_options
@click.argument("name")
@click.argument("wanted", nargs=-1, required=True, metavar="LIMIT=NUMBER…")
@DRY_RUN
def limit(target: Target, name: str, wanted: tuple[str, ...], dry_run: bool) -> None:
    """Limit what a user has open and sends: connections, sessions, producers, consumers,
    subscriptions, temporary_destinations, transactions, calls, subscription_bytes, messages_per_s,
    bytes_per_s, bytes_in_flight; LIMIT=none takes one away.
    """
    given = {}
    for one in wanted:
        word, equals, value = one.partition("=")
        if not equals:
            raise InvalidArgument(what="limit", detail=f"{one!r} is not LIMIT=NUMBER")
        given[word] = value
    apply(target, lambda d: changes.set_limits(d, name, given), f"{name}: limited", is_dry=dry_run)


def _switch(verb: str, done: str, text: str, is_enabled: bool) -> click.Command:
    @click.command(verb, help=text)
    @target_options
    @click.argument("name")
    @DRY_RUN
    def switch(target: Target, name: str, dry_run: bool) -> None:
        def change(document: SecurityDocument) -> SecurityDocument:
            return changes.alter_user(document, name, enabled=is_enabled)

        order = f"user.{verb}", {"name": name}
        apply(target, change, f"{name}: {done}", is_dry=dry_run, order=order)

    return switch


user.add_command(_switch("enable", "enabled", "Let a user in again.", is_enabled=True))
user.add_command(
    _switch("disable", "disabled", "Let a user in no more; close what it has.", is_enabled=False)
)


@user.command()
@target_options
@click.argument("name")
@DRY_RUN
def logout(target: Target, name: str, dry_run: bool) -> None:
    """Close all that a user has open; it may log in again."""
    said, order = f"{name}: logged out", ("user.logout", {"name": name})
    apply(target, lambda d: changes.log_out(d, name), said, is_dry=dry_run, order=order)


@user.command()
@target_options
@click.argument("name")
@click.option(
    "--forget",
    "is_forgotten",
    is_flag=True,
    help="End its durable subscriptions and schedules at the running node, too.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@DRY_RUN
def delete(target: Target, name: str, is_forgotten: bool, yes: bool, dry_run: bool) -> None:
    """End a user; its durable subscriptions stay, and collect nothing more."""
    if not (yes or dry_run):
        click.confirm(f"Delete the user {name}?", abort=True, err=True)
    apply(target, lambda d: changes.delete_user(d, name), f"{name}: deleted", is_dry=dry_run)
    if is_forgotten and not dry_run:
        ended = forget(target, name)
        said = f"{name}: forgotten; ended {', '.join(ended) or 'nothing more'}"
        target.say(said, {"said": said, "ended": ended})


@user.command()
@target_options
@click.argument("name")
@click.option("--for", "period", default="90d", show_default=True, help="How long: 90d, 12h, 30m.")
@click.option("--id", "token_id", help="What it is called.  [default: NAME.N]")
@click.option("--role", "roles", help="The only role of the user that it has.", **_MANY)
def token(
    target: Target, name: str, period: str, token_id: str | None, roles: tuple[str, ...]
) -> None:
    """Make an API token of a user, and print it: this once."""
    ends, made = ends_at(period), ["", ""]

    def change(document: SecurityDocument) -> SecurityDocument:
        made[0] = token_id or _free(document, name)
        changed, made[1] = changes.add_token(document, made[0], name, ends, roles)
        return changed

    change_security(path_of(target), change)
    said = {"id": made[0], "user": name, "expires_at": ends.isoformat(), "token": made[1]}
    target.say(made[1], said)


@user.command("revoke-token")
@target_options
@click.argument("token_id", metavar="ID")
@DRY_RUN
def revoke_token(target: Target, token_id: str, dry_run: bool) -> None:
    """End an API token; what its user has open is closed."""
    said = f"{token_id}: revoked"
    apply(target, lambda d: changes.revoke_token(d, token_id), said, is_dry=dry_run)


@user.command("list")
@target_options
@table_options
def list_(target: Target) -> None:
    """All users, and how each of them logs in."""
    document = document_of(target)
    rows = [{"name": name, **_shown(document, name)} for name in sorted(document.user)]
    show_table(target, rows, empty="There are no users.")


@user.command()
@target_options
@click.argument("name")
def show(target: Target, name: str) -> None:
    """One user."""
    document = document_of(target)
    entry = changes.user_of(document, name)
    tokens = {t: one for t, one in document.token.items() if one.user == name}
    ends: datetime | None = entry.not_after
    more = {
        "keys": list(entry.keys),
        "os_groups": list(entry.os_groups),
        "tokens": list(tokens),
        "token_ends": {t: one.expires_at.isoformat() for t, one in tokens.items()},
        "two_factors": entry.two_factors,
        "not_after": ends.isoformat() if ends else None,
        "addresses": list(entry.addresses),
        "generation": entry.generation,
        "limits": limits_of(document, name),
    }
    show_values(target, {"name": name, **_shown(document, name), **more})


def _shown(document: SecurityDocument, name: str) -> dict[str, Any]:
    """A user without what is secret."""
    has_token = any(one.user == name for one in document.token.values())
    return facts_of(document.user[name], has_token=has_token)


def _changed(
    known: tuple[str, ...], more: tuple[str, ...], less: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in (*known, *more) if one not in less))


def _free(document: SecurityDocument, name: str) -> str:
    number = 1
    while f"{name}.{number}" in document.token:
        number += 1
    return f"{name}.{number}"
