"""Tracing: the one place where a tracer sees what a client, or a server process, does.

Without a tracer each step looks at one name and goes on. A tracer is told that a step begins; the
context that its span carries goes with a message as properties of these names (message_tracing.py),
and with a call in its head. hms.otel has the tracer of OpenTelemetry.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

__all__ = ["CARRIED", "Context", "Span", "Tracer", "calling", "install", "running", "serving"]

CARRIED = ("traceparent", "tracestate")
"""Names of W3C Trace Context."""
Context = Mapping[str, str]
_Then = Callable[[Any], None]


class Span(Protocol):
    """A step that goes on."""

    @property
    def carried(self) -> Context:
        """What goes with a message or a call, by the names of CARRIED."""

    def event(self, name: str, **said: str) -> None:
        """Something happened in it; once it is over, nobody hears of it."""

    def took(self, count: int) -> None:
        """It was of so many messages."""

    def active(self) -> AbstractContextManager[None]:
        """What begins meanwhile in this thread or task is part of it."""

    def end(self, error: BaseException | None = None) -> None:
        """It is over; a second time nothing happens."""


class Tracer(Protocol):
    """What makes spans."""

    def begin(
        self,
        step: str,
        name: str,
        origins: Sequence[Context] = (),
        began_s: float | None = None,
        **said: str | int,
    ) -> Span:
        """A step begins: send, receive, process, settle, call, serve or transaction, at a
        destination or service; origins: the contexts that came with it; began_s: when it began, by
        the monotonic clock, where that is over."""


tracer: Tracer | None = None
"""None: nothing is traced."""


def install(new: Tracer | None) -> None:
    """Let this tracer see all that happens from now on; None: nobody."""
    global tracer  # noqa: PLW0603 - one for the process, as tracers are
    tracer = new


@contextmanager
def running(span: Span) -> Iterator[None]:
    """A step of the application: what it does is part of the span, which ends with it."""
    try:
        with span.active():
            yield
    except BaseException as error:
        span.end(error)
        raise
    span.end()


def calling(service: str, then: _Then | None) -> tuple[str, _Then | None]:
    """A service is called: what goes in the head, and who gets the answer."""
    if tracer is None:
        return "", then
    span = tracer.begin("call", service)
    return " ".join(span.carried.get(name, "") for name in CARRIED).rstrip(), _Answered(span, then)


def serving(service: str, trace: str) -> Span | None:
    """A service runs; trace: what the head of its call carries."""
    if tracer is None:
        return None
    origin = dict(zip(CARRIED, trace.split(" ", 1), strict=False))
    return tracer.begin("serve", service, [origin] if trace else [])


class _Answered:
    """Tells of the answer to a call, and ends its span before."""

    def __init__(self, span: Span, then: _Then | None) -> None:
        self._span, self._then = span, then

    def __call__(self, pending: Any) -> None:
        self._span.end(pending.error)
        if self._then is not None:
            self._then(pending)

    def given_up(self, reason: str) -> None:
        """Nobody waits for the answer any more."""
        self._span.event(reason)
        self._span.end()
        told = getattr(self._then, "given_up", None)
        if told is not None:
            told(reason)
