"""hms config secure and open: from a node that trusts whoever reaches it to one that asks, and
back."""

import getpass
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.target import Target, target_options
from hms.boot.conf_editing import set_node_keys
from hms.boot.config import load
from hms.boot.entries import Node
from hms.boot.security_file import save_security
from hms.errors.catalogue import InvalidArgument
from hms.server.logins.passwords import hash_password
from hms.server.logins.security_document import SecurityDocument, UserEntry, is_name

__all__ = ["open_", "secure"]

ADMINISTRATOR = ("admin", "security")
SOCKET_BYTES_MAX = 107
"""The longest path that the kernel takes for a local socket, its last byte not counted."""


@click.command()
@target_options
@click.option("--user", "name", help="The administrator.  [default: who runs this]")
@click.option(
    "--password-file",
    "file",
    type=click.Path(path_type=Path),
    help="Where its password is written; else it is printed, this once.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
def secure(target: Target, name: str | None, file: Path | None, dry_run: bool) -> None:
    """Have the node ask who connects: an administrator, a security file, a local socket."""
    config = target.config()
    node = config.node(target.node_name)
    caller = getpass.getuser()
    name = name or (caller if is_name(caller) else "administrator")
    if node.security is not None:
        target.say(f"{node.name} is secured by {node.security}", {"security": str(node.security)})
        return
    path = config.path.parent / "security.toml"
    socket = node.runtime / f"{node.name}.sock"
    _check_new(path, socket)
    listen = [one for one in node.listen if one.startswith("ipc://")] or [f"ipc://{socket}"]
    said = {"user": name, "security": str(path), "listen": listen}
    if dry_run:
        target.say(_told(node, said, "would be secured"), said)
        return
    password = secrets.token_urlsafe(18)
    entry = UserEntry(password=hash_password(password), os_users=(caller,), roles=ADMINISTRATOR)
    save_security(path, SecurityDocument(user={name: entry}))
    text = config.path.read_text(encoding="utf-8")
    keys = {"listen": listen, "security": path.name}
    _rewrite(config.path, set_node_keys(text, node.name, keys))
    if file is None:
        said["password"] = password
    else:
        _write_secret(file, password)
    target.say(_told(node, said, "is secured"), said)


@click.command("open")
@target_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def open_(target: Target, yes: bool) -> None:
    """Have the node trust whoever reaches it, again; the security file stays."""
    config = target.config()
    node = config.node(target.node_name)
    if node.security is None:
        target.say(f"{node.name} is open", {"security": None})
        return
    if not yes:
        asked = f"Every process that reaches {node.name} will be its administrator. Type its name"
        if click.prompt(asked, err=True) != node.name:
            raise click.Abort
    listen = [one for one in node.listen if "://" in one]  # a [listener.NAME] is for a secured one
    keys: dict[str, Any] = {"security": None}
    keys |= {"listen": listen} if listen != list(node.listen) else {}
    text = config.path.read_text(encoding="utf-8")
    _rewrite(config.path, set_node_keys(text, node.name, keys))
    said = (
        f"{node.name} is open from its next boot on, at {', '.join(listen)}; "
        f"{node.security} is kept"
    )
    target.say(said, {"security": None, "kept": str(node.security), "listen": listen})


def _check_new(path: Path, socket: Path) -> None:
    if path.exists() or path.is_symlink():
        raise InvalidArgument(what=str(path), detail="it exists; name it as security in hms.conf")
    if len(os.fsencode(socket)) > SOCKET_BYTES_MAX:
        detail = "its path is too long for a local socket; give runtime a shorter one in hms.conf"
        raise InvalidArgument(what=str(socket), detail=detail)


def _rewrite(path: Path, text: str) -> None:
    """In place of the file before, which is kept beside; what cannot be loaded is not put there."""
    half = path.with_name(f"{path.name}.new")
    half.write_text(text, encoding="utf-8")
    try:
        load(half)
    except BaseException:
        half.unlink()
        raise
    shutil.copy2(path, path.with_name(f"{path.name}.bak"))
    half.replace(path)


def _write_secret(path: Path, secret: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as fault:
        raise InvalidArgument(what=str(path), detail=str(fault.strerror)) from fault
    with os.fdopen(handle, "w") as file:
        file.write(f"{secret}\n")


def _told(node: Node, said: dict[str, Any], done: str) -> str:
    lines = [
        f"{node.name} {done} by {said['security']}; it listens at {', '.join(said['listen'])}",
        f"administrator: {said['user']}, without a password for its own processes on this machine",
    ]
    if "password" in said:
        lines.append(f"password, shown this once: {said['password']}")
    lines += [
        "next: hms boot",
        '      hms role create billing && hms permission grant billing "produce queue:orders"',
        "      hms user add billing --role billing --password",
    ]
    return "\n".join(lines)
