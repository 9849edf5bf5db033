"""One run of a handler: from the INVOKE of the node to the RESULT. No socket, no thread.

Whatever a handler does, a result comes of it: the caller must not wait for its deadline because an
answer could not be encoded. A traceback goes to the server's log, never over the wire.
"""

import logging
from typing import Any, NamedTuple

from field_buffer.catalogue import ServiceCallFailed
from field_buffer.errors import HmsError
from field_buffer.packing import DELIVERED_ROW, KIND_NONE, DeliveredRow
from tpmon.constants import TPEXIT, TPFAIL, TPSUCCESS
from tpmon.data import decode_data, encode_data
from tpmon.protocol.structures import QUEUE, InvokeHead, ResultHead, wire_fields
from tpmon.registry import Registry, Request, ServiceResult

__all__ = ["Outcome", "invoke"]

DETAIL_CHARACTERS_MAX = 1000
"""A result's header is limited to 64 KiB; the rest stands in the log."""

_LOGGER = logging.getLogger("tpmon.server")


class Outcome(NamedTuple):
    """The result of a call; is_last: the handler wants the server to end after it."""

    head: ResultHead
    data: bytes = b""
    is_last: bool = False


def invoke(handlers: Registry, head: InvokeHead, data: bytes, answer_bytes_max: int) -> Outcome:
    """Run the handler and tell what came of it; raises nothing."""
    try:
        returned = handlers.find(head.service)(_request(head, data))
        return _result(head, returned, answer_bytes_max)
    except SystemExit as wish:
        return _failed(head, f"SystemExit: {wish}")._replace(is_last=True)
    except HmsError as error:
        _LOGGER.exception("service %s failed", head.service)
        return _failed(head, _said(error))
    except Exception as fault:
        _LOGGER.exception("service %s failed", head.service)
        return _failed(head, _said(fault))


def _request(head: InvokeHead, data: bytes) -> Request:
    deadline = head.deadline_ms / 1000 if head.deadline_ms else None
    if not head.is_message:
        return Request(decode_data(head.kind, data), None, head.service, deadline)
    message = _message(head, data)
    return Request(message.body, message, head.service, deadline)


def _message(head: InvokeHead, body: bytes) -> Any:
    from hms.client.destinations import Queue, Topic  # noqa: PLC0415 - only for listeners
    from hms.client.message import Message  # noqa: PLC0415 - only for listeners

    row = DeliveredRow._make(DELIVERED_ROW.unpack(head.delivered))
    place = Queue if head.destination_kind == QUEUE else Topic
    return Message.received(row, head.head, body, place(head.destination))


def _result(head: InvokeHead, returned: Any, answer_bytes_max: int) -> Outcome:
    is_result = isinstance(returned, ServiceResult)
    result = returned if is_result else ServiceResult(TPSUCCESS, 0, returned)
    # What a listener returns goes nowhere, so it need not be data.
    wanted = result.data if is_result or not head.is_message else None
    kind, data = encode_data(wanted)
    if len(data) > answer_bytes_max:
        limit = f"{answer_bytes_max} that the node takes"
        return _failed(head, f"its answer of {len(data)} bytes is above the {limit}")
    rval = TPSUCCESS if result.rval == TPSUCCESS else TPFAIL
    is_last = result.rval == TPEXIT
    return Outcome(ResultHead(head.call, rval, result.rcode, kind), data, is_last)


def _failed(head: InvokeHead, detail: str) -> Outcome:
    error = ServiceCallFailed(service=head.service, detail=detail)
    return Outcome(ResultHead(head.call, TPFAIL, 0, KIND_NONE, error.number, wire_fields(error)))


def _said(fault: Exception) -> str:
    """What an exception says, as text that can be sent; its own __str__ may fail too."""
    kind = type(fault).__name__
    try:
        said = str(fault)
    except Exception:  # noqa: BLE001 - it is the application's
        return kind
    shown = said[:DETAIL_CHARACTERS_MAX].encode(errors="backslashreplace").decode()
    return f"{kind}: {shown}" if shown else kind
