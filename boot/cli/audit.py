"""hms audit: who ordered what, and whether the record of it is whole. Reads the store itself, also
while the node is down."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
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
from hms.records.audit import AuditEntry, breaks_of, details_of, result_of, why_of
from hms.store.journal.reader import list_segments

__all__ = ["audit"]

BROKEN, OLDER = 4, 3
FOLLOW_S = 0.5
SYNCED = 2
"""The newest segments: before another one is begun the node syncs those that are full."""
WAITS = 0.8
_SHOWN = ("number", "at", "user", "from", "command", "result", "resource", "why")


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
    found = (one for one in _entries(target) if user in (None, one.user))
    rows = [_row(one) for one in deque(found, maxlen=max(0, limit))]
    show_table(target, rows, empty="Nothing is recorded.", columns=_SHOWN)


@audit.command()
@target_options
@click.argument("number", type=int)
def show(target: Target, number: int) -> None:
    """One record, with its arguments and its place in the chain."""
    found = next((one for one in _entries(target) if one.number == number), None)
    if found is None:
        raise InvalidArgument(what="number", detail=f"there is no record {number}")
    details = details_of(found)
    more = {
        "before": details.before,
        "after": details.after,
        "arguments": found.arguments,
        "previous": found.previous.hex(),
    }
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
    asked = _asked(anchors)
    read = _Read(frozenset(number for number, _ in asked))
    try:
        broken = next(breaks_of(read.each(_entries(target))), None)
    except StoreCorrupt as fault:
        number = read.last.number + 1 if read.last else 1
        said = f"record {number} or a later one: {fault}"
        target.say(said, {"broken": number, "why": str(fault)})
        click.get_current_context().exit(BROKEN)
    if broken is not None:
        entry, why = broken
        target.say(f"record {entry.number}: {why}", {"broken": entry.number, "why": why})
        click.get_current_context().exit(BROKEN)
    _compare(target, read.known, asked)
    whole = counted(read.count, "record is whole", "records are whole")
    last = {"last": read.last.number, "hash": read.last.hash.hex()} if read.last else {}
    said = f"{whole}, from number {read.first}"
    target.say(said, {"records": read.count, "first": read.first, **last})


class _Read:
    """What is kept of records that are read one after the other: a million of them fit nowhere.
    known: hashes of those that somebody asks for."""

    def __init__(self, asked: frozenset[int]) -> None:
        self._asked = asked
        self.known: dict[int, str] = {}
        self.count = self.first = 0
        self.last: AuditEntry | None = None

    def each(self, entries: Iterable[AuditEntry]) -> Iterator[AuditEntry]:
        for one in entries:
            self.first = self.first or one.number
            self.count, self.last = self.count + 1, one
            if one.number in self._asked:
                self.known[one.number] = one.hash.hex()
            yield one


def _asked(anchors: tuple[str, ...]) -> list[tuple[int, str]]:
    """Numbers and hashes; two of one number differ."""
    found = []
    for given in anchors:
        word, _, digest = given.partition(":")
        if not word.isdecimal():
            raise InvalidArgument(what="--anchor", detail=f"{given!r} is not NUMBER:HASH")
        found.append((int(word), digest))
    return found


def _compare(target: Target, known: Mapping[int, str], asked: list[tuple[int, str]]) -> None:
    older = 0
    for number, digest in asked:
        found = known.get(number)
        if found is not None and found != digest:
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
    """Number and hash of the last record, to be kept elsewhere. It is on the disk then: one that a
    power cut takes would accuse the store."""
    last = next(iter(deque(_entries(target), maxlen=1)), None)
    _sync(target)
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
    with contextlib.suppress(KeyboardInterrupt):
        _follow(target, user, limit, count)


def _follow(target: Target, user: str | None, limit: int, count: int) -> None:
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


def _sync(target: Target) -> None:
    """What was read of the log is on the disk. Of a login nobody waits until the node syncs it."""
    config = target.config()
    node = config.node(target.node_name)
    if node.database is not None:
        return  # read when it is committed
    for one in list_segments(log_folder(node))[-SYNCED:]:
        with contextlib.suppress(FileNotFoundError):  # it has left the log, so it was synced
            descriptor = os.open(one.file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


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
    details = details_of(entry)
    return {
        "number": entry.number,
        "at": datetime.fromtimestamp(entry.at_ms / 1000, UTC).isoformat(timespec="seconds"),
        "user": entry.user,
        "from": entry.source,
        "command": entry.command,
        "action": entry.action,
        "resource": entry.resource,
        "result": result_of(entry),
        "count": entry.count,
        "connection": details.connection or None,
        "client_id": details.client_id,
        "affected": details.affected,
        "why": why_of(entry),
    }
