"""hms profile: the profiles of hms-client.toml; one is exported for a user, and tried."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from hms.boot.cli.security_target import check_master, document_of, path_of
from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, target_options
from hms.boot.client_profiles import (
    addresses_of,
    profile_text,
    server_keys_of,
    write_profile,
)
from hms.boot.entries import Listener
from hms.boot.security_file import change_security
from hms.client.connection import Connection
from hms.client.core.client_keys import check_server_keys
from hms.client.core.requests import checked_addresses
from hms.client.profiles.client_file import ClientFile, read_file
from hms.client.profiles.file_places import HOME_FILE, VARIABLE, WORKING_FILE, find_file
from hms.client.profiles.secret_references import checked_reference
from hms.client.profiles.settings import origins, settings_of
from hms.constants import AckMode
from hms.errors.catalogue import (
    ClientConfigError,
    InvalidArgument,
    KeyFileError,
    LinkKeyError,
    NotSupported,
    ProfileNotFound,
)
from hms.server.links.keys import make_key_file
from hms.server.logins import document_changes as changes
from hms.server.logins.security_document import UserEntry

__all__ = ["profile", "show_values_of"]

IPC = "ipc"
PERMISSIONS_SHOWN = 20
ANSWER_S = 30
_JSON = click.option("--json", "is_json", is_flag=True, help="Answer in JSON.")


@click.group()
def profile() -> None:
    """Client profiles of hms-client.toml: export one for a user, check it, list, show."""


# ---- of a node


class _Login(NamedTuple):
    """What a profile proves its user by: a key file as the profile names it, and references."""

    key_file: str
    password: str
    token: str


@profile.command()
@target_options
@click.argument("name")
@click.option("--user", required=True, help="Who logs in by it.")
@click.option("--new-key", is_flag=True, help="Make a key pair beside it, and give it the user.")
@click.option(
    "--key-file", "own_key", metavar="FILE", help="A key pair that the user has, as named there."
)
@click.option(
    "--password",
    metavar="REFERENCE",
    help="Where the password is there: file:PATH, env:NAME or cred:NAME.",
)
@click.option("--token", metavar="REFERENCE", help="Where a token is there, instead of a password.")
@click.option("--listener", "chosen", help="The [listener.NAME] that it uses; ipc: this machine.")
@click.option(
    "--address", "places", multiple=True, metavar="tcp://HOST:PORT", help="Where that is found."
)
@click.option(
    "--server-key", "more", multiple=True, metavar="KEY", help="Of another node behind --address."
)
@click.option("--output", type=click.Path(path_type=Path), help="A new file.  [default: NAME.toml]")
def export(
    target: Target,
    name: str,
    user: str,
    new_key: bool,
    own_key: str | None,
    password: str | None,
    token: str | None,
    chosen: str | None,
    places: tuple[str, ...],
    more: tuple[str, ...],
    output: Path | None,
) -> None:
    """Write [profile.NAME] for a client of USER on another machine.

    The file has addresses, the node's keys and where the client's proofs are, never a password. A
    client reads it as hms-client.toml in its folder, or as HMS_CLIENT_CONFIG names it.
    """
    if new_key and own_key:
        raise click.UsageError("--new-key makes a key pair, --key-file names one: give one")
    if password and token:
        raise click.UsageError("--password and --token both prove the user: give one of them")
    path_of(target)
    if new_key:
        check_master(target)
    entry = changes.user_of(document_of(target), user)
    output = _output(name, output)
    key_path = output.with_suffix(".key")
    listener = _listener(target, chosen)
    login = _login(entry, password, token, key_path.name if new_key else own_key or "")
    values = _place(target, listener, places, more) | _proofs(user, login)
    _check_lets_in(listener, login, entry, name)
    text = profile_text(name, values, _said(user, login))
    _write(target, user, output, key_path if new_key else None, text)
    told = [f"{output}: profile {name} of {user}, at {', '.join(values['addresses'])}"]
    if new_key:
        told.append(f"{key_path}: its key pair; copy both to the client's machine")
    if login.password or login.token:
        what = "password" if login.password else "token"
        told.append(f"the {what} belongs there: {login.password or login.token}")
    told.append(f"then, on that machine: hms profile check {output.name}")
    said = {"profile": name, "user": user, "file": str(output), **values}
    target.say("\n".join(told), said | ({"key_path": str(key_path)} if new_key else {}))


def _output(name: str, output: Path | None) -> Path:
    if not name.isprintable() or not name:
        raise InvalidArgument(what="NAME", detail="a profile has a name that can be printed")
    if output is None and ("/" in name or name.startswith(".")):
        raise InvalidArgument(what="NAME", detail=f"{name!r} is no name of a file: give --output")
    return output or Path(f"{name}.toml")


def _listener(target: Target, chosen: str | None) -> Listener | None:
    """The one that is meant; None for the local socket."""
    config = target.config()
    node = config.node(target.node_name)
    known = {one: config.listeners[one] for one in node.listen if one in config.listeners}
    if chosen is None and len(known) > 1:
        raise click.UsageError(f"{node.name} has listeners {', '.join(known)}: name one, or ipc")
    if chosen == IPC or (chosen is None and not known):
        return None
    if chosen is not None and chosen not in known:
        names = ", ".join([*known, IPC])
        detail = f"{node.name} does not listen at {chosen!r}, but at {names}"
        raise InvalidArgument(what="--listener", detail=detail)
    return known[chosen] if chosen else next(iter(known.values()))


def _place(
    target: Target, listener: Listener | None, places: tuple[str, ...], more: tuple[str, ...]
) -> dict[str, Any]:
    if listener is not None:
        where = checked_addresses(places or addresses_of(listener.address))
        shown = list(dict.fromkeys([*server_keys_of(listener), *more]))
        check_server_keys(shown)
        return {"addresses": where, "server_keys": shown}
    if more:
        raise click.UsageError("--server-key: a local socket shows no key")
    node = target.config().node(target.node_name)
    local = [one for one in node.listen if one.startswith("ipc://")]
    if not (places or local):
        detail = f"{node.name} listens at no local socket; name a listener"
        raise InvalidArgument(what="--listener", detail=detail)
    return {"addresses": checked_addresses(places or local[:1])}


def _login(entry: UserEntry, password: str | None, token: str | None, key_file: str) -> _Login:
    """A user with a password that has no key, or needs both, gets a place for it."""
    if token is not None:
        return _Login(key_file, "", checked_reference("--token", token))
    if password is not None:
        return _Login(key_file, checked_reference("--password", password), "")
    needs = bool(entry.password) and (not key_file or entry.two_factors)
    return _Login(key_file, "file:password" if needs else "", "")


def _proofs(user: str, login: _Login) -> dict[str, Any]:
    found: dict[str, Any] = {"key_file": login.key_file} if login.key_file else {}
    if login.token:
        return found | {"token": login.token}
    return found | ({"user": user, "password": login.password} if login.password else {})


def _check_lets_in(listener: Listener | None, login: _Login, entry: UserEntry, name: str) -> None:
    if listener is not None and listener.client_keys == "KNOWN" and not login.key_file:
        detail = (
            f"[listener.{listener.name}] lets in keys that it knows: give --new-key, or "
            "--key-file for one that the user has"
        )
        raise InvalidArgument(what=f"profile {name}", detail=detail)
    if listener is None and login.key_file:
        detail = "a local socket takes no keys: leave it out, or name a listener"
        raise InvalidArgument(what="--new-key or --key-file", detail=detail)
    if not (
        login.password or login.token or login.key_file or (listener is None and entry.os_users)
    ):
        detail = "the user has no password: give --new-key, --key-file, --password or --token"
        raise InvalidArgument(what=f"profile {name}", detail=detail)


def _said(user: str, login: _Login) -> list[str]:
    said = [f"Of user {user}: as {WORKING_FILE} in the client's folder, or named by {VARIABLE}."]
    if login.key_file:
        said.append(f"{login.key_file} belongs beside it, mode 0600.")
    for what, where in (("password", login.password), ("token", login.token)):
        if where.startswith("file:"):
            said.append(f"The {what} goes into {where.removeprefix('file:')}, mode 0600.")
    return said


def _write(target: Target, user: str, output: Path, key_path: Path | None, text: str) -> None:
    """The files first, then the key of the user: what is broken off lets nobody in. What cannot be
    done leaves no file."""
    written: list[Path] = []
    try:
        write_profile(output, text)
        written.append(output)
        if key_path is not None:
            public = _new_key(key_path)
            written.append(key_path)
            change_security(
                path_of(target), lambda d: changes.set_key(d, user, public, is_removed=False)
            )
    except BaseException:
        for path in written:
            with suppress(OSError):
                path.unlink()
        raise


def _new_key(path: Path) -> str:
    try:
        return make_key_file(path)
    except LinkKeyError as fault:
        raise KeyFileError(path=str(path), detail=str(fault.fields["detail"])) from fault


# ---- of a client


@profile.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--profile", "name", help="Which one; else the only one of the file.")
@_JSON
def check(file: Path, name: str | None, is_json: bool) -> None:
    """Connect by a profile of FILE and report what its user may do; exit code 1 when it does not
    get in."""
    found = read_file(file.absolute())
    name = name or _only(found)
    settings = settings_of(found, name, {"client_name": "hms profile check", "reconnect": False})
    settings.pop("member_defaults")
    addresses = settings.pop("addresses", None)
    if not addresses:
        raise ClientConfigError(
            report=f"{found.where('profile', name)}: [profile.{name}] has no addresses"
        )
    settings.setdefault("request_timeout_s", ANSWER_S)
    with Connection(addresses, **settings).open() as connection:
        said = {"profile": name, "file": str(found.path), **_met(connection)}
    Target(Path(), None, None, is_json).say("\n".join(_report(said)), said)


def _only(found: ClientFile) -> str:
    if len(found.profiles) != 1:
        names = ", ".join(sorted(found.profiles)) or "none"
        raise click.UsageError(f"{found.path} has profiles {names}: name one with --profile")
    return next(iter(found.profiles))


def _met(connection: Connection) -> dict[str, Any]:
    """Which node answers, and what it lets this client do. A node of the version before tells
    roles alone."""
    welcome = connection.link.welcome
    assert welcome is not None, "it is open"
    found: dict[str, Any] = {"node": welcome.node, "address": connection.link.address}
    found |= {"is_secured": welcome.is_secured, "user": welcome.user, "roles": list(welcome.roles)}
    if welcome.is_secured:
        with suppress(NotSupported):
            found |= connection.administer("login.show")
    return found


def _report(said: dict[str, Any]) -> Iterator[str]:
    yield f"profile {said['profile']} is good: {said['node']} answers at {said['address']}"
    if not said["is_secured"]:
        yield "the node is open: every client that reaches it may do everything"
        return
    by = f", by {said['by']}" if "by" in said else ""
    yield f"user {said['user']}{by}, roles {', '.join(said['roles']) or 'none'}"
    if "permissions" in said:
        shown = said["permissions"][:PERMISSIONS_SHOWN]
        yield from (f"  may {one}" for one in shown)
        more = said["permission_count"] - len(shown)
        if more:
            yield f"  and {more} more"
        if not shown:
            yield "  may do nothing: no role grants it anything"


@profile.command("list")
@table_options
@_JSON
def list_(is_json: bool) -> None:
    """The profiles of the file that clients read here."""
    found = _file_here()
    rows = [
        {
            "name": name,
            "addresses": ", ".join(held.get("addresses", ())),
            "user": held.get("user", ""),
            "proof": next((one for one in ("key_file", "password", "token") if one in held), ""),
        }
        for name, held in sorted((found.profiles if found else {}).items())
    ]
    empty = f"{found.path} has no profile." if found else _no_file()
    show_table(Target(Path(), None, None, is_json), rows, empty=empty)


@profile.command()
@click.argument("name")
@_JSON
def show(name: str, is_json: bool) -> None:
    """What holds by a profile, each value with its origin; of secrets where they are."""
    show_values_of(name, is_json=is_json)


def show_values_of(name: str | None, *, is_json: bool) -> None:
    """Each key with its value and its origin: the profile, [defaults], or built in."""
    found = _file_here()
    if found is None and name is not None:
        raise ProfileNotFound(name=name, where=_no_file())
    rows = [
        {"key": one.name, "value": _plain(one.value), "origin": one.where}
        for one in origins(found, name)
    ]
    if not is_json:
        click.echo(f"file: {found.path}" if found else _no_file())
        rows = [row | {"value": _written(row["value"])} for row in rows]
    show_table(Target(Path(), None, None, is_json), rows, empty="")


def _file_here() -> ClientFile | None:
    found = find_file()
    return None if found is None else read_file(found[0], is_found=found[1])


def _no_file() -> str:
    return f"there is neither {WORKING_FILE} here nor {HOME_FILE}, and {VARIABLE} names none"


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, AckMode) else value


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
