"""hms history: the commands over the history.

They take an address and a directory. Who mounts them may put into click's context object a function
that finds both in a configuration file, given its path: that is how --config works.
"""

import importlib
from pathlib import Path

import click

from hms.history.archive_mark import archive_lines
from hms.history.command_options import CONFIG, JSON, PATH, TIMES, options, resolved, table, tell
from hms.history.report import EventCount, count_events
from hms.history.scope import parse_scope

__all__ = ["history", "info_command"]

_COMMANDS = {
    "watch": ("hms.history.watch_command:watch_command", "Count by the minute; raise alerts."),
    "package": ("hms.history.package_command:package_command", "Our code for spark-submit."),
    "java": ("hms.history.package_command:java_command", "The Java that Spark gets."),
    "report": ("hms.history.report_command:report_command", "Tables and curves of what happened."),
    "archive": (
        "hms.history.archive_command:archive_command",
        "Archive what the log has sealed as Parquet.",
    ),
    "trace": ("hms.history.trace_command:trace_command", "The life of a message."),
    "seal": ("hms.history.archive_command:seal_command", "Finish the segment that is written."),
    "replay": ("hms.history.replay_command:replay_command", "Send messages again, each once."),
    "runs": ("hms.history.replay_command:runs_command", "Replays that a node knows."),
}
"""Loaded when they are used: module, function, and a line for the list."""


class _Commands(click.Group):
    """A group that loads the module of a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            own = super().get_command(ctx, name)
            said = own.get_short_help_str() if own else _COMMANDS[name][1]
            rows.append((name, said))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=_Commands)
def history() -> None:
    """Read, report and replay what happened."""


@history.command("info")
@options(CONFIG, PATH, *TIMES, JSON)
@click.option("--selector", default="", help='Such as "Month > 4 AND JMSPriority = 9".')
@click.option("--destination", default="", help="queue:NAME, topic:NAME or NAME; a comma list.")
def info_command(config: Path, path: str | None, is_json: bool, **wanted: str | None) -> None:
    """Count what happened, by destination."""
    scope = parse_scope({name.rstrip("_"): value for name, value in wanted.items() if value})
    store = path or str(resolved(config, "--path")[1])
    counts = count_events(store, scope)
    tell(counts, is_json=is_json, text=lambda: "\n".join([_text(counts), *archive_lines(store)]))


def _text(counts: list[EventCount]) -> str:
    if not counts:
        return "Nothing happened."
    rows = [(f"{c.destination_kind}:{c.destination}", c.event, c.count) for c in counts]
    return table(("destination", "event", "count"), rows)
