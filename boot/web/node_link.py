"""The connection of hms web to its node: one, kept, and asked by one thread at a time.

Answers are shared for a second: a thousand scrapers cost the node as much as one.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import hms
from hms.errors.tree import HmsError

__all__ = ["NodeLink"]

SHARED_S = 1.0
SHARED_MAX = 64
TIMEOUT_S = 5.0


class NodeLink:
    """connect: opens a connection to the node."""

    def __init__(
        self,
        connect: Callable[[], "hms.Connection"],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: hms.Connection | None = None
        self._shared: dict[tuple[str, str], tuple[float, Any]] = {}
        self.asked = 0
        """How often the node was asked."""

    def ask(self, verb: str, **arguments: Any) -> Any:
        """The node's answer, or the one of a moment ago; raises HmsError."""
        key = verb, repr(sorted(arguments.items()))
        if not self._lock.acquire(timeout=TIMEOUT_S):
            raise hms.errors.RequestTimeout(what=verb, timeout_s=TIMEOUT_S)
        try:
            at, value = self._shared.get(key, (float("-inf"), None))
            if self._clock() - at < SHARED_S:
                return value
            value = self._asked(verb, arguments)
            if len(self._shared) >= SHARED_MAX:
                self._shared.clear()
            self._shared[key] = self._clock(), value
            return value
        finally:
            self._lock.release()

    def _asked(self, verb: str, arguments: dict[str, Any]) -> Any:
        self.asked += 1
        try:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection.administer(verb, arguments)
        except hms.errors.NotAuthorized:
            raise
        except HmsError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection; the next question opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
