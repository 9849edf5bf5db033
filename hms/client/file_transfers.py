"""Transfers of files: how they go to the node and come from it (F-F6).

A file goes in blocks, several of them in a frame and several frames at once, never whole in memory.
After a lost connection, or a crash of the node, both sides go on where the node has come to; the
SHA-256 at the end proves that it is whole, and only then is the message sent.
"""

import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from hms.client.core.link import State
from hms.client.core.operations import Outside, Steps
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.core.requests import Requests
from hms.client.file_bodies import FRAME_BYTES, FileInfo, Upload
from hms.errors.catalogue import (
    ConnectionLost,
    FileDamaged,
    FileGap,
    FileUnreadable,
    NodeStopping,
    NotPrimary,
)
from hms.wire.frames import Kind
from hms.wire.packed_messages import (
    NODE_FILE,
    NODE_FILE_BYTES,
    NODE_FILE_DIGEST,
    NODE_FILE_NAME,
    NODE_FILE_URL,
)
from hms.wire.structures import CloseFile, FileBlock, OpenFile, ReadFile, encode_with_body

FRAMES_AT_ONCE = 8
ATTEMPTS_MAX = 3
"""How many damaged arrivals of a file are repeated before the send fails."""

# ---- to the node


def uploading(requests: Requests, upload: Upload) -> Steps[dict[str, Any]]:
    """Send a file; what the head of its message says. It is synced at the node then."""
    with _told(upload.path), upload.path.open("rb", buffering=0) as opened:
        sending = _Sending(requests, upload, opened)
        left = ATTEMPTS_MAX
        while True:
            offset = yield from sending.begin()
            try:
                return (yield from sending.go_on(offset))
            except (ConnectionLost, NodeStopping, NotPrimary):
                if requests.link.state is State.ENDED:
                    raise
            except (FileDamaged, FileGap):
                left -= 1
                if not left:
                    raise


class _Sending:
    """One file on its way to the node."""

    def __init__(self, requests: Requests, upload: Upload, opened: BinaryIO) -> None:
        self._requests = requests
        self._upload = upload
        self._opened = opened
        self._size = os.fstat(opened.fileno()).st_size
        self._handle = requests.link.new_handle()
        self._digest = hashlib.sha256()
        self._digested = 0
        blocks = max(1, FRAME_BYTES // upload.block_bytes)
        self._step = blocks * upload.block_bytes

    def begin(self) -> Steps[int]:
        """Where the node has come to."""
        said = yield from self._requests.asking(OpenFile(self._handle, self._size))
        return int(said["offset"])

    def go_on(self, offset: int) -> Steps[dict[str, Any]]:
        """Send the rest; what the head of its message says."""
        yield from self._blocks(offset)
        digest = self._digest.hexdigest()
        done = yield from self._requests.asking(CloseFile(self._handle, self._size, digest))
        described = {
            NODE_FILE: done["file"],
            NODE_FILE_BYTES: self._size,
            NODE_FILE_DIGEST: digest,
            NODE_FILE_NAME: self._upload.path.name,
        }
        return described | ({NODE_FILE_URL: done["url"]} if self._upload.is_url_only else {})

    def _blocks(self, offset: int) -> Steps[None]:
        requests = self._requests
        asked: deque[Pending] = deque()
        at = min(self._digested, offset)  # what the node has is read again for the digest only
        try:
            while at < self._size:
                data = yield Outside(partial(self._read, at), gives_way=True)
                end = at + len(data)
                if end > offset:
                    asked.append(self._say(max(at, offset), data[max(0, offset - at) :]))
                at = end
                if len(asked) >= FRAMES_AT_ONCE:
                    yield from requests.answer_to(asked.popleft())
            while asked:
                yield from requests.answer_to(asked.popleft())
        finally:
            for pending in asked:
                requests.link.abandon(pending)

    def _say(self, offset: int, data: bytes) -> Pending:
        pending = Pending("FileBlock", OnLoss.BREAK)
        said = encode_with_body(FileBlock(self._handle, offset), data)
        self._requests.link.ask(Kind.FILE, said, pending)
        return pending

    def _read(self, at: int) -> bytes:
        size = min(self._step, self._size - at)
        with _told(self._upload.path):
            data = os.pread(self._opened.fileno(), size, at)
        if len(data) < size:
            detail = "it became shorter while it was sent"
            raise FileUnreadable(path=str(self._upload.path), detail=detail)
        new = data[max(0, self._digested - at) :]
        self._digest.update(new)
        self._digested += len(new)
        return data


# ---- from the node


def saving(
    requests: Requests, info: FileInfo, target: str | os.PathLike[str] | BinaryIO
) -> Steps[None]:
    """Read a file from the node into a path, which is there only when it is whole, or a file
    object. FileUnknown, FileDamaged, FileUnreadable."""
    if hasattr(target, "write"):
        yield from _reading(requests, info, target.write, 0, hashlib.sha256())
        return
    path = Path(target)
    part = path.with_name(f"{path.name}.{info.sha256[:16]}.part")
    try:
        yield from _saving(requests, info, part)
    except FileDamaged:
        part.unlink(missing_ok=True)
        raise
    yield Outside(partial(_rename, part, path))


def _saving(requests: Requests, info: FileInfo, part: Path) -> Steps[None]:
    with _told(part), part.open("a+b", buffering=0) as opened:
        digest = hashlib.sha256()
        offset = yield Outside(partial(_digest_of, opened, digest))
        if offset > info.size_bytes:
            opened.truncate(0)
            offset, digest = 0, hashlib.sha256()
        yield from _reading(requests, info, partial(_write, opened), offset, digest)
        yield Outside(partial(os.fsync, opened.fileno()))


def _reading(
    requests: Requests, info: FileInfo, write: Callable[[bytes], Any], offset: int, digest: Any
) -> Steps[None]:
    """The bytes from an offset on, in order, several requests at once."""
    asked: deque[Pending] = deque()
    at, size = offset, info.size_bytes
    try:
        while at < size or asked:
            while at < size and len(asked) < FRAMES_AT_ONCE:
                asked.append(_ask(requests, info, at, min(FRAME_BYTES, size - at)))
                at += FRAME_BYTES
            pending = asked.popleft()
            yield from requests.answer_to(pending)
            data = pending.value()["data"]
            digest.update(data)
            yield Outside(partial(write, data), gives_way=True)
    finally:
        for pending in asked:
            requests.link.abandon(pending)
    found = digest.hexdigest()
    if found != info.sha256:
        raise FileDamaged(file=info.id, wanted=info.sha256, found=found)


def _ask(requests: Requests, info: FileInfo, offset: int, size: int) -> Pending:
    pending = Pending("ReadFile", OnLoss.REPEAT)
    return requests.link.request(ReadFile(info.id, offset, size), pending)


def _digest_of(opened: BinaryIO, digest: Any) -> int:
    at = 0
    while data := os.pread(opened.fileno(), FRAME_BYTES, at):
        digest.update(data)
        at += len(data)
    return at


def _write(opened: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[opened.write(view) :]


def _rename(part: Path, path: Path) -> None:
    with _told(path):
        part.replace(path)
        fd = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the disk refuses, as our error; others of ours pass."""
    try:
        yield
    except FileUnreadable:
        raise
    except (ConnectionError, TimeoutError):
        raise
    except OSError as fault:
        if not isinstance(fault.errno, int):
            raise
        raise FileUnreadable(path=str(path), detail=fault.strerror or str(fault)) from fault
