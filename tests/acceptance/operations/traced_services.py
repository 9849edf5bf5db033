"""A service whose spans go, a line each, into the file that OTEL_FILE names."""

import os

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import hms.otel
from tpmon import service

PROVIDER = TracerProvider()


def _line(span):
    return span.to_json(indent=None) + "\n"


if "OTEL_FILE" in os.environ:
    FILE = open(os.environ["OTEL_FILE"], "a", encoding="utf-8")  # noqa: SIM115, PTH123 - to the end
    PROVIDER.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=FILE, formatter=_line)))
    hms.otel.instrument(PROVIDER)


@service("NOTE")
def note(request):
    """Work of its own, in the transaction of the caller."""
    hms.rm("hms").producer("notes").send(request.data)
