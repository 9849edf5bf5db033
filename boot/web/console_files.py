"""Export files of the console: messages of a place as a download, and an upload as an import.

An export is written whole before a byte of it is sent, into a file without a name, so that what
fails or is too long ends as a page that says so. An upload is kept the same way and checked whole;
then the page says what it has, and the second answer imports it, each message once: the node keeps
how far a run has come, as it does for hms message import.
"""

import re
import secrets
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import click

from hms.boot.cli.exporting import check_store, chosen_of, messages_of, send_file
from hms.boot.cli.message_files import write_to
from hms.boot.cli.message_reading import Import, read_file
from hms.boot.counts import counted
from hms.boot.web.console_orders import Refused, Stopped
from hms.boot.web.console_sessions import ConsoleSession
from hms.boot.web.http_server import Answer, Body, Request
from hms.boot.web.markup import button, choice, field, file_form, form, link, text
from hms.boot.web.multipart import MultipartError, read_posted
from hms.boot.web.page_group import PageGroup, Shown, see_other
from hms.errors.tree import HmsError

__all__ = ["Files"]

EXPORT_BYTES_MAX = 256 << 20
UPLOAD_BYTES_MAX = 64 << 20
LINE_BYTES_MAX = 8 << 20
"""Of a line or a pack of an upload: what it says takes up to twenty times as much memory."""
AT_ONCE = 2
"""So many files are written, sent or read at the same time."""
KEPT_MAX, KEPT_S = 4, 600.0
"""So many uploads wait for an answer, and so long."""
WORK_S, ANSWER_S = 120.0, 30.0
KINDS = {"jsonl": "application/jsonl", "pack": "application/octet-stream"}
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


class _Spool:
    """A file without a name, which is gone with its process. ended: is called once at its
    end."""

    def __init__(self, bytes_max: int, too_long: str, ended: Callable[[], object]) -> None:
        self._bytes_max, self._too_long, self._ended = bytes_max, too_long, ended
        self.length = 0
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="hms-web-")  # noqa: SIM115
        except OSError as fault:
            ended()
            raise Refused(f"The file cannot be kept: {fault.strerror}.") from fault

    def write(self, data: bytes) -> int:
        """Add to it. Refused when it is too long, or the disk full."""
        self.length += len(data)
        if self.length > self._bytes_max:
            raise Refused(self._too_long)
        try:
            return self._file.write(data)
        except OSError as fault:
            raise Refused(f"The file cannot be kept: {fault.strerror}.") from fault

    def rewind(self) -> None:
        """From its beginning again."""
        try:
            self._file.seek(0)
        except OSError as fault:
            raise Refused(f"The file cannot be kept: {fault.strerror}.") from fault

    def read(self, count: int) -> bytes:
        """The next bytes."""
        return self._file.read(count)

    @property
    def path(self) -> Path:
        """By which it can be opened as long as it is there."""
        return Path(f"/proc/self/fd/{self._file.fileno()}")

    def close(self) -> None:
        """It is gone."""
        ended, self._ended = self._ended, _nothing
        with suppress(OSError):
            self._file.close()
        ended()


def _nothing() -> None:
    """There is nothing more to do."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An upload that was checked, and waits for its yes."""

    session: ConsoleSession
    spool: _Spool
    file: Import
    name: str
    into: str
    run: str
    keeps: bool
    until_s: float


class Files:
    """clock: seconds that run evenly."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._work = threading.BoundedSemaphore(AT_ONCE)
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self.group = PageGroup(
            {"/import": self._page},
            {"/export": self._export, "/import": self._import},
            {"/import": self._check},
        )

    def close(self) -> None:
        """Let go of what waits."""
        with self._lock:
            kept, self._kept = list(self._kept.values()), {}
        for one in kept:
            one.spool.close()

    # export

    def _export(self, request: Request, session: ConsoleSession) -> Answer:
        given = {name: values[-1] for name, values in request.form.items()}
        place, selector = given.get("place", ""), given.get("selector", "")
        kind = given.get("format", "jsonl")
        if kind not in KINDS:
            raise Refused("The format is jsonl or pack.")
        ids = [one for one in request.form.get("id", []) if one]
        if given.get("action") == "export" and not ids:
            raise Refused("No message is chosen.")
        command = _command(place, selector, kind)
        self._begin(request)
        size = f"{EXPORT_BYTES_MAX >> 20} MiB"
        spool = _Spool(
            EXPORT_BYTES_MAX,
            f"It is longer than {size}, the most that the console gives. Choose fewer by a "
            f"selector, or on the node's machine: {command}",
            self._work.release,
        )
        try:
            with session.connection() as connection:
                said = {
                    "node": connection.node_name,
                    "place": place,
                    "selector": selector,
                    "exported_at": int(time.time() * 1000),
                    "store": connection.administer("status").get("store_id", ""),
                }
            every = messages_of(session.connection, place, selector)
            messages = _without_files(chosen_of(every, ids=ids), command)
            write_to(spool, said, messages, is_packed=kind == "pack")
            spool.rewind()
        except BaseException:
            spool.close()
            raise
        name = f"{_PLAIN.sub('-', place).strip('-.') or 'messages'}.{kind}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        request.take_time(WORK_S)
        return Answer(b"", KINDS[kind], headers=headers, stream=spool)

    # import

    def _page(self, request: Request, session: ConsoleSession) -> Shown:
        into = request.argument("into")
        asked = [
            field("into", "Into", into, is_needed=True),
            field("run", "Name of the import"),
            choice("keeps", "With the ids and times that they had"),
        ]
        said = (
            f"A file of hms message export, or of this console, of at most "
            f"{UPLOAD_BYTES_MAX >> 20} MiB. It is checked whole, and nothing is imported before "
            "you have said yes. A longer one, and one with file messages, is for hms message "
            "import."
        )
        upload = file_form("/import", "File", asked, {"token": session.token})
        return "Import messages", [text(said), upload]

    def _check(self, request: Request, session: ConsoleSession, body: Body) -> Shown:
        """Keep an upload, and say what it has."""
        if body.length > UPLOAD_BYTES_MAX + LINE_BYTES_MAX:
            raise Refused(f"The file has more than {UPLOAD_BYTES_MAX >> 20} MiB.")
        self._begin(request)
        try:
            spool = self._new_spool(session)
            try:
                kept = self._checked(session, body, spool)
            except BaseException:
                spool.close()
                raise
        finally:
            self._work.release()
        key = secrets.token_urlsafe(16)
        with self._lock:
            self._kept[key] = kept
        return self._question(key, kept)

    def _checked(self, session: ConsoleSession, body: Body, spool: _Spool) -> _Kept:
        def take(fields: Mapping[str, str]) -> BinaryIO:
            if not session.is_token(fields.get("token", "")):
                raise Refused("The session is over: open the page anew.")
            if not fields.get("into", "").strip():
                raise Refused("Where they go is missing.")
            return spool  # type: ignore[return-value]

        try:
            posted = read_posted(body, UPLOAD_BYTES_MAX, take)
        except MultipartError as why:
            raise Refused(f"{why} Nothing was imported.") from why
        if not posted.length:
            raise Refused("The file is missing, or has nothing in it.")
        spool.rewind()
        name, keeps = posted.file or "the file", posted.fields.get("keeps") == "yes"
        try:
            with self._reading:
                file = read_file(spool.path, line_bytes_max=LINE_BYTES_MAX)
            if keeps:
                with session.connection() as connection:
                    check_store(connection, name, file.store)
        except click.ClickException as fault:
            raise Refused(fault.message.replace(str(spool.path), name)) from fault
        into = posted.fields["into"].strip().removeprefix("queue:")
        ids = "kept " if keeps else ""
        run = posted.fields.get("run", "").strip() or f"import {ids}{file.digest[:16]}"
        return _Kept(session, spool, file, name, into, run, keeps, self._clock() + KEPT_S)

    def _question(self, key: str, kept: _Kept) -> Shown:
        ids = "the ids that they had" if kept.keeps else "new ids"
        said = (
            f"{kept.name} is whole: {counted(kept.file.length, 'message')}, which go into "
            f"{kept.into} with {ids}, as the run {kept.run}. What this run has imported before is "
            "not imported again; what has expired meanwhile is left out."
        )
        yes = form("/import", [button("Import")], {"upload": key, "token": kept.session.token})
        return "Import?", [text(said), yes, text(link("/import", "Do nothing", into=kept.into))]

    def _import(self, request: Request, session: ConsoleSession) -> Answer:
        """The second answer."""
        key = request.form.get("upload", [""])[-1]
        self._begin(request)
        try:
            with self._lock:
                kept = self._kept.get(key)
                if kept is None or kept.session is not session:
                    raise Refused("The file is not kept any more: send it again.")
                del self._kept[key]
            try:
                connect = partial(session.open, request_timeout_s=ANSWER_S)
                sent, left = send_file(connect, kept.file, kept.run, kept.into, keeps=kept.keeps)
            except click.ClickException as fault:
                raise Stopped(fault.message.replace(str(kept.spool.path), kept.name)) from fault
            except HmsError as error:
                raise Stopped(" ".join([str(error), *getattr(error, "__notes__", ())])) from error
            finally:
                kept.spool.close()
        finally:
            self._work.release()
        said = f"Imported {sent:,} of {counted(kept.file.length, 'message')} into {kept.into}"
        said += f", run {kept.run}."
        if left:
            why = ", ".join(f"{number} {reason}" for reason, number in left.items())
            said += f" Delayed, without their ids: {why}."
        return see_other("/import", said)

    # bounds

    def _begin(self, request: Request) -> None:
        """One of the works that may go on at the same time."""
        if not self._work.acquire(blocking=False):
            raise Refused(f"{AT_ONCE} files are written or read already. Try again soon.")
        request.take_time(WORK_S)

    def _new_spool(self, session: ConsoleSession) -> _Spool:
        """For an upload; what waited of this session, or too long, is let go before."""
        now_s = self._clock()
        with self._lock:
            old = [
                key
                for key, one in self._kept.items()
                if one.session is session or one.until_s <= now_s
            ]
            gone = [self._kept.pop(key) for key in old]
            is_full = len(self._kept) >= KEPT_MAX
        for one in gone:
            one.spool.close()
        if is_full:
            raise Refused(f"{KEPT_MAX} files of others wait for their yes. Try again soon.")
        return _Spool(UPLOAD_BYTES_MAX, "The file is too long.", _nothing)


def _without_files(messages: Iterator[Any], command: str) -> Iterator[Any]:
    """The same; a file message would come without its file."""
    for message in messages:
        if message.file_info is not None:
            raise Refused(
                f"Message {message.message_id} has a file, which a download does not bring. "
                f"On the node's machine: {command}"
            )
        yield message


def _command(place: str, selector: str, kind: str) -> str:
    words = ["hms", "message", "export", place, "--to", f"messages.{kind}"]
    words += ["--selector", selector] if selector else []
    words += ["--format", kind] if kind != "jsonl" else []
    return shlex.join(words)
