"""hms message export and import: messages of a place into a file, and out of it again."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hms.boot.cli.selection import asked_for, selection_options
from hms.boot.cli.target import Target, target_options
from hms.boot.counts import counted

if TYPE_CHECKING:
    from hms.boot.cli.message_files import Line
    from hms.boot.cli.message_reading import Import
    from hms.history.resend import Chunk

__all__ = ["check_store", "chosen_of", "export", "import_", "messages_of", "send_file"]

CHUNK_MESSAGES, CHUNK_BYTES = 500, 1 << 20
LINE_BYTES_UNASKED = 4 << 20
"""As long a line of an import may be of any node; what is longer is asked for."""
MESSAGE_BYTES_MIN = 256
"""What a message counts in a transaction, however small it is."""
_OTHER_PLACES = ("subscription:", "retained:")


@click.command()
@target_options
@click.argument("place")
@click.option("--to", "path", type=click.Path(path_type=Path, dir_okay=False), required=True)
@partial(selection_options, has_order=False)
@click.option("--remove", is_flag=True, help="Delete them once the file is synced.")
@click.option("--replace", is_flag=True, help="Instead of a file that is there.")
@click.option("--format", "format_", type=click.Choice(["jsonl", "pack"]), default="jsonl")
@click.option("--at", help="What waited then: an LSN, or a time such as 2026-05-01T08:00 (UTC).")
@click.option("--path", "history", help="With --at: a store or an archive, instead of hms.conf's.")
def export(
    target: Target,
    place: str,
    path: Path,
    remove: bool,
    replace: bool,
    format_: str,
    at: str | None,
    history: str | None,
    **rest: Any,
) -> None:
    """Write what PLACE has, or what is chosen of it, into a file; mode 0600, with a digest.

    PLACE is queue:NAME, subscription:NAME[@TOPIC] or retained:PATTERN. What is delayed is part of
    it, what is in flight is not. The files of file messages go to FILE.files, by their SHA-256.

    --format pack writes packs as on the wire, each with a checksum: quicker, and not to be read by
    people. --at reads the history, and the node need not run: what had come to a queue or durable
    subscription by then and had not left it; file messages are counted and left out.
    """
    from hms.boot.cli.message_files import write_file  # noqa: PLC0415 - not for --help

    if path.exists() and not replace:
        raise click.ClickException(f"{path} is there already: name another one, or --replace it")
    is_packed = format_ == "pack"
    chosen = asked_for(**rest)
    selector = chosen.pop("selector")
    if chosen["state"] in ("in_flight", "prepared"):
        raise click.UsageError(f"--state {chosen['state']}: what is in flight is not exported")
    if at is not None:
        if remove:
            raise click.UsageError("--remove and --at: the past is not changed")
        if any(chosen.values()):
            raise click.UsageError("--at goes with --selector alone")
        _export_past(target, place, path, selector, at, history, is_packed=is_packed)
        return
    if history is not None:
        raise click.UsageError("--path goes with --at")
    with target.connection() as connection:
        said = {
            "node": connection.node_name,
            "place": place,
            "selector": selector,
            "exported_at": int(time.time() * 1000),
            "store": connection.administer("status").get("store_id", ""),
        }

        def save(info: Any, to: Path) -> None:
            from hms.client.file_transfers import saving  # noqa: PLC0415 - where there is a file

            connection.run(saving(connection.requests, info, to))

        every = messages_of(partial(nullcontext, connection), place, selector)
        messages = chosen_of(every, int(time.time() * 1000), **chosen)
        done = write_file(path, said, messages, save, is_packed=is_packed)
        removed = 0
        if remove and done.ids:
            removed = connection.admin.messages(place).where(ids=done.ids).delete().count
    text = f"{place}: {counted(len(done.ids), 'message')} in {path}"
    text += f", {counted(done.files, 'file')} beside it" if done.files else ""
    text += f", {removed} removed" if remove else ""
    data = {"place": place, "exported": len(done.ids), "files": done.files}
    target.say(text, data | {"removed": removed, "sha256": done.digest, "file": str(path)})


def _export_past(
    target: Target,
    place: str,
    path: Path,
    selector: str,
    at: str,
    history: str | None,
    *,
    is_packed: bool,
) -> None:
    from hms.boot.cli.message_files import write_file  # noqa: PLC0415 - not for --help
    from hms.boot.cli.target import address_and_store  # noqa: PLC0415 - the same
    from hms.history.past_messages import Past  # noqa: PLC0415 - the same

    past = Past(history or str(address_and_store(target.path)[1]), place, at, selector)
    said = {
        "node": target.node_name or "",
        "place": place,
        "selector": selector,
        "exported_at": int(time.time() * 1000),
        "store": past.store,
        "at": at,
        "first_lsn": past.first_offset,
        "last_lsn": past.last_offset,
    }
    done = write_file(path, said, past.messages(), is_packed=is_packed)
    text = f"{place} at {at}: {counted(len(done.ids), 'message')} in {path}"
    text += f"; {counted(past.files, 'file message')} left out" if past.files else ""
    data = {"place": place, "at": at, "exported": len(done.ids), "left_out_files": past.files}
    data |= {"last_lsn": past.last_offset, "sha256": done.digest, "file": str(path)}
    target.say(text, data)


def chosen_of(
    messages: Iterator[Any],
    now_ms: int = 0,
    *,
    ids: Collection[str] = (),
    type: str = "",  # noqa: A002 - as a message calls it
    older_than_s: float = 0,
    min_count: int = 0,
    state: str = "",
    limit: int = 0,
    since: datetime | None = None,
    until: datetime | None = None,
    **_: Any,
) -> Iterator[Any]:
    """Those that are meant, as where() of the node's commands means them. InvalidArgument."""
    wanted = frozenset(f"{number:012x}" for number in _numbers(ids))
    from_ms = 0.0 if since is None else since.timestamp() * 1000
    until_ms = inf if until is None else until.timestamp() * 1000
    if older_than_s:
        until_ms = min(until_ms, now_ms - older_than_s * 1000)
    count = 0
    for message in messages:
        is_delayed = (message.delivery_time_ms or 0) > now_ms
        if (
            (not wanted or message.message_id in wanted)
            and from_ms <= message.timestamp_ms < until_ms
            and (not type or message.type == type)
            and (message.delivery_count or 0) >= min_count
            and (not state or is_delayed is (state == "delayed"))
        ):
            yield message
            count += 1
            if count == limit:
                return


def _numbers(ids: Collection[str]) -> Iterator[int]:
    from hms.engine.admin.message_selection import id_of  # noqa: PLC0415 - not for --help

    return map(id_of, ids)


def messages_of(
    connected: Callable[[], AbstractContextManager[Any]], place: str, selector: str
) -> Iterator[Any]:
    """What a place has, page by page. connected: gives the connection for one page."""
    from hms.client.browse_pages import place_pages  # noqa: PLC0415 - not for --help

    position, has_more = 0, True
    while has_more:
        with connected() as connection:
            steps = place_pages(connection.requests, place, selector, position)
            messages, position = connection.run(steps)
        yield from messages
        has_more = position > 0


@click.command("import")
@target_options
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--into", required=True, help="The queue that gets them, or its place.")
@click.option("--run-id", "--run", "run", help="The name of this import; else the file's digest.")
@click.option("--keep-ids", "keeps", is_flag=True, help="With the ids and times that they had.")
@click.option("--partial", "is_partial", is_flag=True, help="What is whole of a truncated file.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Check the file, and import nothing.")
def import_(
    target: Target,
    path: Path,
    into: str,
    run: str | None,
    keeps: bool,
    is_partial: bool,
    is_dry: bool,
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
    from hms.boot.cli.message_reading import read_file  # noqa: PLC0415 - not for --help
    from hms.errors.tree import HmsError  # noqa: PLC0415 - the same

    if is_dry:
        file = read_file(path, is_partial=is_partial)
    else:
        file = _read_for(target, path, is_partial=is_partial)
    kept = "kept " if keeps else ""
    name, queue = run or f"import {kept}{file.digest[:16]}", into.removeprefix("queue:")
    if keeps:
        with target.connection() as connection:
            check_store(connection, str(path), file.store)
    sent, left = 0, dict[str, int]()
    try:
        if not is_dry:
            sent, left = send_file(partial(_open, target), file, name, queue, keeps=keeps)
    except (HmsError, KeyboardInterrupt) as error:
        for note in getattr(error, "__notes__", ()):
            click.echo(f"{queue}: {note}", err=True)
        raise
    verb = "would be imported" if is_dry else "imported"
    count, in_file = file.length if is_dry else sent, file.length
    text = f"{queue}: {count} of {counted(in_file, 'message')} {verb} (run {name})"
    data = {verb.replace(" ", "_"): count, "in_file": in_file, "run": name}
    if not file.is_whole:
        text += "; the file is truncated, and the rest of it is missing"
        data["is_truncated"] = True
    if left:
        text += (
            f"; delayed, without their ids: {', '.join(f'{n} {why}' for why, n in left.items())}"
        )
        data["left"] = left
    target.say(text, data)


def _read_for(target: Target, path: Path, *, is_partial: bool) -> "Import":
    """What the node can take. Its limit is asked for where a line is long, so that a fault of a
    file is told without a node, and a line that no message fills is never whole in memory."""
    from hms.boot.cli.message_reading import (  # noqa: PLC0415 - not for --help
        LineTooLongError,
        line_bytes_for,
        read_file,
    )

    with suppress(LineTooLongError):
        return read_file(path, is_partial=is_partial, line_bytes_max=LINE_BYTES_UNASKED)
    with target.connection() as connection:
        largest = connection.requests.link.limits.message_bytes_max
    bytes_max = max(line_bytes_for(largest), LINE_BYTES_UNASKED)
    try:
        return read_file(path, is_partial=is_partial, line_bytes_max=bytes_max)
    except LineTooLongError as fault:
        detail = f"max_message_bytes of the node is {largest}: raise it there, or remove the line"
        raise click.ClickException(f"{fault.message}; {detail}") from fault


def check_store(connection: Any, name: str, store: str) -> None:
    """An id is given once in the life of a store, so in another one it may be another message's."""
    here = connection.administer("status").get("store_id", "")
    if not store or store != here:
        raise click.ClickException(
            f"{name} was not exported from the store of this node, which may have given these ids "
            "to other messages, or may give them; nothing was imported. Import it without "
            "--keep-ids: each message then gets a new id, and $OriginalMessageID."
        )


def _open(target: Target, **options: Any) -> Any:
    from hms.client.connection import Connection  # noqa: PLC0415 - not for --help
    from hms.client.profiles.profiled import tool_connection  # noqa: PLC0415 - the same

    own = {"reconnect": False, "request_timeout_s": target.timeout_s}
    made = tool_connection(Connection, target.resolve(), **{**own, **options})
    made.requests.begin_within(target.timeout_s)
    return made.open()


def send_file(
    connect: Callable[..., Any], file: "Import", run: str, into: str, *, keeps: bool
) -> tuple[int, dict[str, int]]:
    """Send what a file has that was checked, each once: how many were sent, and why others could
    not take their places. connect: opens a connection with options of Connection."""
    from dataclasses import replace  # noqa: PLC0415 - not for --help
    from secrets import token_hex  # noqa: PLC0415 - the same

    from hms.engine.settings import REPLAY_QUEUE  # noqa: PLC0415 - the same
    from hms.errors.tree import HmsError  # noqa: PLC0415 - the same
    from hms.history.ledger import Entry  # noqa: PLC0415 - the same
    from hms.history.resend import TOO_LARGE, Resender, smaller  # noqa: PLC0415 - the same

    source, meant = f"file sha256:{file.digest}", {"into": into}
    if keeps:
        meant["ids"] = "kept"
    with Resender("", run, connect) as sender, connect(client_name="hms") as connection:
        if sender.entry is not None:
            sender.entry.check(source, meant)
        before = sender.entry or Entry(
            run, source, meant, until_offset=file.length, store=token_hex(16)
        )
        is_queue = not into.startswith(_OTHER_PLACES)
        is_staged = keeps or not is_queue or file.has_due
        queue, to = (into, "") if is_queue else (REPLAY_QUEUE, into)
        place = connection.admin.messages(f"queue:{queue}")
        imported = place.where(f"$ImportedID LIKE '% {before.store}'", state="delayed")
        left: dict[str, int] = {}
        if is_staged:  # of an import that was interrupted
            left = dict(imported.take_ids(to=to).left)
        packing = _Packing(connection, file.path, before.store if is_staged else "", keeps=keeps)
        entry, most = before, (CHUNK_MESSAGES, CHUNK_BYTES)
        try:
            while entry.next_offset < file.length:
                for chunk in _chunks(file, entry.next_offset, queue, packing, most):
                    after = replace(
                        entry,
                        next_offset=chunk.last + 1,
                        sent=entry.sent + chunk.rows,
                        is_done=chunk.last + 1 == file.length,
                    )
                    try:
                        sender.send(chunk, after)
                    except TOO_LARGE as error:
                        fitting = smaller(*most, error)
                        if fitting is None:
                            raise
                        most = fitting
                        sender.reopen()
                        break
                    entry = after
                    if is_staged:
                        left = dict(imported.take_ids(to=to).left)
        except (HmsError, KeyboardInterrupt) as error:
            done = sender.entry.next_offset if sender.entry is not None else 0
            error.add_note(
                f"{done} of {counted(file.length, 'message')} are imported. The same import "
                "goes on behind them, and sends none twice."
            )
            raise
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


def _chunks(
    file: "Import", start: int, queue: str, packing: _Packing, most: tuple[int, int]
) -> "Iterator[Chunk]":
    """What is sent in one transaction, each with its lines; most: messages and bytes."""
    from hms.history.resend import Chunk, Pack  # noqa: PLC0415 - not for --help
    from hms.wire.packed_messages import pack_messages  # noqa: PLC0415 - the same

    first, size, now_ms = start, 0, int(time.time() * 1000)
    packed: list[Any] = []
    for at, line in enumerate(file.lines(start), start):
        if not 0 < line.expires_ms <= now_ms:
            row, head, body = packing.packed(line, now_ms)
            packed.append((row, head, body))
            size += max(MESSAGE_BYTES_MIN, len(head) + len(body))
        if at + 1 - first >= most[0] or size >= most[1] or at + 1 == file.length:
            pack = Pack("queue", queue, len(packed), pack_messages(packed))
            yield Chunk(first, at, len(packed), 0, 0, [pack] if packed else [])
            first, size, packed = at + 1, 0, []
