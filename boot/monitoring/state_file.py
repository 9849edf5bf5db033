"""The state file: what a node says of itself while it boots, works and stops.

A probe reads it and asks nobody: neither the engine's lock nor the network can keep it waiting. The
file has a fixed size, its blocks are there from the start, and a checksum tells whether what was
read is whole: so it can still be written on a full disk, where a file written beside and renamed
could not, and a node in alarm would be taken for dead.
"""

import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

from hms.boot.entries import Node

__all__ = ["STATE_BYTES", "StateFile", "read_state", "state_file_of"]

STATE_BYTES = 16 << 10
_HEAD = 18
"""The length and the checksum of what follows, each in hexadecimal, and a line feed."""
TEXT_MAX = 200
TRIES = 5
PAUSE_S = 0.002


def state_file_of(node: Node) -> Path:
    """Where a node says it."""
    return node.runtime / f"{node.name}.state"


class StateFile:
    """Written by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def write(self, said: dict[str, Any]) -> None:
        """Replace what it says; OSError when that cannot be."""
        if self._fd < 0:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, 0o640)
            os.posix_fallocate(self._fd, 0, STATE_BYTES)
        text = _fitting(said)
        head = f"{len(text):08x} {zlib.crc32(text):08x}\n".encode()
        os.pwrite(self._fd, head + text, 0)

    def close(self) -> None:
        """What it says stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _fitting(said: dict[str, Any]) -> bytes:
    """As JSON, with as many of its alerts as fit."""
    alerts = said.get("alerts", [])
    shown = [{**one, "text": one["text"][:TEXT_MAX]} for one in alerts]
    while True:
        text = json.dumps({**said, "alerts": shown, "alerts_count": len(alerts)}).encode()
        if len(text) <= STATE_BYTES - _HEAD:
            return text
        shown = shown[: len(shown) // 2]


def read_state(path: Path) -> dict[str, Any] | None:
    """What the file says; None when there is none, or nothing whole stands in it."""
    for _ in range(TRIES):
        try:
            data = path.read_bytes()[:STATE_BYTES]
            length, checksum = int(data[:8], 16), int(data[9:17], 16)
        except (OSError, ValueError):
            return None
        text = data[_HEAD : _HEAD + length]
        if zlib.crc32(text) == checksum:
            said = json.loads(text)
            return said if isinstance(said, dict) else None
        time.sleep(PAUSE_S)  # it was just being written
    return None
