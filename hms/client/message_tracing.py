"""Message tracing: the context that messages carry, and the spans of those that get them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from hms.client.core import tracing
from hms.client.core.operations import Steps
from hms.client.core.tracing import CARRIED, Context, Span
from hms.client.message import Message
from hms.client.prefetch_buffer import PrefetchBuffer

__all__ = [
    "Place",
    "place_of",
    "processed",
    "receiving",
    "sending",
    "sending_many",
    "settling",
    "taken",
]

Properties = Mapping[str, Any] | None
_Found = TypeVar("_Found")
_HEAD = attrgetter("_head")
"""Properties and texts of a message's header, packed; b"": it has none."""


class Place(NamedTuple):
    """Where messages come from; subscription: the name of a durable one."""

    name: str
    subscription: str = ""
    in_transaction: bool = False


def place_of(prefetched: PrefetchBuffer, state: Any) -> Place:
    """Of a consumer, and the state of its session."""
    opening = prefetched.opening
    return Place(prefetched.destination.name, opening.durable, state.is_transacted)


def sending(
    destination: Any, body: Any, properties: Properties, *, in_transaction: bool
) -> tuple[Any, Properties, Span]:
    """A message is sent: itself, with its context, and the span."""
    assert tracing.tracer is not None
    said: dict[str, Any] = {"transaction": 1} if in_transaction else {}
    span = tracing.tracer.begin("send", destination.name, **said)
    return *_carrying(body, properties, span.carried), span


def sending_many(
    destination: Any, bodies: Iterable[Any], *, in_transaction: bool
) -> tuple[Iterator[Any], Span]:
    """The same for many, which have one span."""
    assert tracing.tracer is not None
    said: dict[str, Any] = {"transaction": 1} if in_transaction else {}
    span = tracing.tracer.begin("send", destination.name, **said)
    span.took(0)

    carried, count = span.carried, 0  # asked once: it is the same for all

    def carrying() -> Iterator[Any]:
        nonlocal count
        try:
            for count, body in enumerate(bodies, 1):  # noqa: B007 - told at the end
                yield _with_context(body, carried) if carried else body
        finally:
            span.took(count)

    return carrying(), span


def _with_context(body: Any, carried: Context) -> Any:
    one, properties = _carrying(body, None, carried)
    return (
        (Message.text if isinstance(one, str) else Message)(one, properties) if properties else one
    )


def _carrying(body: Any, properties: Properties, carried: Context) -> tuple[Any, Properties]:
    if not carried or body is None:
        return body, properties
    if not isinstance(body, Message):
        return body, {**(properties or {}), **carried}
    if not body.is_read_only:  # else it is passed on with the context of its first sender
        body.writable().values.update(carried)
    return body, properties


def receiving(place: Place, steps: Steps[_Found]) -> Steps[_Found]:
    """A receive, of one message or many: a span for all that it gives, linked to their senders."""
    began_s = monotonic()
    try:
        found = yield from steps
    except Exception as error:
        taken("receive", place, [], began_s).end(error)
        raise
    messages: list[Any] = found if isinstance(found, list) else [found]
    if messages and messages[0] is not None:
        taken("receive", place, messages, began_s).end()
    return found


def processed(place: Place, listener: Callable[[Message], Any]) -> Callable[[Message], Any]:
    """A listener whose calls are spans, those of asyncio until their end."""

    def called(message: Message) -> Any:
        span = taken("process", place, [message])
        try:
            with span.active():
                outcome = listener(message)
        except BaseException as error:
            span.end(error)
            raise
        if hasattr(outcome, "__await__"):
            return _awaited(outcome, span)
        span.end()
        return outcome

    return called


async def _awaited(outcome: Any, span: Span) -> Any:
    with tracing.running(span):
        return await outcome


def settling(
    seen: Sequence[tuple[PrefetchBuffer, list[int]]], state: Any, steps: Steps[None]
) -> Steps[None]:
    """Messages are acknowledged: a span for each place that they came from."""
    assert tracing.tracer is not None
    spans = []
    for prefetched, ids in seen:
        if ids:
            said = _about(place_of(prefetched, state)) | {"count": len(ids)}
            if len(ids) == 1:
                said["message_id"] = f"{ids[0]:012x}"
            spans.append(tracing.tracer.begin("settle", **said))
    error: BaseException | None = None
    try:
        yield from steps
    except BaseException as fault:
        error = fault
        raise
    finally:
        for span in spans:
            span.end(error)


def taken(
    step: str, place: Place, messages: Sequence[Message], began_s: float | None = None
) -> Span:
    """Messages reach the application; began_s: of a step that is over."""
    assert tracing.tracer is not None
    origins = _contexts_of(messages)
    said: dict[str, Any] = {"count": len(messages)}
    if len(messages) == 1:
        (one,) = messages
        said |= {"message_id": one.message_id or "", "delivery_count": one.delivery_count}
    return tracing.tracer.begin(step, origins=origins, began_s=began_s, **_about(place), **said)


def _contexts_of(messages: Sequence[Message]) -> list[Context]:
    """Each once, as what was sent at once has one; a message without a head has none, and is seen
    to have none without a call: 0.9 calls of Python for each of a batch, as without traces, where
    decoding nothing made it 3.7."""
    found: dict[str, Context] = {}
    for message, head in zip(messages, map(_HEAD, messages), strict=True):
        if head and (context := _context_of(message.readable().values)):
            found["".join(context.values())] = context
    return list(found.values())


def _about(place: Place) -> dict[str, Any]:
    said: dict[str, Any] = {"name": place.name}
    if place.subscription:
        said["subscription"] = place.subscription
    if place.in_transaction:
        said["transaction"] = 1
    return said


def _context_of(values: Mapping[str, Any]) -> Context:
    found = {name: values.get(name) for name in CARRIED}
    return {name: value for name, value in found.items() if isinstance(value, str)}
