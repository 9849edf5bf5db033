"""A form with a file, as a browser sends it (RFC 7578), read in blocks.

Its fields stand before the file: they are known when it comes, and what is refused is refused
before a byte of it is kept.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

from hms.boot.web.http_server import Body

__all__ = ["MultipartError", "Posted", "read_posted"]

BLOCK_BYTES = 64 << 10
HEAD_BYTES_MAX = 4 << 10
FIELD_BYTES_MAX = 4 << 10
FIELDS_MAX = 20
_BOUNDARY = re.compile(r';\s*boundary="?([0-9A-Za-z\'()+_,./:=?-]{1,70})"?\s*(?:;|$)')
_NAME = re.compile(r';\s*name="([^"\r\n]*)"', re.IGNORECASE)
_FILE = re.compile(r';\s*filename="([^"\r\n]*)"', re.IGNORECASE)


class MultipartError(Exception):
    """No such form, or one that ends too early."""


class Posted(NamedTuple):
    """What was read. file: the name that the sender gave it, "" without one; length: its bytes."""

    fields: Mapping[str, str]
    file: str
    length: int


def read_posted(
    body: Body, bytes_max: int, take: Callable[[Mapping[str, str]], BinaryIO]
) -> Posted:
    """Read all of it. take: gives what the file is written into, from the fields before it;
    bytes_max: of the file. MultipartError."""
    found = _BOUNDARY.search(body.kind)
    if found is None:
        raise MultipartError("This is no form with a file.")
    parts = _Parts(body, found[1].encode())
    fields: dict[str, str] = {}
    file, length = "", -1
    while (head := parts.head()) is not None:
        name, named = _NAME.search(head), _FILE.search(head)
        if name is None or name[1] in fields or length >= 0 or len(fields) >= FIELDS_MAX:
            raise MultipartError("The form has parts that it should not have.")
        if named is None:
            fields[name[1]] = _text(parts)
        else:
            file, length = named[1], _copied(parts, take(fields), bytes_max)
    return Posted(fields, file, max(0, length))


def _text(parts: "_Parts") -> str:
    data = bytearray()
    for block in parts.data():
        data += block
        if len(data) > FIELD_BYTES_MAX:
            raise MultipartError(f"A field has more than {FIELD_BYTES_MAX} bytes.")
    return data.decode(errors="replace")


def _copied(parts: "_Parts", target: BinaryIO, bytes_max: int) -> int:
    length = 0
    for block in parts.data():
        length += len(block)
        if length > bytes_max:
            raise MultipartError(f"The file has more than {bytes_max >> 20} MiB.")
        target.write(block)
    return length


class _Parts:
    """Goes through the parts; no more than two blocks are in memory."""

    def __init__(self, body: Body, boundary: bytes) -> None:
        self._body = body
        self._delimiter = b"\r\n--" + boundary
        self._kept = b"\r\n"
        if any(self.data()):
            raise MultipartError("Something stands before the form.")

    def head(self) -> str | None:
        """The header lines of the next part; None behind the last one."""
        while len(self._kept) < len(b"--"):
            self._read()
        if self._kept.startswith(b"--"):
            return None
        if not self._kept.startswith(b"\r\n"):
            raise MultipartError("The form is not what it says to be.")
        while (end := self._kept.find(b"\r\n\r\n")) < 0:
            if len(self._kept) > HEAD_BYTES_MAX:
                raise MultipartError("The head of a part is too long.")
            self._read()
        head, self._kept = self._kept[:end], self._kept[end + len(b"\r\n\r\n") :]
        return head.decode(errors="replace")

    def data(self) -> Iterator[bytes]:
        """The bytes of the part, up to its delimiter."""
        keep = len(self._delimiter) - 1
        while (end := self._kept.find(self._delimiter)) < 0:
            if len(self._kept) > keep:
                yield self._kept[:-keep]
                self._kept = self._kept[-keep:]
            self._read()
        if end:
            yield self._kept[:end]
        self._kept = self._kept[end + len(self._delimiter) :]

    def _read(self) -> None:
        block = self._body.read(BLOCK_BYTES)
        if not block:
            raise MultipartError("The form ends too early: it did not come whole.")
        self._kept += block
