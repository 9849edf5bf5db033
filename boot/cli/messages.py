"""hms message: look at messages that wait, move, copy, delete, expire and alter them."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.exporting import export, import_
from hms.boot.cli.selection import asked_for, moment, selection_options
from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.cli.values import TIMES_OF_A_LETTER
from hms.boot.counts import counted

__all__ = ["confirm", "message", "tell_of_more"]

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
LISTED_MAX = 1000
"""Of a list without --limit."""
WAITED_MAX, WAIT_POLL_S = 10_000, 0.2
CAME_BACK, LEFT = "came back", "left"
"""How a command ended that did not do all of it."""
_TIMES = ("time", "expires", "due")
_TYPES = ("", "char", "short", "int", "long", "float", "double", "string", "carray", "bool")
"""By field_buffer's codes, as hms send --property names them."""


_AT_EACH = click.option(
    "--all-nodes", "at_each", is_flag=True, help="At each node of hms.conf, one after the other."
)


def _changing(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask; it asks on a terminal only."),
        click.option("--dry-run", "is_dry", is_flag=True, help="Count, and change nothing."),
        click.option("--pause", "is_paused", is_flag=True, help="Consumers get none meanwhile."),
        click.option("--atomic", "is_atomic", is_flag=True, help="All of it as one, or nothing."),
        click.option(
            "--wait", "wait_s", type=click.FloatRange(0), help="Seconds for what is in flight."
        ),
        click.option("--strict", "is_strict", is_flag=True, help="Exit code 1 for what is left."),
        click.option("--all", "is_all", is_flag=True, help="All of them are meant."),
        _AT_EACH,
    ):
        command = option(command)
    return selection_options(command)


@message.command("list")
@target_options
@table_options
@click.argument("place")
@selection_options
@click.option("--properties", default="", help="Whose values are shown: names, with commas.")
@click.option("--count", "is_count", is_flag=True, help="Their number alone.")
@_AT_EACH
def list_(
    target: Target, place: str, properties: str, is_count: bool, at_each: bool, **chosen: Any
) -> None:
    """What waits in PLACE, is delayed or in flight, as it arrived; 1,000 unless limited."""
    rows: list[dict[str, Any]] = []

    def look(one: Target) -> None:
        with one.connection() as connection:
            found = connection.admin.messages(place).where(**asked_for(**chosen))
            if is_count:
                outcome = found.count()
                one.say(str(outcome.count), {"place": place, "count": outcome.count})
                return
            listed = found.list(properties.replace(",", " ").split())
        tell_of_more(place, len(listed), chosen["limit"])
        rows.extend({"node": one.node_name, **row} if at_each else row for row in listed)

    is_whole = True
    if at_each:
        is_whole = _at_each(target, look)
    else:
        look(target)
    if not is_count:
        _show_rows(target, place, rows, at_each=at_each)
    if not is_whole:
        sys.exit(1)


def _show_rows(target: Target, place: str, rows: list[dict[str, Any]], *, at_each: bool) -> None:
    named = {name: None for row in rows for name in row.get("properties", {})}
    if not target.is_json:
        rows = [({"node": row["node"]} if at_each else {}) | _readable(row) for row in rows]
    first = ("node", *LISTED) if at_each else LISTED
    shown = (*first, *map(_column, named))
    empty = f"no such message in {place}"
    show_table(target, rows, empty=empty, columns=shown, times=_TIMES)


def _at_each(target: Target, work: Callable[[Target], object]) -> bool:
    """Whether it was done at each node: one that refuses, or does not answer, is told, and the
    others have theirs done."""
    from hms.errors.tree import HmsError  # noqa: PLC0415 - not for --help

    is_whole = True
    for one in target.each():
        try:
            work(one)
        except HmsError as fault:
            click.echo(f"{one.node_name}: {fault}", err=True)
            is_whole = False
    return is_whole


def tell_of_more(place: str, shown: int, limit: int | None) -> None:
    """Say that a list may have ended before the place did."""
    if shown == LISTED_MAX and limit is None:
        click.echo(f"{place}: the first {shown:,}; --limit shows more", err=True)


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    shown = {**row, **{name: row[f"{name}_ms"] for name in _TIMES}}
    kind = row["kind"] & _KIND_MASK
    shown["kind"] = KINDS[kind] if kind < len(KINDS) else str(kind)
    cells: dict[str, Any] = {name: "" if shown[name] is None else shown[name] for name in COLUMNS}
    return cells | {_column(name): value for name, value in row.get("properties", {}).items()}


def _column(name: str) -> str:
    """Where the value of a property stands: a sender may call one id."""
    return f"property {name}" if name in (*COLUMNS, "node") else name


@message.command()
@target_options
@click.argument("place")
@click.argument("message_id")
@click.option(
    "--body", type=click.Choice(["text", "hex", "json"]), default="text", show_default=True
)
@click.option("--max-bytes", type=click.IntRange(0), default=4096, show_default=True)
@click.option("--raw", type=click.Path(path_type=Path), help="The body, as it is, into this file.")
def view(
    target: Target, place: str, message_id: str, body: str, max_bytes: int, raw: Path | None
) -> None:
    """One message of PLACE: header fields, properties and the beginning of its body.

    A map, stream or object is shown by its values, a compressed body inflated, where it has at most
    1 MiB. --body json indents it; --body hex and --raw have its bytes as they are stored.
    A property stands with its type, as hms send --property takes it.
    """
    from hms.boot.body_text import body_text, needs_whole  # noqa: PLC0415 - not for --help
    from hms.wire.packed_messages import decode_head  # noqa: PLC0415 - the same

    with target.connection() as connection:
        wanted = (1 << 30) if raw is not None else max_bytes
        shown = connection.admin.view(place, message_id, wanted)
        is_whole = body == "json" or (body == "text" and needs_whole(shown["kind"], shown["bytes"]))
        if is_whole and shown["body"] is not None and len(shown["body"]) < shown["bytes"]:
            shown = connection.admin.view(place, message_id, shown["bytes"])
    data, head = shown.pop("body"), decode_head(shown.pop("head"))
    if raw is not None:
        if data is None:
            raise click.ClickException("its body is in the log only: receive it, or move it")
        _write_raw(raw, data)
        data = data if is_whole else data[:max_bytes]
    del shown["has_more"]
    own = {"correlation_id": head.correlation_id, "reply_to": head.reply_to, **dict(head.node)}
    typed = _typed(head.types, head.properties)
    if target.is_json:
        values = {**shown, **own, "properties": typed}
    else:
        typed_names = {f"{name}:{kind}": value for name, (kind, value) in typed.items()}
        values = {**_readable(shown), **own, **typed_names}
    said = body_text(shown["kind"], data, shown["bytes"], body)
    values["body"] = said if body == "json" else said[: max_bytes * (3 if body == "hex" else 1)]
    found = {name: value for name, value in values.items() if value is not None}
    show_values(target, found, times=() if target.is_json else (*_TIMES, *TIMES_OF_A_LETTER))


def _typed(codes: bytes, properties: dict[str, Any]) -> dict[str, list[Any]]:
    """[type, value] of each, by name; a head whose types do not fit its values is shown as well."""
    from field_buffer.types import infer_type  # noqa: PLC0415 - not for --help

    kinds: list[int] = [*codes]
    if len(kinds) != len(properties) or not all(0 < kind < len(_TYPES) for kind in kinds):
        kinds = [infer_type(value) for value in properties.values()]
    both = zip(kinds, properties.items(), strict=True)
    return {name: [_TYPES[kind], value] for kind, (name, value) in both}


def _write_raw(file: Path, data: bytes) -> None:
    """For this user's eyes alone, as exports are; whole or not at all."""
    part = file.with_name(f".{file.name}.part-{os.getpid()}")
    try:
        if file.exists() and not file.is_file():  # a pipe, or /dev/stdout
            file.write_bytes(data)
            return
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(data)
        part.replace(file)
    except OSError as fault:
        part.unlink(missing_ok=True)
        raise click.ClickException(f"{file} cannot be written: {fault.strerror}") from fault


@message.command()
@target_options
@click.argument("place")
@click.option("--to", required=True, help="The queue that gets them.")
@click.option("--to-node", "node", default="", help="The queue is at this node of the cluster.")
@click.option("--reset-count", is_flag=True, help="As if they had never been delivered.")
@click.option(
    "--break-order", is_flag=True, help="Of a global order too: its others wait no more for them."
)
@_changing
def move(
    target: Target,
    place: str,
    to: str,
    node: str,
    reset_count: bool,
    break_order: bool,
    **rest: Any,
) -> None:
    """Move messages to another queue; they keep id, time, priority, expiry and properties.

    With --to-node they go to that node's queue. What it does not take comes back, and is told; so
    is what is still on its way after 10 s, which goes on without this command.
    """
    if break_order and node:
        raise click.UsageError("--break-order moves to a queue of this node: not with --to-node")
    more: dict[str, Any] = {"to": to, "reset_count": reset_count}
    more |= ({"node": node} if node else {}) | ({"break_order": True} if break_order else {})
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
    at = None if deliver_at is None else moment("deliver-at", deliver_at)
    _change(target, place, "altered", "alter", rest, priority=priority, ttl_s=ttl_s, deliver_at=at)


def _change(
    target: Target, place: str, done: str, verb: str, rest: dict[str, Any], **more: Any
) -> None:
    """At the node that is asked, or at each. Exit code 1: at one of them it was not done, or came
    back from another node, or with --strict not all was done."""
    at_each, is_strict, ends = rest.pop("at_each"), rest.pop("is_strict"), list[str]()

    def work(one: Target) -> None:
        ends.append(_change_at(one, place, done, verb, dict(rest), **more))

    is_whole = True
    if at_each:
        is_whole = _at_each(target, work)
    else:
        work(target)
    if not is_whole or CAME_BACK in ends or (is_strict and any(ends)):
        sys.exit(1)


def _change_at(
    target: Target, place: str, done: str, verb: str, rest: dict[str, Any], **more: Any
) -> str:
    """CAME_BACK, LEFT where some that were meant were left, "" where none was."""
    from hms.errors.tree import HmsError  # noqa: PLC0415 - not for --help

    is_all, is_dry, is_sure = rest.pop("is_all"), rest.pop("is_dry"), rest.pop("yes")
    is_atomic, is_paused = rest.pop("is_atomic"), rest.pop("is_paused")
    wait_s = rest.pop("wait_s") or 0
    if wait_s and is_atomic:
        raise click.UsageError("--wait and --atomic: what is in flight is no part of one record")
    chosen = asked_for(**rest)
    if not (is_all or any(chosen.values())):
        raise click.UsageError("say which messages, such as with --selector or --id, or --all")
    with target.connection() as connection:
        here = connection.requests.link.welcome.node
        if more.get("node") == here:
            raise click.UsageError(f"--to-node {here} is the node that is asked: leave it out")
        found = connection.admin.messages(place).where(**chosen)
        found = found.everything() if is_all else found
        found = found.atomic() if is_atomic else found
        found = found.paused() if is_paused else found
        if is_dry:
            outcome = getattr(found.dry_run(), verb)(**more)
            _say_outcome(target, place, f"would be {done}", outcome, gone=_gone(chosen, outcome))
            return ""
        confirm(
            f"{place}: {verb}", partial(getattr(found.dry_run(), verb), **more), is_sure=is_sure
        )
        so_far: list[Any] = []
        out = _in_flight(connection, place, chosen) if wait_s else []
        before = found.forwarded()["came_back"] if more.get("node") else 0
        try:
            outcome = getattr(found, verb)(**more, told=so_far.append)
            if out and outcome.skipped_in_flight:
                outcome = _waited(connection, place, out, wait_s, outcome, verb, more)
        except (Exception, KeyboardInterrupt) as fault:
            if so_far:
                count = so_far[-1].count
                left = _left(found, chosen["limit"], count) if isinstance(fault, HmsError) else ""
                click.echo(f"{place}: {count} {done} before it ended{left}", err=True)
            raise
        away = _await_arrival(found, before) if more.get("node") else {}
    gone = _gone(chosen, outcome)
    _say_outcome(target, place, done, outcome, away, gone=gone)
    if away.get("came_back"):
        return CAME_BACK
    return LEFT if gone or outcome.skipped_in_flight or outcome.skipped_ordered else ""


def _left(found: Any, limit: int, done: int) -> str:
    """How many of what was meant are left; "" where nobody answers any more."""
    from hms.errors.tree import HmsError  # noqa: PLC0415 - not for --help

    try:
        there = found.dry_run().delete().count
    except HmsError:
        return ""
    return f", {min(there, limit - done) if limit else there} left"


def _gone(chosen: dict[str, Any], outcome: Any) -> int:
    """How many of the ids that were named are not there, or do not fit the rest of the choice."""
    if not chosen["ids"] or chosen["limit"]:
        return 0
    found = outcome.count + outcome.skipped_in_flight + outcome.skipped_ordered
    gone: int = len(set(chosen["ids"])) - found - sum(outcome.left.values())
    return max(0, gone)


def _in_flight(connection: Any, place: str, chosen: dict[str, Any]) -> list[str]:
    """The ids of what is meant and at consumers now."""
    found = connection.admin.messages(place).where(
        **{**chosen, "state": "in_flight", "limit": WAITED_MAX}
    )
    return [row["id"] for row in found.list()]


def _waited(
    connection: Any,
    place: str,
    ids: list[str],
    wait_s: float,
    outcome: Any,
    verb: str,
    more: dict[str, Any],
) -> Any:
    """The same done to what was in flight, as it comes back; what was acknowledged is gone."""
    until_s = time.monotonic() + wait_s
    chosen = connection.admin.messages(place).where(ids=ids)
    while True:
        again = getattr(chosen, verb)(**more)
        outcome = replace(
            outcome,
            count=outcome.count + again.count,
            bytes=outcome.bytes + again.bytes,
            ids=(*outcome.ids, *again.ids)[:5],
            skipped_in_flight=again.skipped_in_flight,
            later=outcome.later + again.later,
        )
        if not again.skipped_in_flight or time.monotonic() >= until_s:
            return outcome
        time.sleep(WAIT_POLL_S)


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
    target: Target,
    place: str,
    done: str,
    outcome: Any,
    away: dict[str, Any] | None = None,
    *,
    gone: int = 0,
) -> None:
    """What was done, and what was left out and why. away: of those that went to another node; gone:
    so many that were named are not there."""
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
    if gone:
        text += f", {gone} not there"
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
        **({"not_there": gone} if gone else {}),
    }
    target.say(text, said)
