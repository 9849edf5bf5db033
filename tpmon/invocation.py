"""One run of a handler: from the INVOKE of the node to the RESULT. No socket, no thread.

Whatever a handler does, a result comes of it: the caller must not wait for its deadline because an
answer could not be encoded. A traceback goes to the server's log, never over the wire.
"""

import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import nullcontext
from time import perf_counter_ns
from types import CoroutineType
from typing import Any, Protocol

import msgspec

from hms.client.core import tracing
from hms.client.core.listener_outcomes import Reject, Retry
from hms.client.core.repeated_failures import RepeatedFailures
from hms.client.core.service_data import decode_data, encode_data, type_name
from hms.client.core.service_deadline import begin_serving, end_serving
from hms.errors.catalogue import (
    ConversationProtocol,
    ServiceCallFailed,
    ServiceInputError,
)
from hms.errors.tree import HmsError
from hms.wire.packed_messages import DELIVERED_ROW, KIND_NONE, DeliveredRow
from hms.wire.structures import (
    QUEUE,
    SERVICE_SPEAKS,
    InvokeHead,
    ResultHead,
    make_error,
    wire_fields,
)
from tpmon.constants import TPCONV, TPEXIT, TPFAIL, TPRECVONLY, TPSENDONLY, TPSUCCESS
from tpmon.failed_input import shows_input, tell_input
from tpmon.service_functions import Registry, Request, ServiceResult

__all__ = ["Outcome", "Speaker", "invoke"]

DETAIL_CHARACTERS_MAX = 1000
"""A result's header is limited to 64 KiB; the rest stands in the log."""
REJECTED, RETRY = 1, 2

_LOGGER = logging.getLogger("tpmon.server")
_LOGGER.addFilter(RepeatedFailures())


RunCoroutine = Callable[[Coroutine[Any, Any, Any]], Any]


class Outcome(msgspec.Struct, frozen=True):
    """The result of a call; is_last: the handler wants the server to end after it."""

    head: ResultHead
    data: bytes = b""
    is_last: bool = False


class Speaker(Protocol):
    """The server's side of a conversation."""

    cd: int

    @property
    def has_control(self) -> bool:
        """Whether this side may speak."""

    def say(self, data: Any) -> None:
        """Say something and hand control over, as soon as this side has it."""

    def hear(self) -> Any:
        """What the other side says next; ConversationEnded."""


def invoke(
    handlers: Registry,
    head: InvokeHead,
    data: bytes,
    answer_bytes_max: int,
    speaker: Speaker | None = None,
    run_coroutine: RunCoroutine | None = None,
) -> Outcome:
    """Run the handler and tell what came of it; raises nothing."""
    began_ns = perf_counter_ns()
    token = begin_serving(head.deadline_ms / 1000 if head.deadline_ms else None)
    how = handlers, head, data, answer_bytes_max, speaker, run_coroutine
    try:
        outcome = _run(*how) if tracing.tracer is None else _traced(*how)
    finally:
        end_serving(token)
    elapsed_us = (perf_counter_ns() - began_ns) // 1000
    timed = msgspec.structs.replace(outcome.head, elapsed_us=elapsed_us)
    return Outcome(timed, outcome.data, outcome.is_last)


def _traced(
    handlers: Registry,
    head: InvokeHead,
    data: bytes,
    answer_bytes_max: int,
    speaker: Speaker | None,
    run_coroutine: RunCoroutine | None,
) -> Outcome:
    span = _span(head, data)
    with span.active() if span is not None else nullcontext():
        outcome = _run(handlers, head, data, answer_bytes_max, speaker, run_coroutine)
    if span is not None:
        number, fields = outcome.head.error_number, outcome.head.error_fields
        span.end(make_error(number, fields) if number else None)
    return outcome


def _span(head: InvokeHead, data: bytes) -> "tracing.Span | None":
    if tracing.tracer is None or not head.is_message:
        return tracing.serving(head.service, head.trace)
    from hms.client.message_tracing import Place, taken  # noqa: PLC0415 - only for listeners

    return taken("process", Place(head.destination), [_message(head, data)])


def _run(
    handlers: Registry,
    head: InvokeHead,
    data: bytes,
    answer_bytes_max: int,
    speaker: Speaker | None,
    run_coroutine: RunCoroutine | None,
) -> Outcome:
    try:
        offer = handlers.get(head.service) or handlers.offer(head.service)  # ServiceNotFound
        if offer.takes:
            _check_type(offer.takes, head)
        returned = offer.handler(_request(head, data, speaker))
        if offer.is_conversation:
            returned = _converse(head.service, returned, speaker)
        if run_coroutine is not None and isinstance(returned, CoroutineType):
            returned = run_coroutine(returned)
        return _result(head, returned, answer_bytes_max)
    except (SystemExit, KeyboardInterrupt) as wish:
        _tell_input(head, data)
        return msgspec.structs.replace(_failed(head, _said(wish)), is_last=True)
    except (Reject, Retry) as verdict:
        _tell_input(head, data)
        return _judged(head, verdict)
    except (ServiceInputError, ConversationProtocol) as error:
        return _refused(head, error)
    except HmsError as error:
        _LOGGER.exception("service %s failed", head.service)
        _tell_input(head, data)
        return _failed(head, _said(error))
    except BaseException as fault:
        _LOGGER.exception("service %s failed", head.service)
        _tell_input(head, data)
        return _failed(head, _said(fault))


def _tell_input(head: InvokeHead, data: bytes) -> None:
    if not shows_input():
        return
    try:
        given = _request(head, data, None)
    except HmsError:  # it is what failed
        tell_input(head.service, data, {})
        return
    message = given.message
    tell_input(head.service, given.data, {} if message is None else message.properties)


def _check_type(takes: Sequence[str], head: InvokeHead) -> None:
    """TPEITYPE for what the service does not take."""
    given = type_name(head.kind)
    if given not in takes:
        raise ServiceInputError(service=head.service, wanted=" or ".join(takes), given=given)


def _converse(
    service: str, talk: "Generator[Any, Any, Any]", speaker: Speaker | None
) -> ServiceResult | Any:
    """Drive a generator: what it yields is said, if anything, and it gets what is said to it."""
    if speaker is None:
        talk.close()
        raise ConversationProtocol(what=service, detail="it is a conversation: use tpconnect()")
    step, given = talk.send, None
    try:
        while True:
            said = step(given)
            try:
                if said is not None or speaker.has_control:
                    speaker.say(said)  # who only wants to hear hands control over with nothing
                step, given = talk.send, speaker.hear()
            except HmsError as error:
                step, given = talk.throw, error
    except StopIteration as ended:
        return ended.value


def _request(head: InvokeHead, data: bytes, speaker: Speaker | None) -> Request:
    deadline = head.deadline_ms / 1000 if head.deadline_ms else None
    if head.is_message:
        message = _message(head, data)
        return Request(message.body, message, head.service, deadline)
    flags = 0
    if head.mode:
        flags = TPCONV | (TPSENDONLY if head.mode == SERVICE_SPEAKS else TPRECVONLY)
    cd = speaker.cd if speaker is not None else 0
    decoded = decode_data(head.kind, data)
    return Request(decoded, None, head.service, deadline, head.client, flags, cd, head.user)


def _message(head: InvokeHead, body: bytes) -> Any:
    from hms.client.destinations import Queue, Topic  # noqa: PLC0415 - only for listeners
    from hms.client.message import Message  # noqa: PLC0415 - only for listeners

    row = DeliveredRow._make(DELIVERED_ROW.unpack(head.delivered))
    place = Queue if head.destination_kind == QUEUE else Topic
    return Message.received(row, head.head, body, place(head.destination))


def _result(head: InvokeHead, returned: Any, answer_bytes_max: int) -> Outcome:
    said, rcode, forward, wanted = TPSUCCESS, 0, "", returned
    if isinstance(returned, ServiceResult):
        said, rcode, forward = returned.rval, returned.rcode, returned.forward
        wanted = returned.data
    elif head.is_message:
        wanted = None  # what a listener returns goes nowhere, so it need not be data
    kind, data = encode_data(wanted)
    if len(data) > answer_bytes_max:
        limit = f"{answer_bytes_max} that the node takes"
        return _failed(head, f"its answer of {len(data)} bytes is above the {limit}")
    if forward and head.mode:
        return _failed(head, "a conversation cannot be forwarded")
    rval = TPSUCCESS if said == TPSUCCESS else TPFAIL
    sent = ResultHead(head.call, rval, rcode, kind, forward=forward)
    return Outcome(sent, data, said == TPEXIT)


def _judged(head: InvokeHead, verdict: Reject | Retry) -> Outcome:
    """What becomes of a listener's message; a call just failed."""
    _LOGGER.warning("service %s: %s: %s", head.service, type(verdict).__name__, verdict.detail)
    said = _shown(str(verdict.fields["detail"])) if head.is_message else _said(verdict)
    failed = _failed(head, said)
    is_reject = isinstance(verdict, Reject)
    delay_ms = 0 if is_reject else round(verdict.delay_s * 1000)
    judged = REJECTED if is_reject else RETRY
    why = getattr(verdict, "dead_reason", "")
    told = msgspec.structs.replace(failed.head, verdict=judged, delay_ms=delay_ms, reason=why)
    return Outcome(told)


def _refused(head: InvokeHead, error: HmsError) -> Outcome:
    fields = wire_fields(error)
    return Outcome(ResultHead(head.call, TPFAIL, 0, KIND_NONE, error.number, fields))


def _failed(head: InvokeHead, detail: str) -> Outcome:
    return _refused(head, ServiceCallFailed(service=head.service, detail=detail))


def _said(fault: BaseException) -> str:
    """What an exception says, as text that can be sent; its own __str__ may fail too."""
    kind = type(fault).__name__
    try:
        said = str(fault)
    except Exception:  # noqa: BLE001 - it is the application's
        return kind
    return f"{kind}: {shown}" if (shown := _shown(said)) else kind


def _shown(text: str) -> str:
    """As much as is sent, and nothing that cannot be."""
    return text[:DETAIL_CHARACTERS_MAX].encode(errors="backslashreplace").decode()
