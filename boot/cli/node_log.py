"""hms log: search and follow the log of a node on this machine, and change what stands in it."""

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.target import Target, target_options
from hms.boot.cli.time_spans import SPAN
from hms.boot.log_search import LEVELS, Chosen, Entry, entries_of, files_of, follow, written_since

__all__ = ["log"]

log = click.Group("log", help="The node's log: search and follow it, change what stands in it.")
SHOWN = 1000
_CHOICE = click.Choice(LEVELS[:-1], case_sensitive=False)


class _Moment(click.ParamType[int]):
    """A time, or how long ago; in ms."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """UTC without a zone."""
        if isinstance(value, int):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return int((time.time() - SPAN.convert(value, param, ctx)) * 1000)
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return int(found.timestamp() * 1000)


_MOMENT = _Moment()


def _choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--event", default="", help="Of this name, or below it, such as hms.node."),
        click.option("--request", default="", help="That name this request, such as 12-7."),
        click.option("--level", default="DEBUG", type=_CHOICE, help="This or worse."),
    ):
        command = option(command)
    return click.argument("words", nargs=-1)(command)


@log.command()
@target_options
@_choice_options
@click.option("--since", default=0, type=_MOMENT, help="A time, or how long ago, such as 10m.")
@click.option("--until", default=0, type=_MOMENT, help="The same.")
@click.option(
    "--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="The last so many."
)
def search(
    target: Target, words: tuple[str, ...], since: int, until: int, limit: int, **chosen: Any
) -> None:
    """The entries of the node's log that have all WORDS, oldest first; of rotated files too.

    Times without a zone are UTC. It reads files of this machine: the node need not run.
    """
    file = _file_of(target)
    files = files_of(file)
    if not files:
        raise _missing(file)
    wanted = Chosen(**chosen, since_ms=since, until_ms=until, words=words)
    last: deque[Entry] = deque(maxlen=limit + 1)
    unread: list[Path] = []

    def tell(path: Path, fault: Exception) -> None:
        unread.append(path)
        click.echo(f"{path} cannot be read to its end: {fault}", err=True)

    entries = entries_of(written_since(files, since), tell)
    last.extend(entry for entry in entries if wanted.has(entry))
    has_more = len(last) > limit
    for entry in [*last][has_more:]:
        _show(target, entry)
    if has_more:
        click.echo(f"the last {limit:,}; --limit shows more", err=True)
    if unread:
        sys.exit(1)


@log.command("follow")
@target_options
@_choice_options
def follow_(target: Target, words: tuple[str, ...], **chosen: Any) -> None:
    """What the node writes to its log from now on, until it is interrupted."""
    file = _file_of(target)
    if not file.parent.is_dir():
        raise _missing(file)
    wanted = Chosen(**chosen, words=words)
    try:
        with suppress(KeyboardInterrupt):
            for entry in follow(file):
                if wanted.has(entry):
                    _show(target, entry)
    except BrokenPipeError:  # its own output, which nobody reads any more
        raise
    except OSError as fault:
        raise click.ClickException(f"the log cannot be read: {fault}") from fault


@log.command()
@target_options
@click.argument("level", type=_CHOICE)
@click.option("--name", default="", help="Of this part alone, such as hms.node.")
@click.option("--for", "span_s", type=SPAN, default=600, help="Such as 10m; 0: until it ends.")
def level(target: Target, level: str, name: str, span_s: float) -> None:
    """Change how much the node writes to its log; after ten minutes it is as configured again."""
    said = target.administer("log.level", level=level.upper(), name=name, seconds=round(span_s))
    part = name or "the node"
    how_long = f" for {round(span_s)} s" if span_s else ""
    target.say(f"{part} logs {level.upper()}{how_long}", said)


@log.command()
@target_options
@click.argument("state", type=click.Choice(("on", "off")))
@click.option("--for", "span_s", type=SPAN, default=600, help="Such as 10m; 0: until it ends.")
def payloads(target: Target, state: str, span_s: float) -> None:
    """Have services that fail log what they were given; after ten minutes it is as configured
    again. An alert is active as long as they do."""
    is_on = state == "on"
    said = target.administer("log.payloads", is_on=is_on, seconds=round(span_s))
    how_long = f" for {round(span_s)} s" if span_s else ""
    target.say(f"payloads of failures are {'' if is_on else 'not '}logged{how_long}", said)


def _file_of(target: Target) -> Path:
    return target.config().node(target.node_name).log_file.resolve()


def _missing(file: Path) -> click.ClickException:
    return click.ClickException(
        f"there is no log at {file}. A node that runs in the foreground writes to its terminal, "
        "under systemd to the journal: journalctl -u hms@NODE."
    )


def _show(target: Target, entry: Entry) -> None:
    """As text, whatever the file has, without what would move the cursor; in JSON an object a
    line."""
    if target.is_json:
        more = {"lines": entry.lines} if len(entry.lines) > 1 or not entry.fields else {}
        click.echo(json.dumps(entry.fields | more))
        return
    for line in entry.for_people:
        click.echo("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))
