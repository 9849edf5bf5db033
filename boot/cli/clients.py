"""hms client, consumer and producer: who is connected, what each has open; closing and banning."""

import ipaddress
import sys
from typing import Any

import click

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.cli.time_spans import SPAN
from hms.boot.counts import counted

__all__ = ["client", "consumer", "producer"]

client = click.Group("client", help="Clients: list, show, close or ban them.")
LISTED_AT_ONCE = 1000
SHOWN = 5
COLUMNS = ("id", "client_id", "client_name", "from", "since", "in_flight")


@client.group("config")
def client_config() -> None:
    """What hms-client.toml gives the clients that are started here."""


@client_config.command("show")
@click.option("--profile", "name", metavar="NAME", help="With this profile.")
@click.option("--json", "is_json", is_flag=True, help="Answer in JSON.")
def show_config(name: str | None, is_json: bool) -> None:
    """Print each value with its origin: the profile, [defaults], or built in."""
    from hms.boot.cli.profiles import show_values_of  # noqa: PLC0415 - not for --help

    show_values_of(name, is_json=is_json)


@client.command("list")
@target_options
@table_options
@click.option("--user", help="Of this user alone.")
@click.option("--client-name", help="Of this name alone.")
@click.option("--address", "network", help="From this address or network alone.")
@click.option("--destination", help="With a consumer or producer there, such as queue:orders.")
@click.option("--idle-for", "idle_s", type=SPAN, default=0, help="Silent for so long, such as 5m.")
def list_(
    target: Target,
    user: str | None,
    client_name: str | None,
    network: str | None,
    destination: str | None,
    idle_s: float,
) -> None:
    """Who is connected, from where, and how much each has open and in flight."""
    within = _network(network)
    with target.connection() as connection:
        found = _pages(connection, "client.list", "id", LISTED_AT_ONCE)
        at: set[int] | None = None
        if destination:
            opened = [
                row
                for verb in ("consumer.list", "producer.list")
                for row in _pages(connection, verb, "client", 1, destination=destination)
            ]
            at = {row["client"] for row in opened}
    rows = [
        row
        for row in _chosen(found, user, client_name, within)
        if (at is None or row["id"] in at) and row.get("idle_s", 0) >= idle_s
    ]
    if not target.is_json:
        rows = [row | {"since": row["since_ms"], "from": _place(row)} for row in rows]
    empty = "no such client is connected"
    show_table(target, rows, empty=empty, columns=COLUMNS, times=("since",))


def _chosen(
    rows: list[dict[str, Any]], user: str | None, client_name: str | None, within: Any
) -> list[dict[str, Any]]:
    """Those of a user, of a name and from a network, where these are given."""
    return [
        row
        for row in rows
        if user in (None, row["user"])
        and client_name in (None, row["client_name"])
        and (within is None or _is_within(row.get("address", ""), within))
    ]


def _pages(connection: Any, verb: str, by: str, at_once: int, **more: Any) -> list[dict[str, Any]]:
    """All pages; at_once: fewer than so many rows are the last page."""
    found: list[dict[str, Any]] = []
    page = connection.administer(verb, more)
    while page:
        found += page
        after = {"after": page[-1][by]}
        page = connection.administer(verb, more | after) if len(page) >= at_once else []
    return found


def _network(text: str | None) -> Any:
    try:
        return None if text is None else ipaddress.ip_network(text)
    except ValueError as fault:
        raise click.UsageError(f"--address: {fault}") from fault


def _is_within(address: str, network: Any) -> bool:
    try:
        return ipaddress.ip_address(address) in network
    except ValueError:
        return False


def _place(row: dict[str, Any]) -> str:
    local = f"uid {row['uid']}" if row.get("uid", -1) >= 0 else ""
    return str(row.get("address") or local)


@client.command()
@target_options
@click.argument("number", metavar="ID", type=int)
def show(target: Target, number: int) -> None:
    """One client, with its consumers and producers."""
    show_values(target, target.administer("client.show", number=number))


@client.command()
@target_options
@click.argument("number", metavar="[ID]", type=int, required=False)
@click.option("--user", help="Those of this user instead.")
@click.option("--client-name", help="Those of this name.")
@click.option("--address", "network", help="Those from this address or network.")
@click.option("--reason", default="", help="What the client is told.")
@click.option("--yes", is_flag=True, help="Do not ask; it asks on a terminal only.")
def close(
    target: Target,
    number: int | None,
    user: str | None,
    client_name: str | None,
    network: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Close a client's connection, or those that are chosen; each is told why, and may connect
    again."""
    is_chosen = any((user, client_name, network))
    if is_chosen == (number is not None):
        raise click.UsageError("say which: an ID, or --user, --client-name and --address")
    if number is not None:
        if not yes and sys.stdin.isatty():
            click.confirm(f"Close client {number}?", abort=True, err=True)
        target.administer("client.close", number=number, reason=reason)
        target.say(f"client {number}: closed", {"client": number, "closed": True})
        return
    within = _network(network)
    with target.connection() as connection:
        me = connection.requests.link.welcome.connection
        found = _pages(connection, "client.list", "id", LISTED_AT_ONCE)
        ids = [row["id"] for row in _chosen(found, user, client_name, within) if row["id"] != me]
        if ids and not yes and sys.stdin.isatty():
            first = " ".join(map(str, ids[:SHOWN]))
            click.echo(f"{counted(len(ids), 'client')}: {first}", err=True)
            click.confirm(f"Close {counted(len(ids), 'client')}?", abort=True, err=True)
        closed = [one for one in ids if _closed(connection, one, reason)]
    said = {"clients": closed, "closed": len(closed)}
    target.say(f"{counted(len(closed), 'client')} closed", said)


def _closed(connection: Any, number: int, reason: str) -> bool:
    """Whether it was there still."""
    from hms.errors.catalogue import ClientNotFound  # noqa: PLC0415 - not for --help

    try:
        connection.administer("client.close", {"number": number, "reason": reason})
    except ClientNotFound:
        return False
    return True


def _whom(command: Any) -> Any:
    """The options that say of whom a ban is."""
    for option in (
        click.option("--address", "network", help="Of an address or network, such as 10.1.0.0/16."),
        click.option("--client-name", help="Of clients with that name."),
        click.option("--client-id", help="Of that client id."),
        click.option("--user", help="Of that user."),
    ):
        command = option(command)
    return command


_BY = {"network": "address"}


def _by(chosen: dict[str, str | None]) -> tuple[str, str]:
    given = [(_BY.get(name, name), value) for name, value in chosen.items() if value]
    if len(given) != 1:
        raise click.UsageError("one of --user, --client-id, --client-name or --address is needed")
    return given[0]


@client.command()
@target_options
@_whom
@click.option("--for", "span_s", type=SPAN, default=3600, help="Such as 1h; 0: until it is ended.")
@click.option("--reason", default="", help="What the client is told.")
@click.option("--yes", is_flag=True, help="Do not ask; it asks on a terminal only.")
def ban(target: Target, span_s: float, reason: str, yes: bool, **chosen: str | None) -> None:
    """Close clients and keep them out for an hour, or --for as long; they are told why."""
    by, value = _by(chosen)
    if not yes and sys.stdin.isatty():
        click.confirm(f"Close and ban {by} {value}?", abort=True, err=True)
    span = {"by": by, "value": value, "seconds": round(span_s)}
    said = target.administer("client.ban", **span, reason=reason)
    how_long = f"for {round(span_s)} s" if span_s else "until it is ended"
    text = f"{by} {value}: banned {how_long}, {counted(said['closed'], 'client')} closed"
    target.say(text, {**span, **said})


@client.command()
@target_options
@_whom
def unban(target: Target, **chosen: str | None) -> None:
    """Let a banned client in again."""
    by, value = _by(chosen)
    target.administer("client.unban", by=by, value=value)
    target.say(f"{by} {value}: may connect again", {"by": by, "value": value})


@client.command()
@target_options
@table_options
def bans(target: Target) -> None:
    """Who is kept out, since when, until when and why."""
    rows = target.administer("client.bans")
    if not target.is_json:
        for row in rows:
            row["since"] = row.pop("since_ms")
            row["until"] = row.pop("until_ms") or "it is ended"
    show_table(target, rows, empty="nobody is banned", times=("since", "until"))


def _opened(group: click.Group, verb: str, said: str, columns: tuple[str, ...]) -> None:
    @group.command("list", help=said)
    @target_options
    @table_options
    @click.option("--destination", default="", help="Of this one alone, such as queue:orders.")
    def list_opened(target: Target, destination: str) -> None:
        with target.connection() as connection:
            rows = _pages(connection, verb, "client", 1, destination=destination)
        empty = f"there is no {group.name}"
        show_table(target, rows, empty=empty, columns=("client", "client_id", *columns))


consumer = click.Group("consumer", help="List consumers.")
producer = click.Group("producer", help="List producers.")
_opened(
    consumer,
    "consumer.list",
    "The consumers of all clients, with what each has in flight.",
    ("destination", "name", "in_flight", "oldest_in_flight"),
)
_opened(
    producer,
    "producer.list",
    "The producers of all clients.",
    ("user", "destination", "session", "last_sequence"),
)
