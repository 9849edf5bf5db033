"""hms history trace: what happened to a message."""

from datetime import UTC, datetime
from pathlib import Path

import click

from hms.history.command_options import CONFIG, JSON, PATH, TIMES, options, resolved, table, tell
from hms.history.scope import parse_scope
from hms.history.trace import Step, ids_of_trace, lives, parse_ids, write

__all__ = ["trace_command"]


@click.command("trace")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@options(CONFIG, PATH, *TIMES, JSON)
@click.option("--traceparent", default="", help="All messages of a trace, by its id or context.")
@click.option(
    "--otlp",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write spans there, as JSON of OTLP.",
)
def trace_command(
    ids: tuple[str, ...],
    config: Path,
    path: str | None,
    is_json: bool,
    traceparent: str,
    otlp: Path | None,
    **wanted: str | None,
) -> None:
    """Show the life of messages, out of the log: nobody had to trace them.

    Exit code 1 when nothing is known of them.
    """
    if not ids and not traceparent:
        raise click.UsageError("give an ID or --traceparent")
    scope = parse_scope({name.rstrip("_"): value for name, value in wanted.items() if value})
    store = path or str(resolved(config, "--path")[1])
    every = parse_ids(ids)
    if traceparent:
        every |= ids_of_trace(store, traceparent, scope)
    steps = lives(store, every, scope)
    if otlp is not None:
        write(otlp, steps)
    tell(steps, is_json=is_json, text=lambda: _text(steps))
    if not steps:
        raise SystemExit(1)


def _text(steps: list[Step]) -> str:
    if not steps:
        return "The history knows nothing of it."
    rows = []
    for step in steps:
        at = datetime.fromtimestamp(step.time_ms / 1000, UTC).isoformat(" ", "milliseconds")
        place = step.destination + (f" {step.subscription}" if step.subscription else "")
        said = step.cause, step.transaction, str(step.operation or "")
        rows.append((step.message_id, at[:-6], step.event, place, *said))
    return table(
        ("id", "time (UTC)", "event", "destination", "cause", "transaction", "audit"), rows
    )
