"""Files in messages: what is said of them (F-F6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from field_buffer.catalogue import FileUnreadable, InvalidArgument
from field_buffer.packing import (
    NODE_FILE,
    NODE_FILE_BYTES,
    NODE_FILE_DIGEST,
    NODE_FILE_NAME,
    NODE_FILE_URL,
)

__all__ = ["FileInfo"]

BLOCK_BYTES = 4096
FRAME_BYTES = 256 << 10
"""Blocks travel together, in frames of about so many bytes."""
BLOCK_BYTES_MAX = FRAME_BYTES
FILE_NAMES = (NODE_FILE, NODE_FILE_BYTES, NODE_FILE_DIGEST, NODE_FILE_NAME, NODE_FILE_URL)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The file of a message. id: the node's name for it; name: the one it had at its sender; url:
    where the node keeps it, when only that was to be handed over."""

    id: str
    name: str
    size_bytes: int
    sha256: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is to be sent."""

    path: Path
    is_url_only: bool
    block_bytes: int


def upload_of(path: Any, *, url_only: bool, block_bytes: int) -> Upload:
    """A file to be sent; InvalidArgument, FileUnreadable."""
    if block_bytes.__class__ is not int or not 1 <= block_bytes <= BLOCK_BYTES_MAX:
        detail = f"{block_bytes!r} is not a number of bytes from 1 to {BLOCK_BYTES_MAX}"
        raise InvalidArgument(what="block_bytes", detail=detail)
    try:
        found = Path(path)
    except TypeError as fault:
        raise InvalidArgument(what="path", detail=str(fault)) from fault
    if not found.is_file():
        raise FileUnreadable(path=str(found), detail="there is no such file")
    return Upload(found, url_only, block_bytes)


def info_of(node: Mapping[str, Any]) -> FileInfo | None:
    """What a head says of a file."""
    file, size = node.get(NODE_FILE), node.get(NODE_FILE_BYTES)
    if not isinstance(file, str) or not isinstance(size, int):
        return None
    texts = [node.get(name, "") for name in (NODE_FILE_NAME, NODE_FILE_DIGEST, NODE_FILE_URL)]
    name, digest, url = (text if isinstance(text, str) else "" for text in texts)
    return FileInfo(file, name, size, digest, url)
