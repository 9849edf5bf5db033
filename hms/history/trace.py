"""Trace: the life of a message, out of the log, whether anybody traced it or not.

What a tracer would have had to sample in advance, the log has of every message: when it was sent,
delivered, returned, dead-lettered, moved and acknowledged, and where.
"""

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hms.errors.catalogue import InvalidArgument
from hms.history.events import Event
from hms.history.scan import PathName, plan, read_part
from hms.history.scope import Scope

__all__ = ["Step", "ids_of_trace", "last_steps", "lives", "otlp", "parse_ids", "write"]

TRACEPARENT = "traceparent"
_NEEDED = ("properties", "cause", "transaction", "operation")
NANO = 1_000_000
_ID = re.compile("[0-9a-f]{12}")
_TRACE_ID = re.compile("[0-9a-f]{32}")
_CONTEXT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-.*")


@dataclass(frozen=True, slots=True)
class Step:
    """What happened to a message. time_ms: since 1970 UTC; offset: in the order of the log."""

    message_id: str
    offset: int
    time_ms: int
    event: str
    destination: str
    subscription: str = ""
    cause: str = ""
    transaction: str = ""
    traceparent: str = ""
    operation: int = 0
    """The number in the audit of the order that did it; 0: nobody ordered it."""


def parse_ids(texts: Iterable[str]) -> frozenset[int]:
    """Ids as they are printed: 12 hexadecimal digits."""
    found = list(texts)
    for text in found:
        if _ID.fullmatch(text) is None:
            detail = f"{text!r} is no message id of 12 hexadecimal digits"
            raise InvalidArgument(what="ID", detail=detail)
    return frozenset(int(text, 16) for text in found)


def ids_of_trace(
    path: PathName, traceparent: str, scope: Scope, is_over: Callable[[], bool] = lambda: False
) -> frozenset[int]:
    """The messages that carry the context of a trace: its id, or a traceparent with it. is_over:
    asked now and then, newest part first, ends it before."""
    found = _TRACE_ID.search(traceparent.lower())
    if found is None:
        detail = f"{traceparent!r} has no trace id of 32 hexadecimal digits"
        raise InvalidArgument(what="--traceparent", detail=detail)
    wanted = found[0]
    sent = replace(scope, events=frozenset(("sent", "forwarded")))
    ids: set[int] = set()
    for number, part in enumerate(reversed(plan(path, sent))):
        if number and is_over():
            break
        for batch in read_part(part, sent, ("properties",)):
            ids |= {int(e.message_id, 16) for e in batch if f"-{wanted}-" in _context(e)}
    return frozenset(ids)


def lives(path: PathName, ids: frozenset[int], scope: Scope) -> list[Step]:
    """The steps of messages, in the order of the log. StoreUnavailable, StoreCorrupt."""
    if not ids:
        return []
    found = [_step(event) for event in _events(path, replace(scope, message_ids=ids))]
    return sorted(found, key=lambda step: step.offset)


def last_steps(
    path: PathName, scope: Scope, most: int, is_over: Callable[[], bool]
) -> tuple[list[Step], bool]:
    """The last steps that a scope asks for, at most so many, in the order of the log; and whether
    the history was looked at until these were there. is_over: asked now and then, ends it before.
    StoreUnavailable, StoreCorrupt, HistoryGone."""
    found: list[Step] = []
    for number, part in enumerate(reversed(plan(path, scope))):
        if number and is_over():
            return found, False
        last = deque[Step](maxlen=most - len(found))
        for batch in read_part(part, scope, _NEEDED):
            last.extend(map(_step, batch))
            if is_over():
                return [*last, *found], False
        found = [*last, *found]
        if len(found) == most:
            break
    return found, True


def _events(path: PathName, scope: Scope) -> Iterator[Event]:
    for part in plan(path, scope):
        for batch in read_part(part, scope, _NEEDED):
            yield from batch


def _context(event: Event) -> str:
    return (event.properties or {}).get(TRACEPARENT, "")


def _step(event: Event) -> Step:
    place = f"{event.destination_kind or '?'}:{event.destination or '?'}"
    return Step(
        *(event.message_id, event.offset, event.time, event.event, place),
        *(event.subscription or "", event.cause or "", event.transaction or "", _context(event)),
        event.operation or 0,
    )


# ---- for tools that show traces


def otlp(steps: Sequence[Step]) -> str:
    """The steps as spans, in OTLP's JSON: one for each message, and one for each stretch between
    two steps, which is named after what began it."""
    by_id: dict[str, list[Step]] = {}
    for step in steps:
        by_id.setdefault(step.message_id, []).append(step)
    spans = [span for life in by_id.values() for span in _spans(life)]
    scope = {"scope": {"name": "hms.history"}, "spans": spans}
    resource = {"attributes": [_attribute("service.name", "hms")]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})


def _spans(life: list[Step]) -> Iterator[dict[str, Any]]:
    first, last = life[0], life[-1]
    digest = hashlib.sha256(first.message_id.encode()).hexdigest()
    trace, own, above = digest[:32], digest[32:48], ""
    carried = next((step.traceparent for step in life if step.traceparent), "")
    parent = _CONTEXT.fullmatch(carried)
    if parent is not None:
        trace, above = parent.groups()
    yield _span((trace, own, above), f"message {first.destination}", first, last) | {
        "events": [{"timeUnixNano": str(step.time_ms * NANO), "name": step.event} for step in life]
    }
    for number, (begin, end) in enumerate(pairwise(life)):
        span = hashlib.sha256(f"{first.message_id} {number}".encode()).hexdigest()[:16]
        yield _span((trace, span, own), f"{begin.event} {begin.destination}", begin, end)


def _span(ids: tuple[str, str, str], name: str, begin: Step, end: Step) -> dict[str, Any]:
    trace, own, parent = ids
    said = {
        "messaging.system": "hms",
        "messaging.message.id": begin.message_id,
        "messaging.destination.name": begin.destination.partition(":")[2],
        "messaging.destination.subscription.name": begin.subscription,
        "hms.transaction": begin.transaction,
        "hms.offset": str(begin.offset),
        "hms.operation": str(begin.operation or ""),
    }
    return {
        "traceId": trace,
        "spanId": own,
        "parentSpanId": parent,
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(begin.time_ms * NANO),
        "endTimeUnixNano": str(max(begin.time_ms, end.time_ms) * NANO),
        "attributes": [_attribute(key, value) for key, value in said.items() if value],
    }


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def write(file: Path, steps: Sequence[Step]) -> None:
    """As a file for such a tool."""
    file.write_text(otlp(steps) + "\n", encoding="utf-8")
