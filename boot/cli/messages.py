"""hms message: look at messages that wait, move, copy, delete, expire and alter them."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.exporting import export, import_
from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.cli.values import TIMES_OF_A_LETTER
from hms.boot.counts import counted

__all__ = ["asked_for", "confirm", "message", "selection_options"]

message = click.Group(
    "message",
    help="""Messages that wait: list, view, move, copy, delete, expire or alter them.

    PLACE is queue:NAME, subscription:NAME[@TOPIC] or retained:PATTERN.""",
)
message.add_command(export)
message.add_command(import_)
COLUMNS = ("id", "time", "type", "priority", "kind", "bytes", "count", "state", "expires")
LISTED = ("id", "time", "kind", "bytes", "count", "state")
KINDS = ("bytes", "text", "map", "stream", "object", "file", "empty")
_KIND_MASK = 15
ARRIVAL_S, ARRIVAL_POLL_S = 10.0, 0.02
_TIMES = ("time", "expires", "due")

_SELECTION = (
    click.option("--id", "ids", multiple=True, help="These; - reads ids from standard input."),
    click.option("--selector", default="", help='Those that fit, such as "Table > 4".'),
    click.option("--from", "since", help="Sent at this time or later, such as 2026-05-01T08:00."),
    click.option("--until", help="Sent before this time."),
    click.option("--older-than", "older_than_s", type=click.FloatRange(0), help="Seconds."),
    click.option("--type", "type_", default="", help="Of this JMSType."),
    click.option("--min-count", type=click.IntRange(0), default=0, help="Delivered so often."),
    click.option("--state", type=click.Choice(["waiting", "delayed", "in_flight"])),
    click.option("--limit", type=click.IntRange(1), help="The most messages."),
    click.option("--newest", is_flag=True, help="The newest first."),
)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which messages are meant."""
    for option in reversed(_SELECTION):
        command = option(command)
    return command


def _changing(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask; it asks on a terminal only."),
        click.option("--dry-run", "is_dry", is_flag=True, help="Count, and change nothing."),
        click.option("--pause", "is_paused", is_flag=True, help="Consumers get none meanwhile."),
        click.option("--atomic", "is_atomic", is_flag=True, help="All of it as one, or nothing."),
        click.option("--all", "is_all", is_flag=True, help="All of them are meant."),
    ):
        command = option(command)
    return selection_options(command)


def asked_for(**chosen: Any) -> dict[str, Any]:
    """The arguments of where(), from the options."""
    times = {name: _moment(name, chosen[name]) for name in ("since", "until") if chosen[name]}
    return {
        "selector": chosen["selector"],
        "ids": _ids(chosen["ids"]),
        "older_than_s": chosen["older_than_s"] or 0,
        "type": chosen["type_"],
        "min_count": chosen["min_count"],
        "state": chosen["state"] or "",
        "limit": chosen["limit"] or 0,
        "newest_first": chosen["newest"],
        **times,
    }


def _ids(given: tuple[str, ...]) -> list[str]:
    return [id_ for one in given for id_ in (sys.stdin.read().split() if one == "-" else [one])]


def _moment(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as fault:
        raise click.UsageError(f"--{name}: {text!r} is no time such as 2026-05-01T08:00") from fault
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@message.command("list")
@target_options
@table_options
@click.argument("place")
@selection_options
@click.option("--properties", default="", help="Whose values are shown: names, with commas.")
@click.option("--count", "is_count", is_flag=True, help="Their number alone.")
def list_(target: Target, place: str, properties: str, is_count: bool, **chosen: Any) -> None:
    """What waits in PLACE, is delayed or in flight, as it arrived; 1,000 unless limited."""
    with target.connection() as connection:
        found = connection.admin.messages(place).where(**asked_for(**chosen))
        if is_count:
            outcome = found.count()
            target.say(str(outcome.count), {"place": place, "count": outcome.count})
            return
        rows = found.list(properties.replace(",", " ").split())
    if not target.is_json:
        rows = [_readable(row) for row in rows]
    shown = (*LISTED, *(name for row in rows[:1] for name in row.get("properties", {})))
    empty = f"no such message in {place}"
    show_table(target, rows, empty=empty, columns=shown, times=_TIMES)


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    shown = {**row, **{name: row[f"{name}_ms"] for name in _TIMES}}
    kind = row["kind"] & _KIND_MASK
    shown["kind"] = KINDS[kind] if kind < len(KINDS) else str(kind)
    cells: dict[str, Any] = {name: "" if shown[name] is None else shown[name] for name in COLUMNS}
    return cells | dict(row.get("properties", {}))


@message.command()
@target_options
@click.argument("place")
@click.argument("message_id")
@click.option("--body", type=click.Choice(["text", "hex"]), default="text", show_default=True)
@click.option("--max-bytes", type=click.IntRange(0), default=4096, show_default=True)
@click.option("--raw", type=click.Path(path_type=Path), help="The body, as it is, into this file.")
def view(
    target: Target, place: str, message_id: str, body: str, max_bytes: int, raw: Path | None
) -> None:
    """One message of PLACE: header fields, properties and the beginning of its body."""
    from hms.wire.packed_messages import decode_head  # noqa: PLC0415 - not for --help

    with target.connection() as connection:
        wanted = (1 << 30) if raw is not None else max_bytes
        shown = connection.admin.view(place, message_id, wanted)
    data, head = shown.pop("body"), decode_head(shown.pop("head"))
    if raw is not None:
        if data is None:
            raise click.ClickException("its body is in the log only: receive it, or move it")
        raw.write_bytes(data)
        data = data[:max_bytes]
    del shown["has_more"]
    own = {"correlation_id": head.correlation_id, "reply_to": head.reply_to}
    values = {**shown, **own, **dict(head.node), **dict(head.properties)}
    if not target.is_json:
        values = {**_readable(shown), **own, **dict(head.node), **dict(head.properties)}
    values["body"] = _said(data, body)
    found = {name: value for name, value in values.items() if value is not None}
    show_values(target, found, times=() if target.is_json else (*_TIMES, *TIMES_OF_A_LETTER))


def _said(data: bytes | None, how: str) -> str:
    if data is None:
        return "(in the log only)"
    return data.hex(" ") if how == "hex" else data.decode(errors="backslashreplace")


@message.command()
@target_options
@click.argument("place")
@click.option("--to", required=True, help="The queue that gets them.")
@click.option("--to-node", "node", default="", help="The queue is at this node of the cluster.")
@click.option("--reset-count", is_flag=True, help="As if they had never been delivered.")
@_changing
def move(target: Target, place: str, to: str, node: str, reset_count: bool, **rest: Any) -> None:
    """Move messages to another queue; they keep id, time, priority, expiry and properties.

    With --to-node they go to that node's queue. What it does not take comes back, and is told; so
    is what is still on its way after 10 s, which goes on without this command.
    """
    more = {"to": to, "reset_count": reset_count} | ({"node": node} if node else {})
    _change(target, place, "moved", "move", rest, **more)


@message.command()
@target_options
@click.argument("place")
@click.option("--to", required=True, help="The queue that gets them.")
@_changing
def copy(target: Target, place: str, to: str, **rest: Any) -> None:
    """Copy messages to a queue; copies have ids of their own, and $OriginalMessageID."""
    _change(target, place, "copied", "copy", rest, to=to)


@message.command()
@target_options
@click.argument("place")
@_changing
def delete(target: Target, place: str, **rest: Any) -> None:
    """Remove messages; each is counted and in the history."""
    _change(target, place, "deleted", "delete", rest)


@message.command()
@target_options
@click.argument("place")
@_changing
def expire(target: Target, place: str, **rest: Any) -> None:
    """Have messages expire now: they go where the place sends what expires."""
    _change(target, place, "expired", "expire", rest)


@message.command()
@target_options
@click.argument("place")
@click.option("--priority", type=click.IntRange(0, 9))
@click.option("--ttl", "ttl_s", type=click.FloatRange(0), help="Seconds from now on; 0: forever.")
@click.option("--deliver-at", help="Not before this time, such as 2026-05-01T08:00.")
@_changing
def alter(
    target: Target,
    place: str,
    priority: int | None,
    ttl_s: float | None,
    deliver_at: str | None,
    **rest: Any,
) -> None:
    """Give waiting messages another priority, time to live or time of delivery."""
    at = None if deliver_at is None else _moment("deliver-at", deliver_at)
    _change(target, place, "altered", "alter", rest, priority=priority, ttl_s=ttl_s, deliver_at=at)


def _change(
    target: Target, place: str, done: str, verb: str, rest: dict[str, Any], **more: Any
) -> None:
    is_all, is_dry, is_sure = rest.pop("is_all"), rest.pop("is_dry"), rest.pop("yes")
    is_atomic, is_paused = rest.pop("is_atomic"), rest.pop("is_paused")
    chosen = asked_for(**rest)
    if not (is_all or any(chosen.values())):
        raise click.UsageError("say which messages, such as with --selector or --id, or --all")
    with target.connection() as connection:
        found = connection.admin.messages(place).where(**chosen)
        found = found.everything() if is_all else found
        found = found.atomic() if is_atomic else found
        found = found.paused() if is_paused else found
        if is_dry:
            outcome = getattr(found.dry_run(), verb)(**more)
            _say_outcome(target, place, f"would be {done}", outcome)
            return
        confirm(
            f"{place}: {verb}", partial(getattr(found.dry_run(), verb), **more), is_sure=is_sure
        )
        so_far: list[Any] = []
        before = found.forwarded()["came_back"] if more.get("node") else 0
        try:
            outcome = getattr(found, verb)(**more, told=so_far.append)
        except Exception:
            if so_far:
                click.echo(f"{place}: {so_far[-1].count} {done} before it ended", err=True)
            raise
        away = _await_arrival(found, before) if more.get("node") else {}
    _say_outcome(target, place, done, outcome, away)


def _await_arrival(found: Any, before: int) -> dict[str, Any]:
    """How many came back from another node, and are on their way still."""
    until_s = time.monotonic() + ARRIVAL_S
    said = found.forwarded()
    while said["count"] and time.monotonic() < until_s:
        time.sleep(ARRIVAL_POLL_S)
        said = found.forwarded()
    came_back = said["came_back"] - before
    why = {"why": said["why"]} if came_back else {}
    return {"came_back": came_back, "on_their_way": said["count"], **why}


def confirm(what: str, count: Callable[[], Any], *, is_sure: bool) -> None:
    """Ask on a terminal, with the number and the first ids, if there are any."""
    if is_sure or not sys.stdin.isatty():
        return
    meant = count()
    if not meant.count:
        return
    click.echo(f"{counted(meant.count, 'message')}: {' '.join(meant.ids)}", err=True)
    click.confirm(f"{what} {counted(meant.count, 'message')}?", abort=True, err=True)


def _say_outcome(
    target: Target, place: str, done: str, outcome: Any, away: dict[str, Any] | None = None
) -> None:
    """What was done, and what was left out and why. away: of those that went to another node."""
    away = away or {}
    count = max(0, outcome.count - away.get("came_back", 0) - away.get("on_their_way", 0))
    text = f"{place}: {count} {done}"
    if away.get("on_their_way"):
        text += f", {away['on_their_way']} on their way"
    if away.get("came_back"):
        text += f", {away['came_back']} came back ({away['why']})"
    for why, number in outcome.left.items():
        text += f", {number} stay ({why})"
    if outcome.skipped_in_flight:
        text += f", skipped {outcome.skipped_in_flight} (in flight)"
    if outcome.skipped_ordered:
        text += f", skipped {outcome.skipped_ordered} (others wait for them)"
    if outcome.later:
        text += f"; {outcome.later} of them follow when their bodies are read"
    said = {
        "place": place,
        done.replace(" ", "_"): count,
        "skipped_in_flight": outcome.skipped_in_flight,
        "skipped_ordered": outcome.skipped_ordered,
        "later": outcome.later,
        "ids": list(outcome.ids),
        **away,
        **({"left": dict(outcome.left)} if outcome.left else {}),
    }
    target.say(text, said)
