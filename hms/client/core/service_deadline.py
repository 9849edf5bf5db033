"""The deadline of the service that runs in this thread or task."""

import contextvars
import time

_deadline: contextvars.ContextVar[float | None] = contextvars.ContextVar("deadline", default=None)


begin_serving, end_serving = _deadline.set, _deadline.reset
"""A service runs until then, in seconds since 1970 UTC, or for ever (None), and what it calls must
end before; it has ended, given what the first one returned."""


def time_left_s() -> float | None:
    """How long the caller of the service that runs here still waits; None: for ever, or no service
    runs here."""
    deadline = _deadline.get()
    return None if deadline is None else deadline - time.time()
