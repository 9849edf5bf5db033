"""Message tracing: the context that messages carry, and the spans of those that get them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hms.client.core import tracing
from hms.client.core.tracing import CARRIED, Context, Span
from hms.client.message import Message

__all__ = ["processed", "received", "sending", "sending_many", "settling", "taken"]

Properties = Mapping[str, Any] | None


def sending(destination: Any, body: Any, properties: Properties) -> tuple[Any, Properties, Span]:
    """A message is sent: itself, with its context, and the span."""
    assert tracing.tracer is not None
    span = tracing.tracer.begin("send", destination.name)
    return *_carrying(body, properties, span.carried), span


def sending_many(destination: Any, bodies: Iterable[Any]) -> tuple[Iterator[Any], Span]:
    """The same for many, which have one span."""
    assert tracing.tracer is not None
    span = tracing.tracer.begin("send", destination.name)

    def carrying() -> Iterator[Any]:
        for body in bodies:
            one, properties = _carrying(body, None, span.carried)
            if properties:
                one = (Message.text if isinstance(one, str) else Message)(one, properties)
            yield one

    return carrying(), span


def _carrying(body: Any, properties: Properties, carried: Context) -> tuple[Any, Properties]:
    if not carried or body is None:
        return body, properties
    if not isinstance(body, Message):
        return body, {**(properties or {}), **carried}
    if not body.is_read_only:  # else it is passed on with the context of its first sender
        body.writable().values.update(carried)
    return body, properties


def received(destination: Any, messages: Sequence[Message]) -> None:
    """The application gets messages that it asked for."""
    if messages:
        taken("receive", destination.name, messages).end()


def processed(destination: Any, listener: Callable[[Message], Any]) -> Callable[[Message], Any]:
    """A listener whose calls are spans, those of asyncio until their end."""

    def called(message: Message) -> Any:
        span = taken("process", destination.name, [message])
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


def settling(destination: Any, message_id: int) -> Span:
    """An acknowledgement is said."""
    assert tracing.tracer is not None
    return tracing.tracer.begin("settle", destination.name, message_id=f"{message_id:012x}")


def taken(step: str, name: str, messages: Sequence[Message]) -> Span:
    """Messages reach the application."""
    assert tracing.tracer is not None
    origins = [context for context in map(_context_of, messages) if context]
    said: dict[str, str | int] = {"count": len(messages)}
    if len(messages) == 1:
        (one,) = messages
        said = {"message_id": one.message_id or "", "delivery_count": one.delivery_count}
    return tracing.tracer.begin(step, name, origins, **said)


def _context_of(message: Message) -> Context:
    values = message.readable().values
    found = {name: values.get(name) for name in CARRIED}
    return {name: value for name, value in found.items() if isinstance(value, str)}
