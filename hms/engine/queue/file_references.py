"""Files: what file messages name, and when nobody names it any more (F-F6).

The node keeps the content of a file message beside the log; the engine knows only which files are
there in full and how many messages name each. A file goes when the last message that named it has
left, after the record that says so is durable; one that no message ever named, or that a message of
an open transaction names, is kept for a while, and then goes too.
"""

import msgspec

from hms.engine.messages import StoredMessage
from hms.wire.packed_messages import KIND_FILE, NODE_FILE


class FileMessage(StoredMessage, gc=False, eq=False, kw_only=True):
    """A message that names a file, and says so at every place that it comes to or leaves."""

    file: str
    _files: "Files"

    @classmethod
    def naming(cls, message: StoredMessage, file: str, files: "Files") -> "FileMessage":
        """A message, with the file that it names."""
        return cls(*msgspec.structs.astuple(message), file=file, _files=files)

    def came(self) -> None:
        """It begins to wait at a place."""
        self._files.named(self.file)

    def went(self) -> None:
        """It has left a place for good."""
        self._files.left.append(self.file)

    def watch(self, copy: StoredMessage) -> StoredMessage:
        """A copy of this message."""
        return self._files.watch(copy)


class Files:
    """The files that are there, by the names under which the node keeps them."""

    def __init__(self) -> None:
        self.since_ms: dict[str, int] = {}
        """Those that are there; since when nobody names them, or 0."""
        self.left: list[str] = []
        """One name for every message that has left a place; not yet counted."""
        self._named: dict[str, int] = {}

    def add(self, file: str, now_ms: int) -> None:
        """A file is there in full."""
        self.since_ms.setdefault(file, 0 if file in self._named else now_ms)

    def named(self, file: str) -> None:
        """A message that names it came to a place."""
        self._named[file] = self._named.get(file, 0) + 1
        if file in self.since_ms:
            self.since_ms[file] = 0

    def watched(self, messages: list[StoredMessage]) -> list[StoredMessage]:
        """The same messages; those that name files say so from now on."""
        return [self.watch(m) if m.kind == KIND_FILE else m for m in messages]

    def watch(self, message: StoredMessage) -> StoredMessage:
        """A message that may name a file."""
        file = message.head().node.get(NODE_FILE)
        return FileMessage.naming(message, file, self) if isinstance(file, str) else message

    def count(self, now_ms: int) -> list[str]:
        """Take note of messages that have left; the files that nobody names any more."""
        gone = []
        for file in self.left:
            self._named[file] -= 1
            if not self._named[file]:
                del self._named[file]
                if file in self.since_ms:
                    self.since_ms[file] = now_ms
                    gone.append(file)
        self.left = []
        return gone

    def missing(self) -> list[str]:
        """Those that messages name and that are not there."""
        return [file for file in self._named if file not in self.since_ms]


def watched_as(message: StoredMessage, copy: StoredMessage) -> StoredMessage:
    """A copy of a message; it names the same file, if any."""
    return message.watch(copy) if isinstance(message, FileMessage) else copy
