"""Traces by OpenTelemetry: hms.otel.instrument(), with the extra `otel`.

    import hms.otel
    hms.otel.instrument()

The context of a send goes with its message as the properties traceparent and tracestate (W3C Trace
Context), so it stays with it wherever the message is moved, dead-lettered or replayed. A consumer's
span is linked to that context, or with trace_parent="child" a child of it; a service is a child of
its call. The names are those of OpenTelemetry's conventions for messaging, whose status is
Development: they all stand here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider

from hms.client.core import tracing
from hms.client.core.tracing import CARRIED, Context
from hms.errors.catalogue import InvalidArgument

__all__ = ["instrument", "uninstrument"]

_KINDS = {
    "send": SpanKind.PRODUCER,
    "receive": SpanKind.CLIENT,
    "process": SpanKind.CONSUMER,
    "settle": SpanKind.CLIENT,
    "call": SpanKind.CLIENT,
    "serve": SpanKind.SERVER,
    "transaction": SpanKind.INTERNAL,
}
_SERVICES = ("call", "serve")
_NAMES = {
    "message_id": "messaging.message.id",
    "count": "messaging.batch.message_count",
    "delivery_count": "hms.delivery_count",
}
PARENTS = ("link", "child")


def instrument(provider: TracerProvider | None = None, *, trace_parent: str = "link") -> None:
    """Trace what this process does from now on, with the global provider when none is given.

    trace_parent: what a message's context is to the span of who processes it, "link" or "child".
    """
    if trace_parent not in PARENTS:
        raise InvalidArgument(what="trace_parent", detail=f"{trace_parent!r} is no link, no child")
    tracer = trace.get_tracer("hms", tracer_provider=provider)
    tracing.install(_Tracer(tracer, is_child=trace_parent == "child"))


def uninstrument() -> None:
    """Trace nothing more."""
    tracing.install(None)


class _Span:
    """One of OpenTelemetry."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._is_over = False

    @property
    def carried(self) -> Context:
        """What goes with a message or a call."""
        found: dict[str, str] = {}
        propagate.inject(found, trace.set_span_in_context(self._span))
        return {name: found[name] for name in CARRIED if name in found}

    def event(self, name: str) -> None:
        """Something happened in it."""
        self._span.add_event(name)

    @contextmanager
    def active(self) -> Iterator[None]:
        """What begins meanwhile is its child."""
        token = context.attach(trace.set_span_in_context(self._span))
        try:
            yield
        finally:
            context.detach(token)

    def end(self, error: BaseException | None = None) -> None:
        """It is over."""
        if self._is_over:
            return
        self._is_over = True
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()


class _Tracer:
    def __init__(self, tracer: trace.Tracer, *, is_child: bool) -> None:
        self._tracer, self._is_child = tracer, is_child

    def begin(
        self, step: str, name: str, origins: Sequence[Context] = (), **said: str | int
    ) -> _Span:
        """A span of this kind and name, with what came along as its parent or links."""
        parent = None
        if origins and (step == "serve" or (self._is_child and step == "process")):
            parent, origins = propagate.extract(origins[0]), ()
        found = (trace.get_current_span(propagate.extract(one)) for one in origins)
        links = [Link(one.get_span_context()) for one in found]
        span = self._tracer.start_span(
            name if step == "serve" else f"{step} {name}".rstrip(),
            parent,
            _KINDS[step],
            _attributes(step, name, said),
            links,
        )
        return _Span(span)


def _attributes(step: str, name: str, said: dict[str, str | int]) -> dict[str, str | int]:
    if step == "transaction":
        return {"hms.transaction": True}
    if step in _SERVICES:
        return {"rpc.system": "hms", "rpc.service": name}
    return {
        "messaging.system": "hms",
        "messaging.operation.type": step,
        "messaging.operation.name": step,
        "messaging.destination.name": name,
        **{_NAMES[what]: value for what, value in said.items()},
    }
