"""The log's present segment is ended by the node, so that all of it can be read or copied."""

import time
from typing import Any

from hms.errors.catalogue import StoreFull

__all__ = ["begin_segment", "seal"]

_PATIENCE_S, _AGAIN_S = 30.0, 0.05


def seal(connection: Any, command: str = "log.seal", **arguments: Any) -> int:
    """Have the node begin a new segment, and tell its first offset."""
    return int(begin_segment(connection, command, **arguments)["offset"])


def begin_segment(connection: Any, command: str, **arguments: Any) -> dict[str, Any]:
    """The answer to a command that begins one. The node prepares the next one beside its work, so
    it may have none yet; StoreFull when it has none for half a minute."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            answer: dict[str, Any] = connection.administer(command, arguments)
        except StoreFull:
            if time.monotonic() >= until_s:
                raise
        else:
            return answer
        time.sleep(_AGAIN_S)
