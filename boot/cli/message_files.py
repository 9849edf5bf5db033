"""Export files: messages as lines of JSON, with a header and a trailer that has their digest.

The first line says where they came from, each further one is a message, the last one has their
count and the SHA-256 of all lines before it. A file is read whole, and believed, before anything of
it is sent.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from hms.boot.counts import counted
from hms.client.bodies import encode_file
from hms.client.file_bodies import FileInfo
from hms.client.properties import OF_A_LETTER
from hms.errors.catalogue import MessageFormatError
from hms.history.backups.backup_manifest import sync_folder
from hms.wire.packed_messages import (
    HEAD_BYTES_MAX,
    KIND_FILE,
    KIND_MASK,
    KIND_TEXT,
    NODE_DELIVERY_TIME,
    NODE_FILE_NAME,
    NODE_IMPORTED_DUE,
    NODE_IMPORTED_ID,
    NODE_IMPORTED_TIME,
    NODE_TOPIC,
    ROW,
    Head,
    decode_head,
    encode_head,
)

__all__ = ["Exported", "Import", "Line", "files_of", "read_file", "write_file"]

FORMAT, VERSION = "hms-messages", 1
NO_ID = "0" * 12
"""Of what keeps the id that it gets."""
_DIGEST = re.compile("[0-9a-f]{64}")
_READ_BYTES = 1 << 20
LINE_BYTES_MAX = 1 << 30
_TEXT_BYTES_MAX = 1 << 20
_DELAY_MS = 10 * 365 * 86_400_000
"""Of what has not taken its id yet: nobody gets it before."""


class File(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The file of a message, which stands under its digest beside the export."""

    sha256: str
    bytes: int
    name: str
    is_url_only: bool = False


class Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message. properties: (type, value) by name, type None where it follows from the value;
    node: what the node had added; due_ms: its time of delivery, 0 for none; bytes in base64."""

    id: str
    time_ms: int
    kind: int
    expires_ms: int = 0
    priority: int = 4
    persistent: bool = True
    count: int = 0
    type: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    properties: dict[str, tuple[int | None, bool | int | float | str | None]] = {}
    bytes_properties: dict[str, tuple[int | None, bytes]] = {}
    node: dict[str, bool | int | float | str] = {}
    text: str | None = None
    base64: bytes | None = None
    due_ms: int = 0
    file: File | None = None

    @property
    def body(self) -> bytes:
        """Its bytes, as a client packed them."""
        return self.text.encode() if self.text is not None else self.base64 or b""

    def packed(
        self,
        now_ms: int,
        secret: str = "",
        *,
        keeps: bool = True,
        described: Mapping[str, Any] | None = None,
    ) -> tuple[bytes, bytes, bytes]:
        """Row, head and body of a new message; its head says whose copy it is. secret: of an import
        that takes it to its place and its time; keeps: with its id; described: its file, as the
        node has it."""
        values = {**self.properties, **self.bytes_properties}
        codes = [code for code, _ in values.values()]
        types = b"" if None in codes else bytes(code for code in codes if code is not None)
        node = {"$OriginalMessageID": self.id, **self.node}
        if secret and keeps:
            node = {
                NODE_IMPORTED_ID: f"{self.id} {secret}",
                NODE_IMPORTED_TIME: self.time_ms,
                **self.node,
            }
        elif secret:
            node[NODE_IMPORTED_ID] = f"{NO_ID} {secret}"
        if self.due_ms:
            node[NODE_IMPORTED_DUE if secret else NODE_DELIVERY_TIME] = self.due_ms
        body = self.body
        if self.file is not None and described is not None:
            described = {**described, NODE_FILE_NAME: self.file.name}
            node, body = {**node, **described}, encode_file(described)
        head = encode_head(
            Head(
                {name: value for name, (_, value) in values.items()},
                types,
                self.correlation_id,
                self.reply_to,
                self.type,
                node,
            )
        )
        ttl_ms = self.expires_ms - now_ms if self.expires_ms else 0
        delay_ms = _DELAY_MS if secret else 0
        row = ROW.pack(len(head), len(body), ttl_ms, delay_ms, self.priority, self.kind, 0, 0)
        return row, head, body


_read_line = msgspec.json.Decoder(Line)
_encode = msgspec.json.Encoder().encode


def line_of(message: Any) -> Line:
    """From a message that was browsed."""
    row, data, body = message.encode()
    kind: int = ROW.unpack(row)[5]
    head = decode_head(data) if data else Head()
    codes: list[int | None] = [*head.types] or [None] * len(head.properties)
    both = zip(codes, head.properties.items(), strict=True)
    values = {name: (code, value) for code, (name, value) in both}
    node = {name: message.reserved(name) for name in (*OF_A_LETTER, NODE_TOPIC)}
    due_ms = message.delivery_time_ms or 0
    line = Line(
        message.message_id,
        message.timestamp_ms,
        kind,
        message.expires_at_ms or 0,
        message.priority,
        message.persistent,
        message.delivery_count or 0,
        head.type,
        head.correlation_id,
        head.reply_to,
        {name: one for name, one in values.items() if not isinstance(one[1], bytes)},
        {name: one for name, one in values.items() if isinstance(one[1], bytes)},
        {name: value for name, value in node.items() if value is not None},
        due_ms=due_ms if due_ms != message.timestamp_ms else 0,
    )
    if kind & KIND_MASK == KIND_FILE:
        line.file = _file_of(message.file_info)
        return line
    is_text = kind == KIND_TEXT and len(body) <= _TEXT_BYTES_MAX
    with suppress(UnicodeDecodeError):
        line.text = body.decode() if is_text else None
    line.base64 = None if line.text is not None else body
    return line


def _file_of(info: FileInfo | None) -> File:
    if info is None or not _DIGEST.fullmatch(info.sha256):
        raise click.ClickException("a file message does not say which file it has")
    return File(info.sha256, info.size_bytes, info.name, bool(info.url))


class Exported(NamedTuple):
    """What a file has."""

    ids: list[str]
    files: int
    digest: str


def files_of(path: Path) -> Path:
    """The folder of the files that messages of an export bring."""
    return path.with_name(f"{path.name}.files")


def write_file(
    path: Path,
    said: Mapping[str, Any],
    messages: Iterable[Any],
    save: Callable[[FileInfo, Path], object] = lambda _info, _path: None,
) -> Exported:
    """Write a file beside, sync it, and give it its name; nothing is there before. save: reads the
    file of a message from the node into a path."""
    beside = path.with_name(f"{path.name}.part")
    digest, ids, named = hashlib.sha256(), list[str](), set[str]()
    folder = files_of(path)
    is_new = not folder.exists()
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:

            def add(line: bytes) -> None:
                digest.update(line + b"\n")
                out.write(line + b"\n")

            add(json.dumps({"format": FORMAT, "version": VERSION, **said}).encode())
            for message in messages:
                line = line_of(message)
                if line.file is not None and line.file.sha256 not in named:
                    folder.mkdir(mode=0o700, exist_ok=True)
                    save(message.file_info, folder / line.file.sha256)
                    (folder / line.file.sha256).chmod(0o600)
                    named.add(line.file.sha256)
                add(_encode(line))
                ids.append(line.id)
            trailer = {"count": len(ids), "sha256": digest.hexdigest()}
            out.write(json.dumps(trailer).encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())
        if named:
            sync_folder(folder)
        beside.rename(path)
    except BaseException as fault:
        with suppress(OSError):
            beside.unlink()
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(fault, OSError):
            raise _unwritten(path, fault) from fault
        raise
    _finish(path, named)
    return Exported(ids, len(named), digest.hexdigest())


def _finish(path: Path, named: Container[str]) -> None:
    """Sync the name of a file that is whole, and remove files of the export that it replaced."""
    try:
        sync_folder(path.absolute().parent)
        folder = files_of(path)
        for other in folder.glob("*") if folder.is_dir() else ():
            if other.name not in named:
                other.unlink()
    except OSError as fault:
        raise _unwritten(path, fault) from fault


def _unwritten(path: Path, fault: OSError) -> click.ClickException:
    return click.ClickException(f"{path} cannot be written: {fault.strerror}")


class Import(NamedTuple):
    """What a file that is whole has; store: from which its messages were, "" where it says none."""

    lines: list[Line]
    digest: str
    store: str


def read_file(path: Path) -> Import:
    """A file that is whole and as it was written; every fault is told with its line."""
    try:
        with path.open("rb") as source:
            return _read(path, source)
    except OSError as fault:
        raise click.ClickException(f"{path} cannot be read: {fault.strerror}") from fault


def _read(path: Path, source: Iterable[bytes]) -> Import:
    digest, lines = hashlib.sha256(), list[Line]()
    numbered = _numbered(path, source)
    number, first = next(numbered, (0, b""))
    store = _check_header(path, first)
    digest.update(first)
    number, last = next(numbered, (number, b""))
    for following, data in numbered:
        lines.append(_message(path, number, last))
        digest.update(last)
        number, last = following, data
    try:
        trailer = json.loads(last)
        told = trailer["count"], trailer["sha256"]
    except (ValueError, TypeError, KeyError) as fault:
        raise _fault(path, number, "the trailer is missing: the file is truncated") from fault
    if told[0] != len(lines):
        raise _fault(path, number, f"it has {counted(len(lines), 'message')}, and says {told[0]}")
    if told[1] != digest.hexdigest():
        raise _fault(path, number, "the digest does not fit: the file was altered")
    _check_files(path, lines)
    return Import(lines, digest.hexdigest(), store)


def _check_files(path: Path, lines: list[Line]) -> None:
    """Each file that a message brings is there, and is what it was."""
    known = dict[str, int]()
    for number, line in enumerate(lines, 2):
        file = line.file
        if file is None:
            continue
        if file.sha256 not in known:
            try:
                known[file.sha256] = _checked_size(files_of(path) / file.sha256, file.sha256)
            except (OSError, ValueError) as fault:
                raise _fault(path, number, f"its file {file.sha256}: {fault}") from fault
        if known[file.sha256] != file.bytes:
            detail = f"its file has {known[file.sha256]} bytes, not {file.bytes}"
            raise _fault(path, number, detail)


def _checked_size(path: Path, sha256: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as source:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("this is no regular file")
        digest = hashlib.sha256()
        while data := source.read(_READ_BYTES):
            digest.update(data)
    if digest.hexdigest() != sha256:
        raise ValueError("it was altered")
    return found.st_size


def _numbered(path: Path, source: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, data in enumerate(source, 1):
        if len(data) > LINE_BYTES_MAX:
            raise _fault(path, number, f"a line of {len(data)} bytes")
        yield number, data


def _check_header(path: Path, data: bytes) -> str:
    """The store that it names."""
    try:
        header = json.loads(data)
        said, version = header["format"], header["version"]
    except (ValueError, TypeError, KeyError) as fault:
        raise _fault(path, 1, "this is no export of messages") from fault
    if said != FORMAT:
        raise _fault(path, 1, f"its format is {said!r}, not {FORMAT!r}")
    if version != VERSION:
        raise _fault(path, 1, f"it is of version {version}; this one reads {VERSION}")
    return str(header.get("store", ""))


def _message(path: Path, number: int, data: bytes) -> Line:
    try:
        line = _read_line.decode(data)
        row, head, _ = line.packed(0)
        decode_head(head)
    except (msgspec.MsgspecError, MessageFormatError, ValueError, struct.error) as fault:
        raise _fault(path, number, str(fault)) from fault
    if len(head) > HEAD_BYTES_MAX or len(row) != ROW.size:
        raise _fault(path, number, f"its head takes {len(head)} bytes")
    if (line.kind & KIND_MASK == KIND_FILE) is not (line.file is not None):
        raise _fault(path, number, "a file message, which does not say its file")
    if line.file is not None and not _DIGEST.fullmatch(line.file.sha256):
        raise _fault(path, number, "the SHA-256 of its file is none")
    return line


def _fault(path: Path, number: int, detail: str) -> click.ClickException:
    return click.ClickException(f"{path}, line {number}: {detail}; nothing was imported")
