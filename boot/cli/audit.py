"""hms audit: who ordered what, and whether the record of it is whole. Reads the store itself, also
while the node is down."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options
from hms.boot.counts import counted
from hms.boot.log_folder import log_folder
from hms.boot.stores import tables_of
from hms.errors.catalogue import InvalidArgument, NotSupported, StoreCorrupt
from hms.history.audit_trail import entries_of_log, entries_of_tables
from hms.records.audit import AuditEntry, breaks_of
from hms.store.journal.reader import list_segments

__all__ = ["audit"]

BROKEN, OLDER = 4, 3
FOLLOW_S = 0.5
WAITS = 0.8


@click.group()
def audit() -> None:
    """The audit of a secured node: list, show, follow, verify, anchor, export."""


@audit.command("list")
@target_options
@table_options
@click.option("--user", "user", help="Of one user only.")
@click.option("--limit", default=100, show_default=True, help="The last so many.")
def list_(target: Target, user: str | None, limit: int) -> None:
    """What was ordered and refused, the newest last."""
    found = [one for one in _entries(target) if user in (None, one.user)]
    rows = [_row(one) for one in found[-limit:]] if limit > 0 else []
    show_table(target, rows, empty="Nothing is recorded.")


@audit.command()
@target_options
@click.argument("number", type=int)
def show(target: Target, number: int) -> None:
    """One record, with its arguments and its place in the chain."""
    found = next((one for one in _entries(target) if one.number == number), None)
    if found is None:
        raise InvalidArgument(what="number", detail=f"there is no record {number}")
    more = {"arguments": found.arguments, "previous": found.previous.hex()}
    show_values(target, {**_row(found), **more, "hash": found.hash.hex()})


@audit.command()
@target_options
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    metavar="NUMBER:HASH",
    help="What hms audit anchor has printed; may be given several times.",
)
@click.option("--cluster", "is_cluster", is_flag=True, help="Have each node verify its own.")
def verify(target: Target, anchors: tuple[str, ...], is_cluster: bool) -> None:
    """Whether no record was changed, left out or moved; exit code 4 names the first that was, 3
    says that the store is older than the anchor.

    With --cluster the running node asks all others, over their links. Each verifies its own audit,
    also beside what the others remember of it. Exit code 1 when one does not answer.
    """
    if is_cluster:
        if anchors:
            raise click.UsageError("--anchor is of one node: give it without --cluster")
        _verify_all(target)
        return
    entries: list[AuditEntry] = []
    try:
        entries.extend(_entries(target))
    except StoreCorrupt as fault:
        number = entries[-1].number + 1 if entries else 1
        said = f"record {number} or a later one: {fault}"
        target.say(said, {"broken": number, "why": str(fault)})
        click.get_current_context().exit(BROKEN)
    for entry, why in breaks_of(entries):
        target.say(f"record {entry.number}: {why}", {"broken": entry.number, "why": why})
        click.get_current_context().exit(BROKEN)
    _compare(target, entries, anchors)
    whole = counted(len(entries), "record is whole", "records are whole")
    first = entries[0].number if entries else 0
    last = {"last": entries[-1].number, "hash": entries[-1].hash.hex()} if entries else {}
    said = f"{whole}, from number {first}"
    target.say(said, {"records": len(entries), "first": first, **last})


def _compare(target: Target, entries: list[AuditEntry], anchors: tuple[str, ...]) -> None:
    known, older = {one.number: one for one in entries}, 0
    for given in anchors:
        word, _, digest = given.partition(":")
        if not word.isdecimal():
            raise InvalidArgument(what="--anchor", detail=f"{given!r} is not NUMBER:HASH")
        number = int(word)
        found = known.get(number)
        if found is not None and found.hash.hex() != digest:
            why = f"record {number} is another one"
            target.say(why, {"broken": number, "why": why})
            click.get_current_context().exit(BROKEN)
        if found is None:
            older = max(older, number)
    if older:
        why = f"the store is older than record {older}"
        target.say(why, {"older": older, "why": why})
        click.get_current_context().exit(OLDER)


def _verdict(row: dict[str, Any]) -> str:
    if not row["why"]:
        whole = counted(row["records"], "record is whole", "records are whole")
        return f"{whole}, from number {row['first']}"
    is_named = row["why"].startswith("record") or not row["broken"]
    return row["why"] if is_named else f"record {row['broken']}: {row['why']}"


def _verify_all(target: Target) -> None:
    """A node is waited for a little less long than this command waits."""
    wait_s = max(1, int(target.timeout_s * WAITS))
    rows = target.administer("audit.verify", wait_s=wait_s)["nodes"]
    if target.is_json:
        show_table(target, rows, empty="")
    for row in () if target.is_json else rows:
        click.echo(f"{row['node']}: {_verdict(row)}")
    context = click.get_current_context()
    if any(row["broken"] for row in rows):
        context.exit(BROKEN)
    if any(row["older"] for row in rows):
        context.exit(OLDER)
    if not all(row["is_verified"] for row in rows):
        context.exit(1)


@audit.command()
@target_options
def anchor(target: Target) -> None:
    """Number and hash of the last record, to be kept elsewhere."""
    last = next(iter(list(_entries(target))[-1:]), None)
    if last is None:
        raise InvalidArgument(what="anchor", detail="nothing is recorded yet")
    said = f"{last.number}:{last.hash.hex()}"
    target.say(said, {"anchor": said})


@audit.command()
@target_options
def export(target: Target) -> None:
    """All records as JSON, one a line."""
    for one in _entries(target):
        more = {"arguments": one.arguments, "previous": one.previous.hex(), "hash": one.hash.hex()}
        click.echo(msgspec.json.encode({**_row(one), **more}).decode())


@audit.command()
@target_options
@click.option("--user", "user", help="Of one user only.")
@click.option("--limit", default=10, show_default=True, help="The last so many at first.")
@click.option("--count", default=0, help="End after so many.  [default: never]")
def follow(target: Target, user: str | None, limit: int, count: int) -> None:
    """The last records, and each one that comes, as JSON, one a line; until it is interrupted."""
    known = [one for one in _entries(target) if user in (None, one.user)]
    last = known[-1].number if known else 0
    shown = known[-limit:] if limit > 0 else []
    told = 0
    pause, changed = threading.Event(), None
    while True:
        for one in shown:
            click.echo(msgspec.json.encode({**_row(one), "arguments": one.arguments}).decode())
            told += 1
            if told == count:
                return
        shown = []
        while not shown:
            pause.wait(FOLLOW_S)
            now = _stamp(target)
            if now == changed:
                continue
            changed = now
            fresh = [one for one in _entries(target, newest=2, above=last) if one.number > last]
            last = fresh[-1].number if fresh else last
            shown = [one for one in fresh if user in (None, one.user)]


def _stamp(target: Target) -> tuple[object, ...]:
    """Other when something was written."""
    config = target.config()
    node = config.node(target.node_name)
    if node.database is not None:
        return (object(),)  # a database is asked each time
    found = list_segments(log_folder(node))[-1:]
    return tuple((str(one.file), one.file.stat().st_mtime_ns) for one in found)


def _entries(target: Target, newest: int | None = None, above: int = 0) -> Iterator[AuditEntry]:
    """The records of the store, in the order of the log; what is older than audit_keep_s is gone.
    newest: of so many segments only; above: of a database, those with a higher number."""
    if target.address is not None:
        raise NotSupported(feature="the audit over a connection", instead="Give --config.")
    config = target.config()
    node = config.node(target.node_name)
    if node.database is None:
        yield from entries_of_log(log_folder(node), newest)
    else:
        yield from entries_of_tables(*tables_of(config, node), above)


def _row(entry: AuditEntry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "at": datetime.fromtimestamp(entry.at_ms / 1000, UTC).isoformat(timespec="seconds"),
        "user": entry.user,
        "from": entry.source,
        "command": entry.command,
        "action": entry.action,
        "resource": entry.resource,
        "result": entry.result or "ok",
        "count": entry.count,
    }
