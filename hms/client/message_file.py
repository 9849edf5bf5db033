"""The file of a message (F-F6): how it gets one, what is known of it, and how it is saved."""

import os
from collections.abc import Mapping
from typing import Any, BinaryIO, Self

from hms.client.bodies import encode_file
from hms.client.file_bodies import BLOCK_BYTES, FileInfo, Upload, info_of, upload_of
from hms.client.properties import Content
from hms.errors.catalogue import IllegalState
from hms.wire.packed_messages import KIND_FILE

_Given = Mapping[str, Any] | None


class FilePart:
    """What a Message has of this."""

    __slots__ = ()

    _acknowledge: Any
    _body: bytes
    _kind: int
    _upload: Upload | None
    """There only while its file is to be sent, so that other messages are not slower for it."""

    def __init__(self, body: bytes, properties: _Given, **header: Any) -> None:
        raise NotImplementedError

    def readable(self) -> Content:
        """Properties and header texts, decoded when first asked for."""
        raise NotImplementedError

    def _becomes_file(self, upload: Upload | None) -> None:
        raise NotImplementedError

    def _new_body(self, body: bytes) -> None:
        raise NotImplementedError

    @classmethod
    def file(
        cls,
        path: str | os.PathLike[str],
        properties: _Given = None,
        *,
        url_only: bool = False,
        block_bytes: int = BLOCK_BYTES,
        **header: Any,
    ) -> Self:
        """A message with a file, which send() sends in blocks (F-F6); url_only: its receiver is
        told where the node keeps it. FileUnreadable."""
        upload = upload_of(path, url_only=url_only, block_bytes=block_bytes)
        self = cls(b"", properties, **header)
        self._becomes_file(upload)
        return self

    @property
    def upload(self) -> Upload | None:
        """The file that is to be sent with it."""
        return getattr(self, "_upload", None)

    def uploaded(self, described: dict[str, Any]) -> None:
        """Its file is at the node."""
        self._becomes_file(None)
        self.readable().node = described
        self._new_body(encode_file(described))

    @property
    def file_info(self) -> FileInfo | None:
        """Of a file message that was received or sent: its file."""
        return info_of(self.readable().node) if self._kind == KIND_FILE else None

    def save(self, target: "str | os.PathLike[str] | BinaryIO") -> Any:
        """Read the file of a message that was received into a path or a file object, in blocks; in
        asyncio `await` it. A path is there only when it is whole; a second try goes on where the
        first one ended. FileUnknown, FileDamaged, FileUnreadable."""
        info = self.file_info
        if info is None:
            raise IllegalState(what="message.save()", detail="the message has no file")
        saver = getattr(self._acknowledge, "save", None)
        if saver is None:
            detail = "only a message that was received in a session brings its file"
            raise IllegalState(what="message.save()", detail=detail)
        return saver(self, info, target)
