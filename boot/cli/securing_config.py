"""hms config secure and open: from a node that trusts anyone who reaches it to one that asks, and
back."""

import getpass
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.network_listener import Network, network_of
from hms.boot.cli.target import Target, target_options
from hms.boot.client_profiles import keeper_profile
from hms.boot.conf_editing import set_node_keys
from hms.boot.config import load
from hms.boot.entries import Node
from hms.boot.security_file import load_security, save_security
from hms.client.profiles.file_places import WORKING_FILE
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
@click.option(
    "--listen",
    "wanted",
    metavar="tcp://HOST:PORT",
    help="Let clients of other machines in there too, encrypted: a listener, its key, and a key "
    "of the administrator.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
def secure(
    target: Target, name: str | None, file: Path | None, wanted: str | None, dry_run: bool
) -> None:
    """Have the node ask who connects: an administrator, a security file, a local socket. What is
    there already is kept, and told."""
    config = target.config()
    node = config.node(target.node_name)
    caller = getpass.getuser()
    name = name or (caller if is_name(caller) else "administrator")
    network = None if wanted is None else network_of(config, node, name, wanted)
    if node.security is not None:
        said: dict[str, Any] = {"security": str(node.security)}
        _open_network(target, config.path, node, node.security, network, said, is_dry=dry_run)
        return
    path = config.path.parent / "security.toml"
    socket = node.runtime / f"{node.name}.sock"
    _check_new(path, socket)
    listen = [one for one in node.listen if one.startswith("ipc://")] or [f"ipc://{socket}"]
    said = {"user": name, "security": str(path), "listen": listen}
    text = config.path.read_text(encoding="utf-8")
    if network is not None:
        listen.append(network.listener)
        text = network.added_to(text)
        said |= network.described()
    half = _checked(
        config.path, set_node_keys(text, node.name, {"listen": listen, "security": path.name})
    )
    if dry_run:
        half.unlink()
        target.say(_told(node, said, "would be secured", network), said)
        return
    if network is not None:
        network.make_keys()
        network.write_profile()
        said |= network.described()
    password = secrets.token_urlsafe(18)
    keys = () if network is None else (network.public(),)
    entry = UserEntry(
        password=hash_password(password), os_users=(caller,), roles=ADMINISTRATOR, keys=keys
    )
    save_security(path, SecurityDocument(user={name: entry}))
    _put(config.path, half)
    if network is None:
        said["profile"] = _local_profile(config.path.parent, name, listen[0])
    if file is None:
        said["password"] = password
    else:
        _write_secret(file, password)
    target.say(_told(node, said, "is secured", network), said)


def _open_network(
    target: Target,
    conf: Path,
    node: Node,
    security: Path,
    network: Network | None,
    said: dict[str, Any],
    *,
    is_dry: bool,
) -> None:
    """Of a node that is secured: add what is missing of a listener."""
    document = load_security(security)
    told = f"{node.name} is secured by {security}"
    if network is None:
        target.say(told, said)
        return
    network.check_user(document)
    if network.listener not in node.listen:
        text = network.added_to(conf.read_text(encoding="utf-8"))
        listen = {"listen": [*node.listen, network.listener]}
        half = _checked(conf, set_node_keys(text, node.name, listen))
        if is_dry:
            half.unlink()
        else:
            network.make_keys()
            _put(conf, half)
    if not is_dry:
        network.make_keys()
        network.write_profile()
        network.give_key(security)
    said |= network.described()
    target.say("\n".join([told, *network.told(is_dry=is_dry)]), said)


@click.command("open")
@target_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def open_(target: Target, yes: bool) -> None:
    """Have the node trust anyone who reaches it, again; the security file stays."""
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
        f"{node.security} is kept, and so are client profiles: those that name a listener or a "
        "password lead nowhere then"
    )
    target.say(said, {"security": None, "kept": str(node.security), "listen": listen})


def _check_new(path: Path, socket: Path) -> None:
    if path.exists() or path.is_symlink():
        raise InvalidArgument(what=str(path), detail="it exists; name it as security in hms.conf")
    if len(os.fsencode(socket)) > SOCKET_BYTES_MAX:
        detail = "its path is too long for a local socket; give runtime a shorter one in hms.conf"
        raise InvalidArgument(what=str(socket), detail=detail)


def _local_profile(folder: Path, name: str, address: str) -> str:
    """Of the administrator's own processes on this machine; a file that is there is kept, and ""
    returned."""
    path = folder / WORKING_FILE
    said = [f"Of the administrator {name}, whose processes on this machine need no password."]
    is_written = keeper_profile(path, name, {"addresses": [address]}, said)
    return str(path) if is_written else ""


def _rewrite(path: Path, text: str) -> None:
    """In place of the file before, which is kept beside; what cannot be loaded is not put there."""
    _put(path, _checked(path, text))


def _checked(path: Path, text: str) -> Path:
    """The text in a file beside, which was loaded; the fault of one that cannot be."""
    half = path.with_name(f"{path.name}.new")
    half.write_text(text, encoding="utf-8")
    try:
        load(half)
    except BaseException:
        half.unlink()
        raise
    return half


def _put(path: Path, half: Path) -> None:
    """In place of the file before, which is kept beside."""
    shutil.copy2(path, path.with_name(f"{path.name}.bak"))
    half.replace(path)


def _write_secret(path: Path, secret: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as fault:
        raise InvalidArgument(what=str(path), detail=str(fault.strerror)) from fault
    with os.fdopen(handle, "w") as file:
        file.write(f"{secret}\n")


def _told(node: Node, said: dict[str, Any], done: str, network: Network | None) -> str:
    lines = [
        f"{node.name} {done} by {said['security']}; it listens at {', '.join(said['listen'])}",
        f"administrator: {said['user']}, without a password for its own processes on this machine",
    ]
    if "password" in said:
        lines.append(f"password, shown this once: {said['password']}")
    if network is not None:
        return "\n".join([*lines, *network.told(is_dry=done != "is secured")])
    if said.get("profile"):
        lines.append(f"client profile {said['user']}: {said['profile']}")
        second = f"hms profile check {WORKING_FILE}"
    else:
        lines += [f"{WORKING_FILE} is kept as it is"] if "profile" in said else []
        second = f"hms profile export {said['user']} --user {said['user']}"
    lines += [
        "next: 1. hms boot",
        f"      2. {second}",
        "      3. for each application: hms role create ROLE, hms permission grant ROLE …,",
        "         hms user add APP --role ROLE --password, hms profile export APP --user APP",
    ]
    return "\n".join(lines)
