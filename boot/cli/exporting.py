"""hms message export and import: messages of a queue into a file, and out of it again."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.target import Target, target_options
from hms.boot.counts import counted

if TYPE_CHECKING:
    from hms.boot.cli.message_files import Line
    from hms.history.resend import Chunk

__all__ = ["export", "import_"]

CHUNK_MESSAGES, CHUNK_BYTES = 500, 1 << 20


@click.command()
@target_options
@click.argument("place")
@click.option("--to", "path", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--selector", help='Those that fit, such as "Table > 4".')
@click.option("--remove", is_flag=True, help="Delete them once the file is synced.")
@click.option("--replace", is_flag=True, help="Instead of a file that is there.")
def export(
    target: Target, place: str, path: Path, selector: str | None, remove: bool, replace: bool
) -> None:
    """Write what waits in PLACE, queue:NAME, into a file; mode 0600, with a digest.

    What is delayed or in flight is not part of it, and file messages are left out.
    """
    from hms.boot.cli.message_files import write_file  # noqa: PLC0415 - not for --help

    kind, _, name = place.partition(":")
    if kind != "queue" or not name:
        raise click.UsageError(f"{place!r} is not queue:NAME; move or copy to a queue first")
    if path.exists() and not replace:
        raise click.ClickException(f"{path} is there already: name another one, or --replace it")
    with target.connection() as connection, connection.session() as session:
        said = {
            "node": connection.node_name,
            "place": place,
            "selector": selector or "",
            "exported_at": int(time.time() * 1000),
            "store": connection.administer("status").get("store_id", ""),
        }
        with session.browser(name, selector=selector, oldest_first=True) as browser:
            done = write_file(path, said, browser)
        removed = 0
        if remove and done.ids:
            removed = connection.admin.messages(place).where(ids=done.ids).delete().count
    text = f"{place}: {counted(len(done.ids), 'message')} in {path}"
    text += f", {done.files_left} file messages left out" if done.files_left else ""
    text += f", {removed} removed" if remove else ""
    data = {"place": place, "exported": len(done.ids), "files_left": done.files_left}
    target.say(text, data | {"removed": removed, "sha256": done.digest, "file": str(path)})


@click.command("import")
@target_options
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--into", required=True, help="The queue that gets them.")
@click.option("--run", help="The name of this import; else the file's digest.")
@click.option("--keep-ids", "keeps", is_flag=True, help="With the ids and times that they had.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Check the file, and import nothing.")
def import_(
    target: Target, path: Path, into: str, run: str | None, keeps: bool, is_dry: bool
) -> None:
    """Send the messages of an exported file into a queue, each once.

    The file is checked whole before. The node keeps how far a run has come: an interrupted import
    goes on with the same command, and one that is complete sends nothing again. They get new ids,
    and $OriginalMessageID; those that have expired meanwhile are left out.

    With --keep-ids they go into the store that they were exported from, also behind a COLD boot of
    it: no other store has given these ids to them. One that waits in the queue with such an id is
    replaced; where one is in flight, what was imported stays delayed, and is counted.
    """
    from hms.boot.cli.message_files import read_file  # noqa: PLC0415 - not for --help

    lines, digest, store = read_file(path)
    kept = "kept " if keeps else ""
    name, queue = run or f"import {kept}{digest[:16]}", into.removeprefix("queue:")
    if keeps:
        _check_store(target, path, store)
    sent, left = (0, {}) if is_dry else _send(target, lines, digest, name, queue, keeps=keeps)
    verb = "would be imported" if is_dry else "imported"
    count = len(lines) if is_dry else sent
    text = f"{queue}: {count} of {counted(len(lines), 'message')} {verb} (run {name})"
    data = {verb.replace(" ", "_"): count, "in_file": len(lines), "run": name}
    if left:
        text += (
            f"; delayed, without their ids: {', '.join(f'{n} {why}' for why, n in left.items())}"
        )
        data["left"] = left
    target.say(text, data)


def _check_store(target: Target, path: Path, store: str) -> None:
    """An id is given once in the life of a store, so in another one it may be another message's."""
    with target.connection() as connection:
        here = connection.administer("status").get("store_id", "")
    if not store or store != here:
        raise click.ClickException(
            f"{path} was not exported from the store of this node, which may have given these ids "
            "to other messages, or may give them; nothing was imported. Import it without "
            "--keep-ids: each message then gets a new id, and $OriginalMessageID."
        )


def _send(
    target: Target, lines: "list[Line]", digest: str, run: str, queue: str, *, keeps: bool
) -> tuple[int, dict[str, int]]:
    """How many were sent, and why others could not take their ids."""
    from dataclasses import replace  # noqa: PLC0415 - not for --help
    from secrets import token_hex  # noqa: PLC0415 - the same

    from hms.history.ledger import Entry  # noqa: PLC0415 - the same
    from hms.history.resend import Resender  # noqa: PLC0415 - the same

    source, meant = f"file sha256:{digest}", {"into": queue}
    if keeps:
        meant["ids"] = "kept"
    with Resender(target.resolve(), run) as sender, target.connection() as connection:
        if sender.entry is not None:
            sender.entry.check(source, meant)
        before = sender.entry or Entry(
            run, source, meant, until_offset=len(lines), store=token_hex(16)
        )
        secret = before.store if keeps else ""
        place = connection.admin.messages(f"queue:{queue}")
        imported = place.where(f"$ImportedID LIKE '% {secret}'", state="delayed")
        left = dict(imported.take_ids().left) if keeps else {}  # of an import that was interrupted
        entry = before
        for chunk in _chunks(lines, before.next_offset, queue, secret):
            entry = replace(
                entry,
                next_offset=chunk.last + 1,
                sent=entry.sent + chunk.rows,
                is_done=chunk.last + 1 == len(lines),
            )
            sender.send(chunk, entry)
            if keeps:
                left = dict(imported.take_ids().left)
        return entry.sent - before.sent, left


def _chunks(lines: "list[Line]", start: int, queue: str, secret: str) -> "Iterator[Chunk]":
    """What is sent in one transaction, each with its lines."""
    from hms.history.resend import Chunk, Pack  # noqa: PLC0415 - not for --help
    from hms.wire.packed_messages import pack_messages  # noqa: PLC0415 - the same

    first, size, now_ms = start, 0, int(time.time() * 1000)
    packed: list[Any] = []
    for at in range(start, len(lines)):
        line = lines[at]
        if not 0 < line.expires_ms <= now_ms:
            packed.append(line.packed(now_ms, secret))
            size += len(line.body)
        if at + 1 - first >= CHUNK_MESSAGES or size >= CHUNK_BYTES or at + 1 == len(lines):
            pack = Pack("queue", queue, len(packed), pack_messages(packed))
            yield Chunk(first, at, len(packed), 0, 0, [pack] if packed else [])
            first, size, packed = at + 1, 0, []
