"""The deadline of the service that runs in this thread or task."""

import contextlib
import contextvars
import time
from collections.abc import Iterator

_deadline: contextvars.ContextVar[float | None] = contextvars.ContextVar("deadline", default=None)


@contextlib.contextmanager
def serving(deadline: float | None) -> Iterator[None]:
    """A service runs until then, in seconds since 1970 UTC; what it calls must end before."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def time_left_s() -> float | None:
    """How long the caller of the service that runs here still waits; None: for ever, or no service
    runs here."""
    deadline = _deadline.get()
    return None if deadline is None else deadline - time.time()
