"""What changes a queue or topic while the node runs: create, alter, delete, pause and resume."""

from typing import Any

import click

from hms.boot.cli.target import Target, target_options
from hms.boot.counts import counted

__all__ = ["add_changes", "held_by"]

_SET = click.option(
    "--set",
    "given",
    multiple=True,
    metavar="KEY=VALUE",
    help="An attribute, under its name in hms.conf, such as max_messages=1000.",
)


def add_changes(group: click.Group, kind: str) -> None:
    """Give the group of a kind of destination the commands that change one."""
    for make in (_create, _alter, _delete, _pause, _resume):
        group.add_command(make(kind))


def _create(kind: str) -> click.Command:
    @click.command("create", help=f"Make a {kind}; it stays until it is deleted.")
    @target_options
    @click.argument("name")
    @_SET
    @click.option("--topic-string", default="", hidden=kind == "queue", help="Where it stands.")
    def create(target: Target, name: str, given: tuple[str, ...], topic_string: str) -> None:
        arguments = _attributes(given)
        if topic_string:
            arguments["topic_string"] = topic_string
        target.administer(f"{kind}.create", name=name, **arguments)
        target.say(f"{name}: created", {kind: name, "created": True})

    return create


def _alter(kind: str) -> click.Command:
    @click.command("alter", help=f"Change attributes of a {kind}; they hold over restarts.")
    @target_options
    @click.argument("name")
    @_SET
    @click.option("--unset", multiple=True, metavar="KEY", help="Back to what hms.conf says.")
    def alter(target: Target, name: str, given: tuple[str, ...], unset: tuple[str, ...]) -> None:
        arguments = _attributes(given) | dict.fromkeys(unset)
        if not arguments:
            raise click.UsageError("nothing is changed: give --set or --unset")
        target.administer(f"{kind}.alter", name=name, **arguments)
        target.say(f"{name}: altered", {kind: name, "altered": sorted(arguments)})

    return alter


def _delete(kind: str) -> click.Command:
    @click.command("delete", help=f"End a {kind}; one in which messages wait with --force only.")
    @target_options
    @click.argument("name")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @click.option("--force", is_flag=True, help="What waits becomes dead letters.")
    @click.option("--discard", is_flag=True, help="With --force: what waits is discarded.")
    def delete(target: Target, name: str, yes: bool, force: bool, discard: bool) -> None:
        if not yes:
            asked = _asked(target, kind, name, is_forced=force, is_discarded=discard)
            click.confirm(asked, abort=True, err=True)
        count = target.administer(f"{kind}.delete", name=name, force=force, discard=discard)
        done = "discarded" if discard or kind == "topic" else "dead_lettered"
        text = f"{name}: deleted, {counted(count, 'message')} {done.replace('_', '-')}"
        target.say(text, {kind: name, done: count})

    return delete


def _asked(target: Target, kind: str, name: str, *, is_forced: bool, is_discarded: bool) -> str:
    """The question before an end, with what would be lost. What the node is going to refuse is
    refused here: DestinationNotFound, DestinationInUse."""
    shown = _shown(target, kind, name)
    if shown is not None:
        _check_end(kind, name, shown, is_forced=is_forced)
    if not is_forced:
        return f"End {name}?"
    if kind != "queue":
        return f"End {name} with all that waits for its subscriptions?"
    held = _held(shown, "waiting", "delayed")
    return f"End {name} and {f'discard {held}' if is_discarded else f'dead-letter {held}'}?"


def _check_end(kind: str, name: str, shown: dict[str, Any], *, is_forced: bool) -> None:
    """As the node has it, of what it shows."""
    from hms.errors.catalogue import DestinationInUse  # noqa: PLC0415 - not for --help

    waiting = shown.get("waiting", 0) + shown.get("delayed", 0)
    detail = ""
    if shown["life"] == "CONFIGURED":
        detail = "it stands in hms.conf, or is the system's own"
    elif shown.get("consumers"):
        detail = f"it has {shown['consumers']} consumers"
    elif waiting and not is_forced:
        detail = f"{waiting} messages wait in it; receive or move them, or use --force"
    if detail:
        raise DestinationInUse(kind=kind, destination=name, detail=detail)


def held_by(target: Target, queue: str, *counts: str) -> str:
    """How many messages a question is about; who may not view the queue is not told."""
    return _held(_shown(target, "queue", queue), *counts)


def _held(shown: dict[str, Any] | None, *counts: str) -> str:
    if shown is None:
        return "all messages"
    return counted(sum(shown[each] for each in counts), "message")


def _shown(target: Target, kind: str, name: str) -> dict[str, Any] | None:
    """What the node shows of it; None to who may not view it."""
    from hms.errors.catalogue import TpSecurity  # noqa: PLC0415 - not for --help

    try:
        shown: dict[str, Any] = target.administer(f"{kind}.show", name=name)
    except TpSecurity:
        return None
    return shown


def _pause(kind: str) -> click.Command:
    said = f"Pause a {kind}: sends wait, consumers get nothing; without an option both."
    return _switch(kind, "pause", "paused", said)


def _resume(kind: str) -> click.Command:
    said = f"Let a paused {kind} go on; without an option both."
    return _switch(kind, "resume", "resumed", said)


def _switch(kind: str, verb: str, done: str, said: str) -> click.Command:
    @click.command(verb, help=said)
    @target_options
    @click.argument("name")
    @click.option("--production", "what", flag_value="PRODUCTION", help="Sending to it alone.")
    @click.option("--consumption", "what", flag_value="CONSUMPTION", help="Receiving alone.")
    def switch(target: Target, name: str, what: str | None) -> None:
        chosen = what or "BOTH"
        target.administer(f"{kind}.{verb}", name=name, what=chosen)
        word = "production and consumption" if chosen == "BOTH" else chosen.lower()
        target.say(f"{name}: {word} {done}", {kind: name, done: chosen})

    return switch


def _attributes(given: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in given:
        key, equals, text = one.partition("=")
        if not equals:
            raise click.UsageError(f"{one!r} is not of the form KEY=VALUE")
        found[key.strip()] = _value(key.strip(), text.strip())
    return found


def _value(key: str, text: str) -> Any:
    """A number where it looks like one, bytes where the key says so, else text."""
    if key.endswith("bytes"):
        from hms.boot.kinds import Refused, size  # noqa: PLC0415 - the help loads no messaging

        try:
            return size(0, 1 << 50)(int(text) if text.isdigit() else text)
        except Refused as fault:
            raise click.UsageError(f"{key}: {fault}") from fault
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
