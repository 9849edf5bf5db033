"""hms erase: remove what belongs to a person from all places where messages wait, and say of each
place what is gone and what is not.

It is made of the commands for messages, subscriptions and schedules, so each step needs its
permission and is a record of the audit, without what was looked for. What left a place, or had left
it before, is then overwritten in the segments of the log and the history, and in the files of the
archive. What it cannot look at is told as pending.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from hms.boot.cli.erasing_segments import Segments
from hms.boot.cli.target import Target, show_table, target_options
from hms.boot.entries import Config, Node
from hms.boot.log_folder import log_folder
from hms.boot.stores import tables_of
from hms.errors import HmsError
from hms.errors.catalogue import DurableNameInUse, InvalidArgument, ScheduleNotFound
from hms.history.archive import erase as erase_archive
from hms.history.erasing import Erasure
from hms.history.table_erasing import erase_tables
from hms.wire.operations import SCHEDULES_LISTED_MAX

__all__ = ["erase", "forget"]

NAMELESS, NAMELESS_TOLD = "JMSXUserID IS NULL", "messages that do not say who sent them"
RELEASE_S = 20.0
PAUSE_S = 0.2


class _Place(NamedTuple):
    """What was found, and what of it is not gone yet."""

    place: str
    found: int
    erased: int
    pending: int


@click.command()
@target_options
@click.option("--user", help="What a user sent, its durable subscriptions hold, and its schedules.")
@click.option("--selector", help="Messages that a selector chooses, in every place.")
@click.option("--property", "pair", metavar="NAME=VALUE", help="Messages with that property.")
@click.option("--reason", default="", help="Why, for the audit, without the person's name.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what is there, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def erase(
    target: Target,
    user: str | None,
    selector: str | None,
    pair: str | None,
    reason: str,
    is_dry: bool,
    yes: bool,
) -> None:
    """Remove a person's messages from queues, durable subscriptions, dead letters and what is
    retained, overwrite them in the log and the history, and say of each place what is gone. The
    audit has the reason, and at the end the counts."""
    if [bool(user), bool(selector), bool(pair)].count(True) != 1:
        raise click.UsageError("give one of --user, --selector and --property")
    if not (is_dry or reason.strip()):
        raise click.UsageError("give --reason: the audit keeps why; it does not name the person")
    if not (is_dry or yes):
        click.confirm("Erase for good?", abort=True, err=True)
    chosen, words = _asked(user, selector, pair or "")
    by = "user" if user else "selector" if selector else "property"
    with target.connection() as connection:
        order = 0 if is_dry else _begun(connection, by, reason.strip())
        rows = list(_of_owner(connection, user, is_dry)) if user else []
        rows += _of_selector(connection, chosen, is_dry)
        rows += _files(target, connection, Erasure(chosen, words), bool(user), is_dry)
        if not is_dry:
            _ended(connection, order, rows, is_json=target.is_json)
    shown = [row._asdict() for row in rows if row.found]
    show_table(target, shown, empty="Nothing is there.")


def forget(target: Target, user: str) -> list[str]:
    """End what a user owned, who is deleted: durable subscriptions, as soon as its connections are
    closed, and schedules."""
    done = []
    with target.connection() as connection:
        for row in _subscriptions(connection):
            if row["owner"] == user:
                _end(connection, {"name": row["name"], "topic": row["topic"]})
                done.append(f"subscription:{row['name']}")
        done += [row.place for row in _of_schedules(connection, is_dry=False, owner=user)]
    return done


def _begun(connection: Any, by: str, reason: str) -> int:
    """The audit has it before anything is done; the number of its record, 0 at an open node."""
    told = connection.administer("erasure.begin", {"by": by, "reason": reason})
    return int(told["audit"])


def _ended(connection: Any, order: int, rows: list[_Place], *, is_json: bool) -> None:
    counts = {word: sum(getattr(row, word) for row in rows) for word in _Place._fields[1:]}
    connection.administer("erasure.end", {"begun": order, **counts})
    if order and not is_json:
        click.echo(f"Record {order} of the audit has the reason.", err=True)


def _end(connection: Any, asked: dict[str, Any]) -> None:
    pause, until = threading.Event(), time.monotonic() + RELEASE_S
    while True:
        try:
            connection.administer("subscription.delete", asked)
        except DurableNameInUse:
            if time.monotonic() >= until:
                raise
            pause.wait(PAUSE_S)
        else:
            return


def _equals(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidArgument(what="--property", detail=f"{pair!r} is not NAME=VALUE")
    quoted = value.replace("'", "''")
    return f"{name} = '{quoted}'"


def _of_selector(connection: Any, selector: str, is_dry: bool) -> Iterator[_Place]:
    places = [
        f"queue:{row['name']}" for row in connection.administer("queue.list", {"fields": "name"})
    ]
    places += [f"subscription:{_named(row)}" for row in _subscriptions(connection)]
    for place in [*places, "retained:#"]:
        meant = connection.admin.messages(place).where(selector=selector)
        meant = replace(meant, chosen={**meant.chosen, "is_erasure": True})
        yield _erased(place, meant, is_dry)
    yield from _of_schedules(connection, is_dry, selector=selector)


def _of_owner(connection: Any, user: str, is_dry: bool) -> Iterator[_Place]:
    for row in _subscriptions(connection):
        if row["owner"] == user:
            place = f"subscription:{_named(row)}"
            yield _erased(place, connection.admin.messages(place).everything(), is_dry)
    yield from _of_schedules(connection, is_dry, owner=user)


def _of_schedules(connection: Any, is_dry: bool, **chosen: str) -> Iterator[_Place]:
    while names := _schedules(connection, **chosen):
        for name in names:
            if not is_dry:
                with suppress(ScheduleNotFound):
                    connection.cancel_schedule(name)
            yield _Place(f"schedule:{name}", 1, 0 if is_dry else 1, 0)
        if is_dry:
            return


def _erased(place: str, meant: Any, is_dry: bool) -> _Place:
    """What was in flight stays with its consumer, and is told as pending."""
    found = meant.dry_run().delete()
    count = found.count + found.skipped_in_flight
    if is_dry or not count:
        return _Place(place, count, 0, 0)
    done = meant.delete()
    return _Place(place, count, done.count, count - done.count)


def _subscriptions(connection: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = connection.administer("subscription.list")
    return rows


def _named(row: dict[str, Any]) -> str:
    return f"{row['name']}@{row['topic']}"


def _schedules(connection: Any, **chosen: str) -> list[str]:
    asked = {"kind": "schedule", "limit": SCHEDULES_LISTED_MAX, **chosen}
    return [row["name"] for row in connection.administer("schedule.list", asked)]


def _files(
    target: Target, connection: Any, erasure: Erasure, is_by_sender: bool, is_dry: bool
) -> Iterator[_Place]:
    """The files that hold what was erased, now or before, and those that are not looked at."""
    if target.address is not None:
        yield _unseen("files of the node, which are looked at where its configuration is")
        return
    config = target.config()
    node = config.node(target.node_name)
    for copy in config.replicas_of(node):
        if copy.name != node.replica:
            yield _unseen(f"copy {copy.name} of the log: give the command on its machine as well")
    if node.database is not None:
        yield from _tables(config, node, erasure, is_dry)
        if is_by_sender:
            nameless = Erasure(NAMELESS, [])
            count = erase_tables(*tables_of(config, node), nameless, is_dry=True).found
            yield _Place(NAMELESS_TOLD, count, 0, count)
        return
    folder = log_folder(node)
    segments = Segments(connection, folder, erasure, is_copy=_is_copy(connection, node))
    found, left = segments.erase(is_dry=is_dry)
    yield _Place("segments of log and history", found, 0 if is_dry else found - left, left)
    yield from map(_unseen, segments.faults())
    yield from _archive(folder, erasure, is_dry)
    if is_by_sender:
        yield _nameless(connection, folder)


def _is_copy(connection: Any, node: Node) -> bool:
    """Whether this machine has a standby's copy, and the node that answers is elsewhere."""
    if node.replica is None:
        return False
    leads = connection.administer("status")["replication"]["replica"]
    return bool(leads != node.replica)


def _tables(config: Config, node: Node, erasure: Erasure, is_dry: bool) -> Iterator[_Place]:
    """The tables of a database store; what the files of a server have is for those who run it."""
    done = erase_tables(*tables_of(config, node), erasure, is_dry=is_dry)
    found, left = done.found, 0 if is_dry else done.left
    yield _Place("tables of the database", found, 0 if is_dry else found - left, left)
    if done.statement and found and not is_dry:
        what = "dead rows, write-ahead log and backups of the database server; VACUUM FULL"
        yield _unseen(f"{what} {done.statement} removes the first")


def _archive(folder: Path, erasure: Erasure, is_dry: bool) -> Iterator[_Place]:
    try:
        done = erase_archive(folder, erasure, is_dry=is_dry)
    except HmsError as fault:
        yield _unseen(f"archive: {fault}")
        return
    if done is not None:
        found = len(done.ids)
        yield _Place("archive", found, 0 if is_dry else found, 0)
        yield from (_unseen(f"archive: {fault}") for fault in done.faults)


def _nameless(connection: Any, folder: Path) -> _Place:
    """Messages of whom nobody knows whether the user sent them."""
    erasure = Erasure(NAMELESS, [])
    found, _ = Segments(connection, folder, erasure).erase(is_dry=True)
    with suppress(HmsError):  # what it has against it was told
        done = erase_archive(folder, erasure, is_dry=True)
        found += 0 if done is None else len(done.ids)
    return _Place(NAMELESS_TOLD, found, 0, found)


def _unseen(what: str) -> _Place:
    """A place that could not be looked at, or through."""
    return _Place(what, 1, 0, 1)


def _asked(user: str | None, selector: str | None, pair: str) -> tuple[str, list[str]]:
    """A selector for what is to be erased, and what arguments of the audit may have of it: a user's
    name alone, as many words have such a name in them."""
    if user:
        return _equals(f"JMSXUserID={user}"), [json.dumps(user)]
    if selector:
        return selector, _words(selector)
    return _equals(pair), _forms(pair.partition("=")[2])


def _words(selector: str) -> list[str]:
    """What arguments of the audit may have of it."""
    literals = re.findall(r"'((?:[^']|'')*)'", selector)
    return [form for one in literals for form in _forms(one.replace("''", "'"))]


def _forms(word: str) -> list[str]:
    """As JSON says it, as it is, and as a selector has it."""
    return list({json.dumps(word)[1:-1], word, word.replace("'", "''")})
