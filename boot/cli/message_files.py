"""Export files: messages as lines of JSON, or as packs, with a header and a trailer that has their
digest.

The first line says where they came from; each further one is a message, or packs follow, as a
delivery has them on the wire, each with a checksum. The last line has the count and the SHA-256 of
all bytes before it.
"""

import hashlib
import json
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import click
import msgspec

from hms.client.bodies import encode_file
from hms.client.file_bodies import FileInfo
from hms.client.properties import OF_A_LETTER
from hms.history.backups.backup_manifest import sync_folder
from hms.wire.packed_messages import (
    DELIVERED_ROW,
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

__all__ = [
    "DIGEST",
    "FORMAT",
    "FRAME",
    "PACK_FORMAT",
    "VERSION",
    "Exported",
    "Line",
    "files_of",
    "line_of",
    "write_file",
    "write_to",
]

FORMAT, PACK_FORMAT, VERSION = "hms-messages", "hms-message-packs", 1
FRAME = struct.Struct("<III")
"""In front of a pack: how many messages, how many bytes, and their CRC-32; zeros end the packs."""
PACK_MESSAGES, PACK_BYTES = 500, 1 << 20
NO_ID = "0" * 12
"""Of what keeps the id that it gets."""
DIGEST = re.compile("[0-9a-f]{64}")
_TEXT_BYTES_MAX = 1 << 20
_DELAY_MS = 10 * 365 * 86_400_000
"""Of what has not taken its id yet: nobody gets it before."""


class Writes(Protocol):
    """What an export is written into."""

    def write(self, data: bytes) -> object:
        """Take all of it; OSError."""


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
    if info is None or not DIGEST.fullmatch(info.sha256):
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
    *,
    is_packed: bool = False,
) -> Exported:
    """Write a file beside, sync it, and give it its name; nothing is there before. save: reads the
    file of a message from the node into a path; is_packed: packs instead of lines."""
    beside = path.with_name(f"{path.name}.part")
    ids, named = list[str](), set[str]()
    folder = files_of(path)
    _check_places(path, folder)
    is_new = not folder.exists()
    try:
        beside.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(beside, flags, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            kept = _with_files(messages, folder, named, save)
            digest = write_to(out, said, kept, ids.append, is_packed=is_packed)
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
    return Exported(ids, len(named), digest)


def write_to(
    out: Writes,
    said: Mapping[str, Any],
    messages: Iterable[Any],
    told: Callable[[str], object] = lambda _: None,
    *,
    is_packed: bool = False,
) -> str:
    """Write all of an export, and return its digest; nothing of it is kept in memory. told: is
    called with the id of each message."""
    digest, count = hashlib.sha256(), 0

    def add(data: bytes) -> None:
        digest.update(data)
        out.write(data)

    def counted(message_id: str) -> None:
        nonlocal count
        count += 1
        told(message_id)

    kind = PACK_FORMAT if is_packed else FORMAT
    add(json.dumps({"format": kind, "version": VERSION, **said}).encode() + b"\n")
    for data in _packs(messages, counted) if is_packed else _lines(messages, counted):
        add(data)
    trailer = {"count": count, "sha256": digest.hexdigest()}
    out.write(json.dumps(trailer).encode() + b"\n")
    return digest.hexdigest()


def _check_places(path: Path, folder: Path) -> None:
    """What is there is replaced if it is a file: a link would lead elsewhere, a device be gone."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise click.ClickException(f"{path} is a link or a device, and no file: name another one")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise click.ClickException(f"{folder} is no directory: name another file")


def _with_files(
    messages: Iterable[Any],
    folder: Path,
    named: set[str],
    save: Callable[[FileInfo, Path], object],
) -> Iterator[Any]:
    """The same messages; the file of each is saved before, once."""
    for message in messages:
        info = message.file_info
        if info is not None:
            sha256 = _file_of(info).sha256
            if sha256 not in named:
                folder.mkdir(mode=0o700, exist_ok=True)
                save(info, folder / sha256)
                (folder / sha256).chmod(0o600)
                named.add(sha256)
        yield message


def _lines(messages: Iterable[Any], told: Callable[[str], object]) -> Iterator[bytes]:
    for message in messages:
        line = line_of(message)
        told(line.id)
        yield _encode(line) + b"\n"


def _packs(messages: Iterable[Any], told: Callable[[str], object]) -> Iterator[bytes]:
    rows: list[bytes] = []
    payloads: list[bytes] = []
    size = 0
    for message in messages:
        row, payload = _packed(message)
        rows.append(row)
        payloads.append(payload)
        told(message.message_id)
        size += len(payload)
        if len(rows) >= PACK_MESSAGES or size >= PACK_BYTES:
            yield _pack(rows, payloads)
            rows, payloads, size = [], [], 0
    if rows:
        yield _pack(rows, payloads)
    yield FRAME.pack(0, 0, 0)


def _packed(message: Any) -> tuple[bytes, bytes]:
    """A message as a delivery has it: row, and head with body."""
    row, head, body = message.encode_as_received()
    return DELIVERED_ROW.pack(*row), head + body


def _pack(rows: list[bytes], payloads: list[bytes]) -> bytes:
    data = b"".join([*rows, *payloads])
    return FRAME.pack(len(rows), len(data), zlib.crc32(data)) + data


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
