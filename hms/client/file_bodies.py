"""Files in messages: what is said of them (F-F6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hms.client.core.arguments import check_flag, check_number
from hms.errors.catalogue import FileUnreadable, InvalidArgument
from hms.wire.packed_messages import (
    NODE_FILE,
    NODE_FILE_BYTES,
    NODE_FILE_DIGEST,
    NODE_FILE_NAME,
    NODE_FILE_URL,
)

__all__ = ["FileInfo"]

BLOCK_BYTES = 4096
FRAME_BYTES = 256 << 10
"""The approximate size of the frames in which blocks travel."""
BLOCK_BYTES_MAX = FRAME_BYTES
_SHOWN = 255
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
    check_number("block_bytes", block_bytes, 1, BLOCK_BYTES_MAX)
    check_flag("url_only", url_only)
    try:
        found = Path(path)
    except TypeError as fault:
        raise InvalidArgument(what="path", detail=str(fault)) from fault
    try:
        is_there = found.is_file()
    except ValueError as fault:  # a NUL, or half of a surrogate pair
        raise InvalidArgument(what="path", detail=str(fault)) from fault
    except OSError as fault:
        raise FileUnreadable(path=str(found)[:_SHOWN], detail=fault.strerror) from fault
    if not is_there:
        detail = "it is a folder" if found.is_dir() else "there is no such file"
        raise FileUnreadable(path=str(found), detail=detail)
    return Upload(found, url_only, block_bytes)


def info_of(node: Mapping[str, Any]) -> FileInfo | None:
    """What a head says of a file."""
    file, size = node.get(NODE_FILE), node.get(NODE_FILE_BYTES)
    if not isinstance(file, str) or not isinstance(size, int):
        return None
    texts = [node.get(name, "") for name in (NODE_FILE_NAME, NODE_FILE_DIGEST, NODE_FILE_URL)]
    name, digest, url = (text if isinstance(text, str) else "" for text in texts)
    return FileInfo(file, name, size, digest, url)
