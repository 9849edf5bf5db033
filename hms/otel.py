"""Traces and metrics by OpenTelemetry: hms.otel.instrument(), with the extra `otel`.

    import hms.otel
    hms.otel.instrument()

The context of a send goes with its message as the properties traceparent and tracestate (W3C Trace
Context), so it stays with it wherever the message is moved, dead-lettered or replayed. A consumer's
span is linked to that context, or with trace_parent="child" a child of it; a service is a child of
its call. A trace that begins with a send or a call and is not sampled goes with neither.

What is measured are messages that were sent and consumed, and how long a send, a receive, an
acknowledgement and a listener took; no id and no name of a temporary destination is an attribute.
The names are those of OpenTelemetry's conventions for messaging, whose status is Development: they
all stand here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, time_ns

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider

from hms.client.core import tracing
from hms.client.core.tracing import CARRIED, Context
from hms.client.send_buffer import TEMPORARY
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
_MEASURED = ("send", "receive", "process", "settle")
_CONSUMED = ("receive", "process")
_NAMES = {
    "message_id": "messaging.message.id",
    "count": "messaging.batch.message_count",
    "delivery_count": "hms.delivery_count",
    "subscription": "messaging.destination.subscription.name",
    "transaction": "hms.transaction",
}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Upper bounds that the conventions advise."""
PARENTS = ("link", "child")


def instrument(
    provider: TracerProvider | None = None,
    *,
    trace_parent: str = "link",
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace and measure what this process does from now on, with the global providers where none
    are given; without a meter provider, that of the SDK, nothing is measured.

    trace_parent: what a message's context is to the span of who processes it, "link" or "child".
    """
    if trace_parent not in PARENTS:
        raise InvalidArgument(what="trace_parent", detail=f"{trace_parent!r} is no link, no child")
    tracer = trace.get_tracer("hms", tracer_provider=provider)
    meters = meter_provider or metrics.get_meter_provider()
    is_measured = not type(meters).__module__.startswith(metrics.__name__)  # the API's own do not
    measures = _Measures(meters) if is_measured else None
    tracing.install(_Tracer(tracer, measures, is_child=trace_parent == "child"))


def uninstrument() -> None:
    """Trace and measure nothing more."""
    tracing.install(None)


class _Measures:
    """The instruments."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("hms")
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that a producer sent."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Messages that reached the application.",
        )
        self._took_s = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of a send, a receive or an acknowledgement.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._processed_s = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of a listener.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def ended(
        self, step: str, about: dict[str, str], count: int, took_s: float, error: object
    ) -> None:
        """A step is over."""
        if error is not None:
            about = about | {"error.type": type(error).__name__}
        if step == "process":
            self._processed_s.record(took_s, about)
        else:
            self._took_s.record(took_s, {**about, "messaging.operation.type": step})
        if step == "send" and count:
            self._sent.add(count, about)
        elif step in _CONSUMED and count:
            self._consumed.add(count, about)


class _Measure:
    """Of one step that goes on."""

    def __init__(
        self, measures: _Measures, step: str, about: dict[str, str], count: int, began_s: float
    ) -> None:
        self._measures, self._step, self._about = measures, step, about
        self._began_s, self.count = began_s, count

    def end(self, error: BaseException | None) -> None:
        """It is over."""
        took_s = monotonic() - self._began_s
        self._measures.ended(self._step, self._about, self.count, took_s, error)


class _Span:
    """One of OpenTelemetry, and what is measured of the same step."""

    def __init__(
        self, span: trace.Span, measure: _Measure | None, *, is_carried: bool = True
    ) -> None:
        self._span, self._measure, self._is_carried = span, measure, is_carried
        self._is_over = False

    @property
    def carried(self) -> Context:
        """What goes with a message or a call."""
        if not self._is_carried:
            return {}
        found: dict[str, str] = {}
        propagate.inject(found, trace.set_span_in_context(self._span))
        return {name: found[name] for name in CARRIED if name in found}

    def event(self, name: str, **said: str) -> None:
        """Something happened in it."""
        if not self._is_over:
            self._span.add_event(name, {f"hms.{what}": value for what, value in said.items()})

    def took(self, count: int) -> None:
        """It was of so many messages."""
        self._span.set_attribute(_NAMES["count"], count)
        if self._measure is not None:
            self._measure.count = count

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
        if self._measure is not None:
            self._measure.end(error)
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()


class _Tracer:
    def __init__(self, tracer: trace.Tracer, measures: _Measures | None, *, is_child: bool) -> None:
        self._tracer, self._measures, self._is_child = tracer, measures, is_child

    def begin(
        self,
        step: str,
        name: str,
        origins: Sequence[Context] = (),
        began_s: float | None = None,
        **said: str | int,
    ) -> _Span:
        """A span of this kind and name, with what came along as its parent or links."""
        parent = None
        if origins and (step == "serve" or (self._is_child and step == "process")):
            parent, origins = propagate.extract(origins[0]), ()
        found = (trace.get_current_span(propagate.extract(one)) for one in origins)
        links = [Link(one.get_span_context()) for one in found]
        now_s = monotonic()
        span = self._tracer.start_span(
            name if step == "serve" else f"{step} {name}".rstrip(),
            parent,
            _KINDS[step],
            _attributes(step, name, said),
            links,
            start_time=None if began_s is None else time_ns() - round((now_s - began_s) * 1e9),
        )
        measure = None
        if self._measures is not None and step in _MEASURED:
            count = int(said.get("count", 1))
            began_s = now_s if began_s is None else began_s
            measure = _Measure(self._measures, step, _measured(step, name, said), count, began_s)
        # A trace of which nobody keeps a span, and that begins here, is known to nobody else.
        is_carried = (
            span.is_recording() or trace.get_current_span(parent).get_span_context().is_valid
        )
        return _Span(span, measure, is_carried=is_carried)


def _measured(step: str, name: str, said: dict[str, str | int]) -> dict[str, str]:
    """Attributes of what is measured: few, and each of few values."""
    about = {"messaging.system": "hms", "messaging.operation.name": step}
    if name.startswith(TEMPORARY):
        about["messaging.destination.template"] = TEMPORARY
    else:
        about["messaging.destination.name"] = name
    if "subscription" in said:
        about[_NAMES["subscription"]] = str(said["subscription"])
    return about


def _attributes(step: str, name: str, said: dict[str, str | int]) -> dict[str, str | int]:
    if step == "transaction":
        return {"hms.transaction": True}
    if step in _SERVICES:
        return {"rpc.system": "hms", "rpc.service": name}
    about = {_NAMES[what]: value for what, value in said.items()}
    if "message_id" in said:
        about.pop(_NAMES["count"], None)  # the conventions have it of batches alone
    if "transaction" in said:
        about["hms.transaction"] = True
    return {
        "messaging.system": "hms",
        "messaging.operation.type": step,
        "messaging.operation.name": step,
        "messaging.destination.name": name,
        **about,
    }
