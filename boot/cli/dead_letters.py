"""hms dlq: dead letters, over every queue that keeps dead or expired messages of others."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from hms.boot.cli.cells import written_time
from hms.boot.cli.letter_rules import check, handle, reload, simulate
from hms.boot.cli.messages import confirm, tell_of_more
from hms.boot.cli.selection import asked_for, selection_options
from hms.boot.cli.tables import table_options
from hms.boot.cli.target import Target, show_table, show_values, target_options

__all__ = ["dlq"]

dlq = click.Group("dlq", help="Dead letters: list, show, count, return, purge, or handle them.")
for _command in (check, handle, reload, simulate):
    dlq.add_command(_command)

IS_LETTER = "$DeadReason IS NOT NULL"
SHOWN = ("$DeadReason", "$DeadText", "$DeadOrigin", "$DeadSubscription")
MORE = ("$DeadTime", "$DeadCount", "$ReturnCount")
COLUMNS = ("id", "queue", "reason", "origin", "at", "text")
_ALL_AT_ONCE = 1 << 30
CHUNKS_A_SECOND = 4
_GROUPS = ("reason", "origin", "hour", "queue")
_HOUR = len("2026-01-01T00")


def _checked_reason(_context: click.Context, _option: click.Parameter, value: str | None) -> Any:
    """One that no letter can have would find none, as if there were none."""
    from hms.boot.kinds import did_you_mean  # noqa: PLC0415 - not for --help
    from hms.engine.queue.dead_letters import DeadReason  # noqa: PLC0415 - the same

    known = tuple(str(one) for one in DeadReason)
    if value and value not in known:
        hint = did_you_mean(value, known) or f"; known are {', '.join(known)}"
        raise click.BadParameter(f"there is no reason {value!r}{hint}")
    return value


def _checked_origin(_context: click.Context, _option: click.Parameter, value: str | None) -> Any:
    if value and ":" not in value:
        raise click.BadParameter(f"write queue:{value} or topic:{value}")
    return value


_LETTERS = (
    click.option("--queue", default="", help="Of this queue alone, such as HMS.DLQ."),
    click.option(
        "--reason", callback=_checked_reason, help="Such as REDELIVERY_LIMIT, REJECTED or EXPIRED."
    ),
    click.option(
        "--origin", callback=_checked_origin, help="Where they came from, such as queue:orders."
    ),
)


def _letter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_LETTERS):
        command = option(command)
    return selection_options(command)


def _changing(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask; it asks on a terminal only."),
        click.option("--dry-run", "is_dry", is_flag=True, help="Count, and change nothing."),
        click.option("--all", "is_all", is_flag=True, help="All of them are meant."),
    ):
        command = option(command)
    return _letter_options(command)


def _asked(chosen: dict[str, Any]) -> dict[str, Any]:
    """The arguments of where(): of messages that are dead letters."""
    given = {"$DeadReason": chosen.pop("reason"), "$DeadOrigin": chosen.pop("origin")}
    asked = asked_for(**chosen)
    tests = [IS_LETTER]
    for name, value in given.items():
        if value:
            tests.append(f"{name} = '{value.replace(chr(39), chr(39) * 2)}'")
    if asked["selector"]:
        tests.append(f"({asked['selector']})")
    return {**asked, "selector": " AND ".join(tests)}


def _queues(connection: Any, queue: str) -> list[str]:
    return [queue] if queue else [one["name"] for one in connection.administer("dlq.queues")]


def _rows(connection: Any, queue: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in _queues(connection, queue):
        place = connection.admin.messages(f"queue:{name}").where(**asked)
        for row in place.list((*SHOWN, *MORE)):
            yield _row(name, row)


def _row(queue: str, row: dict[str, Any]) -> dict[str, Any]:
    said = row["properties"]
    origin, subscription = said.get("$DeadOrigin"), said.get("$DeadSubscription")
    return {
        "id": row["id"],
        "queue": queue,
        "reason": said.get("$DeadReason"),
        "text": said.get("$DeadText", ""),
        "origin": f"{origin} ({subscription})" if subscription else origin,
        "at": said.get("$DeadTime", 0),
        "attempts": said.get("$DeadCount"),
        "returned": said.get("$ReturnCount", 0),
        "type": row["type"],
        "bytes": row["bytes"],
        "state": row["state"],
    }


@dlq.command("list")
@target_options
@table_options
@_letter_options
@click.option("--by", type=click.Choice(_GROUPS), help="Those of one stand together, most first.")
def list_(target: Target, queue: str, by: str | None, **chosen: Any) -> None:
    """Each dead letter with its reason and origin; 1,000 of each queue unless limited."""
    with target.connection() as connection:
        rows = list(_rows(connection, queue, _asked(chosen)))
    for name, shown in Counter(row["queue"] for row in rows).items():
        tell_of_more(f"queue:{name}", shown, chosen["limit"])
    empty = "there is no such dead letter"
    columns = COLUMNS if by is None else (by, *(name for name in COLUMNS if name != by))
    show_table(target, _together(rows, by), empty=empty, columns=columns, times=("at",))


def _together(rows: list[dict[str, Any]], by: str | None) -> list[dict[str, Any]]:
    """In the order of count --by; those of one reason, origin, hour or queue as they were."""
    if by is None:
        return rows
    grouped: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        value = _group(row, by)
        grouped.setdefault(value, []).append({by: value, **row})
    return [row for group in sorted(grouped.values(), key=len, reverse=True) for row in group]


def _group(row: dict[str, Any], by: str) -> Any:
    return written_time(row["at"])[:_HOUR] if by == "hour" else row[by]


@dlq.command()
@target_options
@click.argument("message_id")
def show(target: Target, message_id: str) -> None:
    """One dead letter, with what its queue knows of it."""
    with target.connection() as connection:
        asked = {"ids": [message_id], "selector": IS_LETTER}
        found = next(_rows(connection, "", asked), None)
    if found is None:
        raise click.ClickException(f"there is no dead letter {message_id}")
    show_values(target, found, times=("at",))


@dlq.command()
@target_options
@table_options
@_letter_options
@click.option("--by", type=click.Choice(_GROUPS), default="queue")
def count(target: Target, queue: str, by: str, **chosen: Any) -> None:
    """How many there are, by reason, origin, hour or queue."""
    asked = _asked(chosen)
    asked["limit"] = asked["limit"] or _ALL_AT_ONCE
    with target.connection() as connection:
        rows = _rows(connection, queue, asked)
        counted = Counter(_group(row, by) for row in rows)
    found = [{by: name, "count": number} for name, number in counted.most_common()]
    show_table(target, found, empty="there is no such dead letter")


@dlq.command("return")
@target_options
@click.option("--to", default="", help="To this queue instead of where they came from.")
@click.option("--max-returns", type=click.IntRange(1), default=3, show_default=True)
@click.option("--ttl", "ttl_s", type=click.FloatRange(0), default=0, help="Seconds to live.")
@click.option("--rate", type=click.IntRange(1), help="So many a second at most.")
@_changing
def return_(
    target: Target, to: str, max_returns: int, ttl_s: float, rate: int | None, **rest: Any
) -> None:
    """Send dead letters back to the queue or the one subscription that gave them up."""
    more = {"to": to, "returns_max": max_returns, "ttl_s": ttl_s}
    _change(target, "returned", "send_back", rest, more, rate)


@dlq.command()
@target_options
@_changing
def purge(target: Target, **rest: Any) -> None:
    """Remove dead letters; each is counted and in the history."""
    _change(target, "purged", "delete", rest, {})


def _change(
    target: Target,
    done: str,
    verb: str,
    rest: dict[str, Any],
    more: dict[str, Any],
    rate: int | None = None,
) -> None:
    is_all, is_dry, is_sure = rest.pop("is_all"), rest.pop("is_dry"), rest.pop("yes")
    queue = rest.pop("queue")
    if not (is_all or queue or any(rest.values())):
        raise click.UsageError("say which letters, such as with --origin or --id, or --all")
    asked = _asked(rest)
    total, left, skipped = 0, Counter[str](), 0
    with target.connection() as connection:
        for name in _queues(connection, queue):
            found = connection.admin.messages(f"queue:{name}").where(**asked)
            dry = partial(getattr(found.dry_run(), verb), **more)
            if is_dry:
                outcome = dry()
            else:
                confirm(f"{name}: {verb.replace('_', ' ')}", dry, is_sure=is_sure)
                meant = found.by(max(1, rate // CHUNKS_A_SECOND)) if rate else found
                with _telling(name, done) as told:
                    outcome = getattr(meant, verb)(**more, told=_Pace(rate, told))
            total += outcome.count
            left += Counter(outcome.left)
            skipped += outcome.skipped_in_flight
    word = f"would be {done}" if is_dry else done
    text = f"{total} {word}" + (f", skipped {skipped} (in flight)" if skipped else "")
    text += "".join(f", {number} stay ({why.replace('_', ' ')})" for why, number in left.items())
    said = {word.replace(" ", "_"): total, "skipped_in_flight": skipped, "left": dict(left)}
    target.say(text, said)


class _Pace:
    """Between two chunks: waits as long as the rate wants it."""

    def __init__(self, rate: int | None, told: Callable[[Any], None]) -> None:
        self._rate, self._told, self._count = rate, told, 0

    def __call__(self, outcome: Any) -> None:
        """After a chunk."""
        self._told(outcome)
        done, self._count = outcome.count - self._count, outcome.count
        if self._rate and done:
            time.sleep(done / self._rate)


@contextmanager
def _telling(name: str, done: str) -> Iterator[Callable[[Any], None]]:
    """Says what was done before a command failed."""
    so_far: list[Any] = []
    try:
        yield so_far.append
    except (Exception, KeyboardInterrupt):
        if so_far:
            click.echo(f"{name}: {so_far[-1].count} {done} before it ended", err=True)
        raise
