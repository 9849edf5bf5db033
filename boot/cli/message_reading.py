"""Reading export files: an import believes a file when it was read whole, and sends nothing before.

It is read twice, so that no more of it than a chunk is in memory: once to check every line, pack
and digest, and again to send. A file that was changed in between is told, and what is left of it is
not sent.
"""

import hashlib
import json
import os
import re
import stat
import struct
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import click
import msgspec

from hms.boot.cli.message_files import (
    DIGEST,
    FORMAT,
    FRAME,
    PACK_BYTES,
    PACK_FORMAT,
    VERSION,
    Line,
    files_of,
    line_of,
)
from hms.boot.counts import counted
from hms.client.destinations import Queue
from hms.client.message import Message
from hms.errors.catalogue import MessageFormatError
from hms.errors.tree import HmsError
from hms.wire.packed_messages import (
    DELIVERED_ROW,
    HEAD_BYTES_MAX,
    KIND_COMPRESSED,
    KIND_FILE,
    KIND_MASK,
    KIND_NONE,
    ROW,
    decode_head,
    unpack_delivered,
)

__all__ = ["Import", "LineTooLongError", "line_bytes_for", "read_file"]

_READ_BYTES = 1 << 20
LINE_BYTES_MAX = 1 << 30
HEADER_BYTES_MAX = 1 << 20
PRIORITY_MAX, MS_MAX = 9, 1 << 48
TYPE_MAX = 255
_ID = re.compile("[0-9a-f]{12}")
_KINDS = frozenset(kind | more for kind in range(KIND_NONE + 1) for more in (0, KIND_COMPRESSED))
_read_line = msgspec.json.Decoder(Line)
Trailer = dict[str, Any] | None


def line_bytes_for(message_bytes_max: int) -> int:
    """The most bytes of a line or a pack whose messages a node takes that has max_message_bytes. A
    character is six in JSON at most; a pack is full with the message that fills it."""
    return 6 * message_bytes_max + 2 * PACK_BYTES + HEADER_BYTES_MAX


class _Unit(NamedTuple):
    """A line or a pack: where it stands, its bytes in the file, and its messages."""

    where: str
    data: bytes
    lines: list[Line]


class LineTooLongError(click.ClickException):
    """A line or a pack has more bytes than the reader has memory for."""


class _CutError(Exception):
    """The file ends in the middle of a unit."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


class Import(NamedTuple):
    """A file that was checked. length: how many messages it has; store: from which they were, ""
    where it says none; has_due: some of them wait for a time; is_whole: it has its trailer."""

    path: Path
    length: int
    digest: str
    store: str
    has_due: bool
    is_whole: bool
    seal: tuple[int, int, int]
    line_bytes_max: int

    def lines(self, start: int) -> Iterator[Line]:
        """Its messages from that one on, read again."""
        at = 0
        with _opened(self.path) as source:
            if _seal_of(source) != self.seal:
                raise _changed(self.path)
            _, is_packed = _header(self.path, source)
            units = _units(self.path, source, self.line_bytes_max, is_packed=is_packed)
            for unit in units:
                if _seal_of(source) != self.seal:
                    raise _changed(self.path)
                for line in unit.lines:
                    if at >= start:
                        yield line
                    at += 1
                if at == self.length:
                    return


def read_file(
    path: Path, *, is_partial: bool = False, line_bytes_max: int = LINE_BYTES_MAX
) -> Import:
    """A file that is whole and as it was written; every fault is told with its line. is_partial: of
    one that ends too early, what is whole; line_bytes_max: of a line or a pack, which is in memory
    with all that it says."""
    with _opened(path) as source:
        try:
            return _read(path, source, line_bytes_max, is_partial=is_partial)
        except OSError as fault:
            raise click.ClickException(f"{path} cannot be read: {fault.strerror}") from fault


def _opened(path: Path) -> IO[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise click.ClickException(f"{path} cannot be read: it is no regular file")
        return os.fdopen(descriptor, "rb")
    except OSError as fault:
        raise click.ClickException(f"{path} cannot be read: {fault.strerror}") from fault


def _seal_of(source: IO[bytes]) -> tuple[int, int, int]:
    found = os.fstat(source.fileno())
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: Path, source: IO[bytes], line_bytes_max: int, *, is_partial: bool) -> Import:
    seal, digest = _seal_of(source), hashlib.sha256()
    (store, is_packed), count, has_due = _header(path, source, digest), 0, False
    sizes: dict[str, int] = {}
    units = _units(path, source, line_bytes_max, is_packed=is_packed)
    trailer: Trailer = None
    try:
        while True:
            unit = next(units)
            for line in unit.lines:
                _check_file(path, unit.where, line, sizes)
                has_due = has_due or bool(line.due_ms)
            count += len(unit.lines)
            digest.update(unit.data)
    except StopIteration as end:
        trailer = end.value
    except _CutError as cut:
        if not is_partial:
            detail = "the trailer is missing: the file is truncated"
            raise _fault(path, cut.where, detail) from cut
    if trailer is not None:
        _check_trailer(path, trailer, count, digest.hexdigest())
    elif not count:
        raise _fault(path, "line 2", "no message of it is whole")
    is_whole = trailer is not None
    return Import(path, count, digest.hexdigest(), store, has_due, is_whole, seal, line_bytes_max)


def _check_trailer(path: Path, trailer: dict[str, Any], count: int, digest: str) -> None:
    if trailer["count"] != count:
        detail = f"it has {counted(count, 'message')}, and says {trailer['count']}"
        raise _fault(path, "its trailer", detail)
    if trailer["sha256"] != digest:
        raise _fault(path, "its trailer", "the digest does not fit: the file was altered")


def _header(path: Path, source: IO[bytes], digest: Any = None) -> tuple[str, bool]:
    """The store that it names, and whether packs follow."""
    data = source.readline(HEADER_BYTES_MAX)
    if digest is not None:
        digest.update(data)
    try:
        header = json.loads(data)
        said, version = header["format"], header["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as fault:
        raise _fault(path, "line 1", "this is no export of messages") from fault
    if said not in (FORMAT, PACK_FORMAT):
        detail = f"its format is {said!r}, neither {FORMAT!r} nor {PACK_FORMAT!r}"
        raise _fault(path, "line 1", detail)
    if version != VERSION:
        detail = f"it is of version {version!r}; this one reads {VERSION}"
        raise _fault(path, "line 1", detail)
    return str(header.get("store", "")), said == PACK_FORMAT


def _units(
    path: Path, source: IO[bytes], bytes_max: int, *, is_packed: bool
) -> Generator[_Unit, None, Trailer]:
    """What follows the header; returns the trailer. _CutError when the file ends before it."""
    return (yield from (_packs if is_packed else _lines)(path, source, bytes_max))


def _lines(path: Path, source: IO[bytes], bytes_max: int) -> Generator[_Unit, None, Trailer]:
    number = 1
    last = ""
    while True:
        number += 1
        where = f"line {number}"
        data = source.readline(bytes_max + 1)
        if len(data) > bytes_max:
            raise LineTooLongError(_told(path, where, f"a line of more than {bytes_max} bytes"))
        trailer = _trailer_of(data)
        if trailer is not None:
            if source.read(1):
                raise _fault(path, where, "something stands behind the trailer")
            return trailer
        if not data.endswith(b"\n"):
            raise _CutError(last or where)
        yield _Unit(where, data, [_message(path, where, data)])
        last = where


def _trailer_of(data: bytes) -> Trailer:
    """What a last line says; None for any other one."""
    if not data.startswith(b'{"count"'):
        return None
    try:
        found = json.loads(data)
        return {"count": found["count"], "sha256": found["sha256"]}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _packs(path: Path, source: IO[bytes], bytes_max: int) -> Generator[_Unit, None, Trailer]:
    number = 0
    while True:
        number += 1
        where = f"pack {number}"
        head = source.read(FRAME.size)
        if len(head) < FRAME.size:
            raise _CutError(where)
        count, length, checksum = FRAME.unpack(head)
        if not count:
            yield _Unit(where, head, [])
            trailer = _trailer_of(source.readline(HEADER_BYTES_MAX))
            if trailer is None or source.read(1):
                raise _CutError("its trailer")
            return trailer
        if length > bytes_max or count * DELIVERED_ROW.size > length:
            detail = f"it says {counted(count, 'message')} in {length} bytes"
            kind = LineTooLongError if length > bytes_max else click.ClickException
            raise kind(_told(path, where, detail))
        data = source.read(length)
        if len(data) < length:
            raise _CutError(where)
        if zlib.crc32(data) != checksum:
            raise _fault(path, where, "its checksum does not fit: the file was altered")
        yield _Unit(where, head + data, _unpacked(path, where, data, count))


def _unpacked(path: Path, where: str, data: bytes, count: int) -> list[Line]:
    try:
        found = unpack_delivered(data, count)
        lines = [line_of(Message.received(*one, Queue("place"))) for one in found]
    except (HmsError, MessageFormatError, ValueError, struct.error) as fault:
        raise _fault(path, where, str(fault)) from fault
    return [_checked(path, where, line) for line in lines]


def _message(path: Path, where: str, data: bytes) -> Line:
    try:
        return _checked(path, where, _read_line.decode(data))
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise _fault(path, where, str(fault)) from fault


def _checked(path: Path, where: str, line: Line) -> Line:
    """A message that a node can take."""
    _check_names(path, where, line)
    try:
        row, head, _ = line.packed(0)
        decode_head(head)
    except (MessageFormatError, ValueError, struct.error) as fault:
        raise _fault(path, where, str(fault)) from fault
    if line.kind not in _KINDS:
        raise _fault(path, where, f"there is no kind {line.kind}")
    if not 0 <= line.priority <= PRIORITY_MAX:
        raise _fault(path, where, f"its priority is {line.priority}, and at most {PRIORITY_MAX}")
    if not all(0 <= ms < MS_MAX for ms in (line.time_ms, line.expires_ms, line.due_ms)):
        raise _fault(path, where, "one of its times is no time")
    if len(head) > HEAD_BYTES_MAX or len(row) != ROW.size:
        raise _fault(path, where, f"its head takes {len(head)} bytes")
    if (line.kind & KIND_MASK == KIND_FILE) is not (line.file is not None):
        raise _fault(path, where, "a file message, which does not say its file")
    if line.file is not None and not DIGEST.fullmatch(line.file.sha256):
        raise _fault(path, where, "the SHA-256 of its file is none")
    return line


def _check_names(path: Path, where: str, line: Line) -> None:
    """Its id, and the types of its properties."""
    if _ID.fullmatch(line.id) is None:
        detail = f"its id {line.id[:20]!r} is none: 12 hexadecimal digits"
        raise _fault(path, where, detail)
    for code, _ in (*line.properties.values(), *line.bytes_properties.values()):
        if code is not None and not 0 <= code <= TYPE_MAX:
            raise _fault(path, where, f"there is no type {code} of a property")


def _check_file(path: Path, where: str, line: Line, known: dict[str, int]) -> None:
    """The file that a message brings is there, and is what it was; each is read once."""
    file = line.file
    if file is None:
        return
    if file.sha256 not in known:
        try:
            known[file.sha256] = _checked_size(files_of(path) / file.sha256, file.sha256)
        except (OSError, ValueError) as fault:
            raise _fault(path, where, f"its file {file.sha256}: {fault}") from fault
    if known[file.sha256] != file.bytes:
        detail = f"its file has {known[file.sha256]} bytes, not {file.bytes}"
        raise _fault(path, where, detail)


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


def _changed(path: Path) -> click.ClickException:
    return click.ClickException(f"{path} was changed while it was imported; the rest was not sent")


def _fault(path: Path, where: str, detail: str) -> click.ClickException:
    return click.ClickException(_told(path, where, detail))


def _told(path: Path, where: str, detail: str) -> str:
    return f"{path}, {where}: {detail}; nothing was imported"
