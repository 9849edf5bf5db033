"""The log's present segment is ended by the node, so that all of it can be read or copied."""

import time
from typing import Any

from hms.errors.catalogue import StoreFull

__all__ = ["seal"]

_PATIENCE_S, _AGAIN_S = 30.0, 0.05


def seal(connection: Any, command: str = "log.seal", **arguments: Any) -> int:
    """Have the node begin a new segment, and tell its first offset. The node prepares the next one
    beside its work, so it may have none yet; StoreFull when it has none for half a minute."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return int(connection.administer(command, arguments)["offset"])
        except StoreFull:
            if time.monotonic() >= until_s:
                raise
        time.sleep(_AGAIN_S)
