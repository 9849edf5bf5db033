"""Replies of services, as the comfortable layer gives them."""

from dataclasses import dataclass
from typing import Any

from hms.client.core.service_data import decode_data
from hms.errors.catalogue import ServiceFailedReply
from hms.wire.service_codes import TPSUCCESS
from hms.wire.structures import ResultHead, make_error

__all__ = ["Reply"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answered; rcode: its tpurcode."""

    data: Any = None
    rcode: int = 0


def reply_of(service: str, head: ResultHead, data: bytes) -> Reply:
    """The reply; what the call ended with otherwise is raised. ServiceFailedReply, whose attribute
    reply has the data, for TPFAIL."""
    if head.error_number:
        raise make_error(head.error_number, head.error_fields)
    reply = Reply(decode_data(head.kind, data), head.rcode)
    if head.rval != TPSUCCESS:
        failed = ServiceFailedReply(service=service, rcode=head.rcode)
        failed.reply = reply  # type: ignore[attr-defined]
        raise failed
    return reply
