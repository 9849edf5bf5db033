"""The deadline of the service that runs in this thread or task."""

import contextvars

_deadline: contextvars.ContextVar[float | None] = contextvars.ContextVar("deadline", default=None)


begin_serving, end_serving, serving_until = _deadline.set, _deadline.reset, _deadline.get
"""A service runs until then, in seconds since 1970 UTC, or for ever (None), and what it calls must
end before; it has ended, given what the first one returned; and until when its caller waits, None
for ever, or where no service runs."""
