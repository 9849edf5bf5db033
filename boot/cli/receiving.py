"""hms receive, hms subscribe and hms browse: messages to standard output."""

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.cells import cell
from hms.boot.cli.sending import named
from hms.boot.cli.target import Target, target_options
from hms.boot.cli.values import TIMES_OF_A_LETTER, print_values

__all__ = ["browse", "plain", "receive", "subscribe"]

PREFETCH_MAX = 1000
_TIMES_S = {"timestamp", "expiration"}

_TAKING_OPTIONS = (
    click.option("--count", type=click.IntRange(1), default=1, help="The most messages to take."),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0),
        default=5,
        show_default=True,
        help="Seconds to wait for each; for the first with connecting.",
    ),
    click.option("--selector", help='Only messages that fit, such as "Month > 4".'),
    click.option(
        "--save-to",
        "folder",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="The folder for the files of file messages.",
    ),
)


def _taking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_TAKING_OPTIONS):
        command = option(command)
    return command


@click.command()
@target_options
@click.argument("queue")
@_taking_options
def receive(
    target: Target,
    queue: str,
    count: int,
    timeout_s: float,
    selector: str | None,
    folder: Path | None,
) -> None:
    """Take messages from QUEUE; each is acknowledged when it is printed.

    Exit code 1 tells that there was none within the time.
    """
    with target.connection() as connection, _session(connection) as session:
        connection.requests.begin_within(target.left_s)
        consumer = session.consumer(
            named(queue), selector=selector, prefetch=min(count, PREFETCH_MAX)
        )
        _take(target, consumer, count, timeout_s, queue, folder)


@click.command()
@target_options
@click.argument("topic")
@_taking_options
@click.option("--durable", help="The name of a durable subscription; what it missed comes first.")
@click.option("--client-id", help="Whose durable subscription it is.")
@click.option(
    "--scheme",
    type=click.Choice(["TOPIC", "CHARACTER"]),
    default="TOPIC",
    help="Wildcards + and #, or * and ?.",
)
@click.option("--new-only", is_flag=True, help="Without what is retained.")
def subscribe(
    target: Target,
    topic: str,
    count: int,
    timeout_s: float,
    selector: str | None,
    folder: Path | None,
    durable: str | None,
    client_id: str | None,
    scheme: str,
    new_only: bool,
) -> None:
    """Print what is published to TOPIC from now on."""
    about = {"client_id": client_id} if client_id else {}
    with target.connection(**about) as connection, _session(connection) as session:
        wanted = named(f"topic:{topic.removeprefix('topic:')}")
        retained = "NEW" if new_only else "ALL"
        connection.requests.begin_within(target.left_s)
        subscriber = session.subscriber(
            wanted, durable=durable, selector=selector, scheme=scheme, retained=retained
        )
        _take(target, subscriber, count, timeout_s, topic, folder)


@click.command()
@target_options
@click.argument("queue")
@click.option("--oldest-first", is_flag=True, help="As they will be received; else newest first.")
@click.option("--selector", help="Only messages that fit.")
@click.option("--limit", "--count", "limit", type=click.IntRange(1), help="The most messages.")
@click.option("--in-flight", is_flag=True, help="Those that consumers have too, marked.")
@click.option("--headers", is_flag=True, help="Header fields and properties of each, too.")
def browse(
    target: Target,
    queue: str,
    oldest_first: bool,
    selector: str | None,
    limit: int | None,
    in_flight: bool,
    headers: bool,
) -> None:
    """Look at the messages that wait in QUEUE, the newest first; nothing is taken."""
    with (
        target.connection() as connection,
        connection.session() as session,
        session.browser(
            named(queue), selector=selector, oldest_first=oldest_first, in_flight=in_flight
        ) as browser,
    ):
        for _, message in zip(_numbers(limit), browser, strict=False):
            _print(target, message, is_headed=True)
            if headers and not target.is_json:
                _print_headers(message)


def _session(connection: Any) -> Any:
    """A session that acknowledges only what was printed."""
    import hms  # noqa: PLC0415 - not for --help

    return connection.session(ack=hms.AckMode.CLIENT)


def _take(
    target: Target, consumer: Any, count: int, timeout_s: float, name: str, folder: Path | None
) -> None:
    taken, wait_s = 0, min(timeout_s, target.left_s)
    while taken < count and (message := consumer.receive(timeout_s=wait_s)) is not None:
        if message.file_info is not None:
            _save(message, folder)
        _print(target, message, is_headed=False)
        message.ack()
        taken, wait_s = taken + 1, timeout_s
    if not taken:
        raise click.ClickException(f"no message from {name} within {timeout_s:g} s")


def _save(message: Any, folder: Path | None) -> None:
    """The file of a message, under its own name; without a place for it the message goes back."""
    info = message.file_info
    name = Path(info.name).name or info.id
    if folder is None:
        raise click.ClickException(f"the message has a file, {name}: give --save-to FOLDER")
    if (folder / name).exists():
        raise click.ClickException(f"{folder / name} is there already")
    message.save(folder / name)


def _numbers(limit: int | None) -> Iterable[int]:
    """As many as are wanted; all of them without a limit."""
    return range(limit) if limit is not None else iter(int, 1)


def _print(target: Target, message: Any, *, is_headed: bool) -> None:
    """The body alone, as it came, or after its id and the reason of a dead letter; with --json
    everything, one on a line."""
    if target.is_json:
        click.echo(json.dumps(describe(message), default=str))
        return
    if is_headed:
        reason = message.reserved("$DeadReason")
        mark = f"({cell(reason)}) " if reason else ""
        mark += "(in flight) " if message.is_in_flight else ""
        click.echo(f"{message.message_id}  {mark}", nl=False)
    body = message.body
    click.echo(body if isinstance(body, str | bytes) else json.dumps(plain(body)))


def _print_headers(message: Any) -> None:
    """Header fields and properties, one on a line."""
    described = describe(message)
    shown = {**described, **described["properties"]}
    for name in ("message_id", "properties", "body", "body_base64"):
        shown.pop(name, None)
    for name in _TIMES_S & set(shown):
        shown[name] *= 1000
    print_values(shown, times=(*_TIMES_S, *TIMES_OF_A_LETTER), indent="  ", is_exact=True)


def describe(message: Any) -> dict[str, Any]:
    """A message as JSON shows it; a body that is no text stands in body_base64."""
    header = {
        "message_id": message.message_id,
        "destination": str(message.destination),
        "timestamp": message.timestamp,
        "expiration": message.expiration,
        "priority": message.priority,
        "persistent": message.persistent,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "correlation_id": message.correlation_id,
        "reply_to": str(message.reply_to) if message.reply_to else None,
        "type": message.type,
        "is_in_flight": message.is_in_flight or None,
    }
    known = {name: value for name, value in header.items() if value is not None}
    properties = {name: plain(value) for name, value in message.properties.items()}
    from hms.client.properties import OF_A_LETTER  # noqa: PLC0415 - not for --help

    known |= {name: v for name in OF_A_LETTER if (v := message.reserved(name)) is not None}
    properties = {name: v for name, v in properties.items() if name not in OF_A_LETTER}
    return {**known, "properties": properties, **_described_body(message.body)}


def _described_body(body: Any) -> dict[str, Any]:
    if not isinstance(body, bytes):
        return {"body": plain(body)}
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def plain(value: Any) -> Any:
    """A value with what JSON has no word for spelt out."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "message_id"):  # of a gathered group
        return describe(value)
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
