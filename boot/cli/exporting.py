"""hms message export and import: messages of a place into a file, and out of it again."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.target import Target, target_options
from hms.boot.counts import counted

if TYPE_CHECKING:
    from hms.boot.cli.message_files import Import, Line
    from hms.history.resend import Chunk

__all__ = ["export", "import_"]

CHUNK_MESSAGES, CHUNK_BYTES = 500, 1 << 20
_OTHER_PLACES = ("subscription:", "retained:")


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
    """Write what PLACE has into a file; mode 0600, with a digest.

    PLACE is queue:NAME, subscription:NAME[@TOPIC] or retained:PATTERN. What is delayed is part of
    it, what is in flight is not. The files of file messages go to FILE.files, by their SHA-256.
    """
    from hms.boot.cli.message_files import write_file  # noqa: PLC0415 - not for --help

    if path.exists() and not replace:
        raise click.ClickException(f"{path} is there already: name another one, or --replace it")
    with target.connection() as connection:
        said = {
            "node": connection.node_name,
            "place": place,
            "selector": selector or "",
            "exported_at": int(time.time() * 1000),
            "store": connection.administer("status").get("store_id", ""),
        }

        def save(info: Any, to: Path) -> None:
            from hms.client.file_transfers import saving  # noqa: PLC0415 - where there is a file

            connection.run(saving(connection.requests, info, to))

        done = write_file(path, said, _messages_of(connection, place, selector or ""), save)
        removed = 0
        if remove and done.ids:
            removed = connection.admin.messages(place).where(ids=done.ids).delete().count
    text = f"{place}: {counted(len(done.ids), 'message')} in {path}"
    text += f", {counted(done.files, 'file')} beside it" if done.files else ""
    text += f", {removed} removed" if remove else ""
    data = {"place": place, "exported": len(done.ids), "files": done.files}
    target.say(text, data | {"removed": removed, "sha256": done.digest, "file": str(path)})


def _messages_of(connection: Any, place: str, selector: str) -> Iterator[Any]:
    from hms.client.browse_pages import place_pages  # noqa: PLC0415 - not for --help

    position, has_more = 0, True
    while has_more:
        steps = place_pages(connection.requests, place, selector, position)
        messages, position = connection.run(steps)
        yield from messages
        has_more = position > 0


@click.command("import")
@target_options
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--into", required=True, help="The queue that gets them, or its place.")
@click.option("--run", help="The name of this import; else the file's digest.")
@click.option("--keep-ids", "keeps", is_flag=True, help="With the ids and times that they had.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Check the file, and import nothing.")
def import_(
    target: Target, path: Path, into: str, run: str | None, keeps: bool, is_dry: bool
) -> None:
    """Send the messages of an exported file into a queue, each once.

    --into is NAME or queue:NAME, subscription:NAME[@TOPIC] for one durable subscription, or
    retained:# for the topics that they say; subscribers get nothing anew of what is retained.

    The file is checked whole before. The node keeps how far a run has come: an interrupted import
    goes on with the same command, and one that is complete sends nothing again. They get new ids,
    and $OriginalMessageID; those that have expired meanwhile are left out.

    With --keep-ids they go into the store that they were exported from, also behind a COLD boot of
    it: no other store has given these ids to them. One that waits in the queue with such an id is
    replaced; where one is in flight, what was imported stays delayed, and is counted.
    """
    from hms.boot.cli.message_files import read_file  # noqa: PLC0415 - not for --help

    file = read_file(path)
    kept = "kept " if keeps else ""
    name, queue = run or f"import {kept}{file.digest[:16]}", into.removeprefix("queue:")
    if keeps:
        _check_store(target, path, file.store)
    sent, left = (0, {}) if is_dry else _send(target, path, file, name, queue, keeps=keeps)
    verb = "would be imported" if is_dry else "imported"
    count, in_file = len(file.lines) if is_dry else sent, len(file.lines)
    text = f"{queue}: {count} of {counted(in_file, 'message')} {verb} (run {name})"
    data = {verb.replace(" ", "_"): count, "in_file": in_file, "run": name}
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
    target: Target, path: Path, file: "Import", run: str, into: str, *, keeps: bool
) -> tuple[int, dict[str, int]]:
    """How many were sent, and why others could not take their places."""
    from dataclasses import replace  # noqa: PLC0415 - not for --help
    from secrets import token_hex  # noqa: PLC0415 - the same

    from hms.engine.settings import REPLAY_QUEUE  # noqa: PLC0415 - the same
    from hms.history.ledger import Entry  # noqa: PLC0415 - the same
    from hms.history.resend import Resender  # noqa: PLC0415 - the same

    lines, source, meant = file.lines, f"file sha256:{file.digest}", {"into": into}
    if keeps:
        meant["ids"] = "kept"
    with Resender(target.resolve(), run) as sender, target.connection() as connection:
        if sender.entry is not None:
            sender.entry.check(source, meant)
        before = sender.entry or Entry(
            run, source, meant, until_offset=len(lines), store=token_hex(16)
        )
        is_queue = not into.startswith(_OTHER_PLACES)
        is_staged = keeps or not is_queue or any(line.due_ms for line in lines)
        queue, to = (into, "") if is_queue else (REPLAY_QUEUE, into)
        place = connection.admin.messages(f"queue:{queue}")
        imported = place.where(f"$ImportedID LIKE '% {before.store}'", state="delayed")
        left: dict[str, int] = {}
        if is_staged:  # of an import that was interrupted
            left = dict(imported.take_ids(to=to).left)
        packing = _Packing(connection, path, before.store if is_staged else "", keeps=keeps)
        entry = before
        for chunk in _chunks(lines, before.next_offset, queue, packing):
            entry = replace(
                entry,
                next_offset=chunk.last + 1,
                sent=entry.sent + chunk.rows,
                is_done=chunk.last + 1 == len(lines),
            )
            sender.send(chunk, entry)
            if is_staged:
                left = dict(imported.take_ids(to=to).left)
        return entry.sent - before.sent, left


class _Packing:
    """Makes messages of lines. secret: of an import whose messages take their places then; the
    file of one is sent to the node before."""

    def __init__(self, connection: Any, path: Path, secret: str, *, keeps: bool) -> None:
        self._connection, self._path = connection, path
        self._secret, self._keeps = secret, keeps
        self._sent: dict[tuple[str, bool], Mapping[str, Any]] = {}

    def packed(self, line: "Line", now_ms: int) -> tuple[bytes, bytes, bytes]:
        """Row, head and body."""
        described = None if line.file is None else self._described(line.file)
        return line.packed(now_ms, self._secret, keeps=self._keeps, described=described)

    def _described(self, file: Any) -> Mapping[str, Any]:
        """What the node says of a file; one that several messages bring is sent once."""
        from hms.boot.cli.message_files import files_of  # noqa: PLC0415 - where there is a file
        from hms.client.file_bodies import BLOCK_BYTES, Upload  # noqa: PLC0415 - the same
        from hms.client.file_transfers import uploading  # noqa: PLC0415 - the same

        key = file.sha256, file.is_url_only
        if key not in self._sent:
            upload = Upload(files_of(self._path) / file.sha256, file.is_url_only, BLOCK_BYTES)
            self._sent[key] = self._connection.run(uploading(self._connection.requests, upload))
        return self._sent[key]


def _chunks(lines: "list[Line]", start: int, queue: str, packing: _Packing) -> "Iterator[Chunk]":
    """What is sent in one transaction, each with its lines."""
    from hms.history.resend import Chunk, Pack  # noqa: PLC0415 - not for --help
    from hms.wire.packed_messages import pack_messages  # noqa: PLC0415 - the same

    first, size, now_ms = start, 0, int(time.time() * 1000)
    packed: list[Any] = []
    for at in range(start, len(lines)):
        line = lines[at]
        if not 0 < line.expires_ms <= now_ms:
            packed.append(packing.packed(line, now_ms))
            size += len(line.body)
        if at + 1 - first >= CHUNK_MESSAGES or size >= CHUNK_BYTES or at + 1 == len(lines):
            pack = Pack("queue", queue, len(packed), pack_messages(packed))
            yield Chunk(first, at, len(packed), 0, 0, [pack] if packed else [])
            first, size, packed = at + 1, 0, []
