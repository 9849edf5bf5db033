"""What the commands for users, roles and permissions share: the node's security file."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.target import Target
from hms.boot.security_file import change_security, load_security
from hms.errors.catalogue import InvalidArgument, NotConfigMaster, NotSupported
from hms.server.logins.security_document import SecurityDocument

__all__ = [
    "DRY_RUN",
    "apply",
    "check_master",
    "document_of",
    "ends_at",
    "password_from",
    "path_of",
]

DRY_RUN = click.option("--dry-run", is_flag=True, help="Check it, and change nothing.")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def path_of(target: Target) -> Path:
    """The security file of the node that is meant."""
    if target.address is not None:
        instead = "Give --config; a running node takes a changed file over within a second."
        raise NotSupported(feature="changing users over a connection", instead=instead)
    node = target.config().node(target.node_name)
    if node.security is None:
        instead = "Secure it first: hms config secure."
        raise NotSupported(
            feature=f"the management of users on {node.name}, an open node,", instead=instead
        )
    return node.security


def document_of(target: Target) -> SecurityDocument:
    """What the file says."""
    return load_security(path_of(target))


def apply(
    target: Target,
    change: Callable[[SecurityDocument], SecurityDocument],
    said: str,
    *,
    is_dry: bool,
    order: tuple[str, dict[str, Any]] | None = None,
) -> None:
    """Change the file, or only try to; a node that runs takes it over within a second. order: what
    a running node is told over a connection, to change its file itself."""
    if target.address is not None and order is not None and not is_dry:
        verb, arguments = order
        version = target.administer(verb, **arguments)["version"]
        target.say(f"{said}; version {version}", {"said": said, "version": version})
        return
    path = path_of(target)
    check_master(target)
    if is_dry:
        change(load_security(path))
        target.say(f"{said} (not done: --dry-run)", {"dry_run": True, "said": said})
        return
    version = change_security(path, change).version
    target.say(f"{said}; version {version}", {"said": said, "version": version})


def check_master(target: Target) -> None:
    """NotConfigMaster where only another node's file may be changed; it comes here from there."""
    config = target.config()
    master = config.policy_master_of(config.node(target.node_name))
    if master:
        raise NotConfigMaster(kind="policy", destination="", what="change", master=master)


def password_from(file: Path | None) -> str:
    """A password from a file, from standard input, or asked for twice at a terminal; never from an
    argument, which others can see."""
    if file is not None:
        try:
            return file.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as fault:
            raise InvalidArgument(what="password file", detail=f"{file}: {fault}") from fault
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def ends_at(text: str) -> datetime:
    """From now on for so long: 90d, 12h or 30m."""
    count, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not count.isdecimal() or not 0 < int(count) <= 36_500:  # noqa: PLR2004
        raise InvalidArgument(what="--for", detail=f"{text!r} is not such as 90d, 12h or 30m")
    now = datetime.now(UTC).replace(microsecond=0)
    return now + timedelta(**{_UNITS[unit]: int(count)})
