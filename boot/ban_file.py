"""The file with the bans of a node, written beside and renamed."""

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

__all__ = ["BanFile"]

log = logging.getLogger("hms.node")


class BanFile:
    """A ban that cannot be written holds until the node ends, and the log says so."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def load(self) -> list[dict[str, Any]]:
        """What was kept; a file that cannot be read keeps nobody out, and the log says so."""
        try:
            said = json.loads(self._path.read_bytes())
            known = ("by", "value", "since_ms", "until_ms", "reason")
            return [{name: one[name] for name in known} for one in said]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as fault:
            log.error("the bans in %s cannot be read: %s", self._path, fault)  # noqa: TRY400 - all
            return []

    def save(self, bans: list[dict[str, Any]]) -> None:
        """Keep this instead."""
        beside = self._path.with_name(f"{self._path.name}.new")
        with self._lock:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                with os.fdopen(os.open(beside, flags, 0o640), "w") as file:
                    json.dump(bans, file)
                    file.flush()
                    os.fsync(file.fileno())
                beside.replace(self._path)
            except OSError as fault:
                log.error("the bans cannot be written: %s", fault)  # noqa: TRY400 - it says all
