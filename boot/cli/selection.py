"""Which messages of a place a command means: its options, and what they come to."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

__all__ = ["asked_for", "moment", "selection_options"]

_NEWEST = click.option("--newest", is_flag=True, help="The newest first.")
_SELECTION = (
    click.option("--id", "ids", multiple=True, help="These; - reads ids from standard input."),
    click.option("--selector", default="", help='Those that fit, such as "Table > 4".'),
    click.option("--from", "since", help="Sent at this time or later, such as 2026-05-01T08:00."),
    click.option("--until", help="Sent before this time."),
    click.option("--older-than", "older_than_s", type=click.FloatRange(0), help="Seconds."),
    click.option("--type", "type_", default="", help="Of this JMSType."),
    click.option("--min-count", type=click.IntRange(0), default=0, help="Delivered so often."),
    click.option(
        "--state",
        type=click.Choice(["waiting", "delayed", "in_flight", "prepared", "incomplete"]),
        help="prepared: of what is in flight; incomplete: of what waits.",
    ),
    click.option("--limit", type=click.IntRange(1), help="The most messages."),
)


def selection_options(command: Callable[..., Any], *, has_order: bool = True) -> Callable[..., Any]:
    """Give a command the options that say which messages are meant. has_order: it may begin with
    the newest."""
    for option in reversed((*_SELECTION, _NEWEST) if has_order else _SELECTION):
        command = option(command)
    return command


def asked_for(**chosen: Any) -> dict[str, Any]:
    """The arguments of where(), from the options."""
    said = {"since": "from", "until": "until"}
    times = {name: moment(word, chosen[name]) for name, word in said.items() if chosen[name]}
    return {
        "selector": chosen["selector"],
        "ids": _ids(chosen["ids"]),
        "older_than_s": chosen["older_than_s"] or 0,
        "type": chosen["type_"],
        "min_count": chosen["min_count"],
        "state": chosen["state"] or "",
        "limit": chosen["limit"] or 0,
        "newest_first": chosen.get("newest", False),
        **times,
    }


def _ids(given: tuple[str, ...]) -> list[str]:
    return [id_ for one in given for id_ in (sys.stdin.read().split() if one == "-" else [one])]


def moment(name: str, text: str) -> datetime:
    """A time as it was typed, in UTC unless it has a zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as fault:
        raise click.UsageError(f"--{name}: {text!r} is no time such as 2026-05-01T08:00") from fault
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
