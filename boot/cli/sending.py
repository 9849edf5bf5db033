"""hms send and hms publish: messages from arguments, files or standard input."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from hms.boot.cli.target import Target, target_options

__all__ = ["as_text", "from_json", "named", "publish", "read_body", "send", "typed"]

PROPERTY_TYPES = ("string", "int", "long", "short", "char", "float", "double", "carray", "bool")


def _properties(_: Any, __: Any, words: tuple[str, ...]) -> dict[str, Any]:
    return dict(_property(word) for word in words)


def _property(word: str) -> tuple[str, Any]:
    """Name and value of NAME=VALUE, a string, or NAME:TYPE=VALUE."""
    before, equals, said = word.partition("=")
    name, _, kind = before.partition(":")
    if not (equals and name):
        raise click.BadParameter(f"{word!r} is not NAME=VALUE or NAME:TYPE=VALUE")
    if (kind or "string") not in PROPERTY_TYPES:
        raise click.BadParameter(f"{kind!r} is no type; use one of {', '.join(PROPERTY_TYPES)}")
    return name, typed(kind or "string", said)


_MESSAGE_OPTIONS = (
    click.argument("body", required=False),
    click.option(
        "--file", "file", type=click.Path(path_type=Path), help="The body; - reads stdin."
    ),
    click.option(
        "--as-file",
        "upload",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="A file message, with this file, of any size.",
    ),
    click.option("--text", "kind", flag_value="text", help="Send a text, not bytes."),
    click.option("--map", "kind", flag_value="map", help="A map: the body is a JSON object."),
    click.option("--stream", "kind", flag_value="stream", help="A stream: it is a JSON array."),
    click.option("--object", "kind", flag_value="object", help="A value of any kind, in JSON."),
    click.option("--empty", "kind", flag_value="empty", help="A message without a body."),
    click.option(
        "--property",
        "properties",
        multiple=True,
        callback=_properties,
        metavar="NAME[:TYPE]=VALUE",
        help=f"May be repeated; TYPE is one of {', '.join(PROPERTY_TYPES)}.",
    ),
    click.option("--correlation-id", help="For the receiver."),
    click.option("--reply-to", help="Where an answer goes: a queue, queue:NAME or topic:NAME."),
    click.option("--type", "type_", help="JMSType, for the receiver."),
    click.option("--priority", type=click.IntRange(0, 9), default=4, show_default=True),
    click.option("--ttl", "ttl_s", type=click.FloatRange(0), default=0, help="Seconds to live."),
    click.option(
        "--delay",
        "delay_s",
        type=click.FloatRange(0),
        default=0,
        help="Not before so many seconds.",
    ),
    click.option("--non-persistent", is_flag=True, help="Do not store it."),
    click.option("--count", type=click.IntRange(1), default=1, help="Send it so many times."),
)


def _message_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_MESSAGE_OPTIONS):
        command = option(command)
    return command


@click.command()
@target_options
@click.argument("destination")
@_message_options
def send(target: Target, destination: str, **message: Any) -> None:
    """Send BODY to DESTINATION: a queue's name, queue:NAME or topic:NAME.

    Without BODY and --file the message is empty; - reads standard input.
    """
    _send(target, destination, **message)


@click.command()
@target_options
@click.argument("topic")
@_message_options
@click.option("--retain", is_flag=True, help="Keep it for those who subscribe later.")
def publish(target: Target, topic: str, retain: bool, **message: Any) -> None:
    """Publish BODY to TOPIC; its subscribers of this moment get it."""
    _send(target, f"topic:{topic.removeprefix('topic:')}", retain=retain, **message)


def _send(
    target: Target,
    destination: str,
    *,
    priority: int,
    ttl_s: float,
    delay_s: float,
    non_persistent: bool,
    count: int,
    retain: bool = False,
    **content: Any,
) -> None:
    make = _maker(**content)
    with target.connection() as connection, connection.session() as session:
        producer = session.producer(
            named(destination),
            persistent=not non_persistent,
            ttl_s=ttl_s,
            delay_s=delay_s,
            priority=priority,
            retain=retain,
        )
        if content["upload"] is None:
            receipts = producer.send_many(make() for _ in range(count))
        else:
            receipts = [producer.send(make()) for _ in range(count)]
        ids = [receipt.message_id for receipt in receipts]
    data = {"destination": destination, "message_ids": ids}
    target.say("\n".join(str(message_id) for message_id in ids), data)


def named(text: str) -> Any:
    """The queue or topic that a word of the command line names."""
    import hms  # noqa: PLC0415 - not for --help
    from hms.client.destinations import topic_of  # noqa: PLC0415 - the same

    kind, colon, name = text.partition(":")
    if colon and kind == "topic":
        return topic_of(name)
    return hms.Queue(name if colon and kind == "queue" else text)


def read_body(body: str | None, file: Path | None) -> bytes:
    """The bytes of an argument, a file or standard input."""
    if body is not None and file is not None:
        raise click.UsageError("give BODY or --file, not both")
    if "-" in {body, str(file)}:
        return sys.stdin.buffer.read()
    if file is None:
        return (body or "").encode()
    try:
        return file.read_bytes()
    except OSError as fault:
        raise click.ClickException(f"{file} cannot be read: {fault.strerror}") from fault


def _maker(
    *,
    body: str | None,
    file: Path | None,
    upload: Path | None,
    kind: str | None,
    properties: dict[str, Any],
    correlation_id: str | None,
    type_: str | None,
    reply_to: str | None,
) -> Callable[[], Any]:
    """What makes the message; all that is wrong with it is told before anything is sent."""
    import hms  # noqa: PLC0415 - not for --help

    header: dict[str, Any] = {"correlation_id": correlation_id, "type": type_}
    if reply_to is not None:
        header["reply_to"] = named(reply_to)
    is_given = body is not None or file is not None
    if upload is not None:
        if is_given or kind:
            raise click.UsageError("--as-file is the body; give no other")
        return partial(hms.Message.file, upload, properties, **header)
    if kind == "empty":
        if is_given:
            raise click.UsageError("--empty has no body; give none")
        return partial(hms.Message, None, properties, **header)
    data = read_body(body, file)
    if kind is None:
        return partial(hms.Message, data, properties, **header)
    value = as_text(data) if kind == "text" else from_json(kind, data, f"--{kind}")
    return partial(getattr(hms.Message, kind), value, properties, **header)


def as_text(data: bytes) -> str:
    """The text of a body."""
    try:
        return data.decode()
    except UnicodeDecodeError as fault:
        raise click.ClickException(f"the body is no UTF-8 text: {fault}") from fault


_WANTED = {"map": (dict, "object"), "stream": (list, "array"), "object": (object, "value")}


def from_json(kind: str, data: bytes, option: str) -> Any:
    """What a body says in JSON, of the kind that the option wants."""
    wanted, said = _WANTED[kind]
    try:
        value = json.loads(as_text(data))
    except ValueError as fault:
        raise click.ClickException(f"the body is no JSON: {fault}") from fault
    if not isinstance(value, wanted):
        raise click.ClickException(f"{option} takes a JSON {said}, such as the body is not")
    return value


def typed(kind: str, said: str) -> Any:
    """A property's value of the type that was typed for it; the library checks its range."""
    import field_buffer  # noqa: PLC0415 - not for --help

    try:
        match kind:
            case "bool":
                return {"true": True, "false": False}[said.lower()]
            case "string" | "carray" | "char":
                value: Any = said if kind == "string" else said.encode()
            case "float" | "double":
                value = float(said)
            case _:
                value = int(said)
    except (ValueError, KeyError) as fault:
        raise click.BadParameter(f"{said!r} is no {kind}") from fault
    return getattr(field_buffer, kind.capitalize())(value)
