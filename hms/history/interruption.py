"""Interruption: SIGINT as a wish that is looked at between two steps, not as an exception in one.

Spark sets a handler of its own when it starts, which raises in the middle of its calls: then the
calls, the batch that runs and the logging of both print tracebacks.
"""

import signal
import threading
from types import FrameType
from typing import Any, Self

__all__ = ["Interruption"]


class Interruption:
    """Set by the first SIGINT in its block; the second one raises KeyboardInterrupt. In a thread
    that is not the main one it is never set."""

    def __init__(self) -> None:
        self._is_set = False
        self._is_heard = threading.current_thread() is threading.main_thread()
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._is_heard:
            self._before = signal.getsignal(signal.SIGINT)
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_heard:
            signal.signal(signal.SIGINT, self._before)

    def take(self) -> None:
        """Hear the signal from now on, whatever handler has been set since."""
        if self._is_heard:
            signal.signal(signal.SIGINT, self._heard)

    def is_set(self) -> bool:
        """Whether the signal came."""
        return self._is_set

    def _heard(self, _: int, __: FrameType | None) -> None:
        if self._is_set:
            raise KeyboardInterrupt
        self._is_set = True
