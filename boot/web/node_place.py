"""Where a node is on this machine: its configuration, as hms.conf says now."""

import threading
from pathlib import Path

from hms.boot.config import load, parsed
from hms.boot.entries import Config, Node
from hms.boot.locate import Parsed
from hms.boot.watched_files import stamp_of

__all__ = ["NodePlace"]


class NodePlace:
    """A file that was not changed is read once; from any thread."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._read: tuple[Config, Parsed] | None = None

    def read(self) -> tuple[Config, Parsed]:
        """What holds, and where it stands in the file; ConfigError."""
        with self._lock:
            stamp = stamp_of(self.path)
            if self._read is None or stamp != self._stamp:
                self._read = load(self.path), parsed(self.path)
                self._stamp = stamp
            return self._read

    def config(self) -> Config:
        """What holds; ConfigError."""
        return self.read()[0]

    def node(self) -> Node:
        """The node; ConfigError."""
        return self.config().node(self.name)
