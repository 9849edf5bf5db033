"""Conversations: tpconnect, tpsend, tprecv, tpdiscon, and the same as an object.

tpsend and tprecv return the event that ended the conversation, or TPEV_SENDONLY when control came;
gettperrno() is TPEEVENT then.
"""

from time import monotonic
from typing import Any

from hms.client.core import current_transaction
from hms.client.core.arguments import check_number
from hms.client.core.conversation import BLOCK_TIME_S
from hms.client.core.conversation_state import ConversationState, Part
from hms.client.core.operations import FOREVER
from hms.client.core.service_data import Data, decode_data, encode_data
from hms.errors.catalogue import (
    CallDescriptorUnknown,
    CallWouldBlock,
    ConversationProtocol,
    InvalidArgument,
    RequestTimeout,
    TooManyRequests,
)
from tpmon.constants import (
    TPEEVENT,
    TPEV_SENDONLY,
    TPEV_SVCFAIL,
    TPEV_SVCSUCC,
    TPNOBLOCK,
    TPNOTIME,
    TPNOTRAN,
    TPRECVONLY,
    TPSENDONLY,
    TPSIGRSTRT,
)
from tpmon.context import Context, current, keeps_tperrno, note
from tpmon.flags import FLAGS_MAX, check_flags

__all__ = ["tpconnect", "tpdiscon", "tprecv", "tpsend"]

TALKS_MAX = 1024
_FLAGS = TPNOBLOCK | TPNOTIME | TPNOTRAN | TPSIGRSTRT


@keeps_tperrno
def tpconnect(svc: str, data: Data = None, flags: int = TPSENDONLY) -> int:
    """Begin a conversation; its descriptor. flags: TPSENDONLY keeps control, TPRECVONLY leaves it
    to the service. ServiceNotFound; RequestTimeout when no server takes it up in time."""
    check_number("flags", flags, -FLAGS_MAX, FLAGS_MAX)
    control = flags & (TPSENDONLY | TPRECVONLY)
    if control not in (TPSENDONLY, TPRECVONLY) or flags & ~(_FLAGS | control):
        raise InvalidArgument(what="tpconnect()", detail="give TPSENDONLY or TPRECVONLY")
    context = current("tpconnect()")
    if len(context.talks) >= TALKS_MAX:
        raise TooManyRequests(what="tpconnect()", count=len(context.talks), limit=TALKS_MAX)
    kind, encoded = encode_data(data)
    connection = context.connection
    deadline = _deadline(context, flags & ~TPNOBLOCK)
    with current_transaction.outside(is_it=bool(flags & TPNOTRAN)):
        talk = connection.run(
            connection.calls.connecting(
                svc, encoded, kind, has_control=control == TPSENDONLY, deadline=deadline
            )
        )
    cd = context.new_descriptor()
    context.talks[cd] = talk
    return cd


@keeps_tperrno
def tpsend(cd: int, data: Data = None, flags: int = 0) -> int:
    """Say something; TPRECVONLY hands control over. The event that ended the conversation, or 0."""
    context, talk = _find("tpsend()", cd)
    check_flags("tpsend()", flags, _FLAGS | TPRECVONLY)
    kind, encoded = encode_data(data)
    part = Part(kind, encoded, gives_control=bool(flags & TPRECVONLY))
    deadline, connection = _deadline(context, flags), context.connection
    event = connection.run(
        connection.calls.saying(talk, part, deadline, may_wait=not flags & TPNOBLOCK)
    )
    return _noted(context, cd, event)


@keeps_tperrno
def tprecv(cd: int, flags: int = 0) -> tuple[int, Any]:
    """What the other side says, and the event: 0, TPEV_SENDONLY with control, or the end, with what
    the service returned. CallWouldBlock with TPNOBLOCK, RequestTimeout."""
    context, talk = _find("tprecv()", cd)
    check_flags("tprecv()", flags, _FLAGS)
    with context.connection.lock:
        context.connection.driver.take_in()
    found = context.connection.run(talk.receiving(_deadline(context, flags)))
    if found is None and flags & TPNOBLOCK:
        raise CallWouldBlock(cd=cd)
    if found is None:
        raise RequestTimeout(what="tprecv()", timeout_s=_patience_s(context))
    event, part = found
    data = decode_data(part.kind, part.data)
    return _noted(context, cd, event or (TPEV_SENDONLY if part.gives_control else 0)), data


@keeps_tperrno
def tpdiscon(cd: int) -> None:
    """Leave at once; only who began it may. What is on the way is lost."""
    context, talk = _find("tpdiscon()", cd)
    if talk.is_server:
        raise ConversationProtocol(what="tpdiscon()", detail="a service ends by returning")
    del context.talks[cd]
    with context.connection.lock:
        context.connection.calls.leave(talk)
        context.connection.flush()


def _find(what: str, cd: int) -> tuple[Context, ConversationState]:
    context = current(what)
    talk = context.talks.get(cd)
    if talk is None:
        raise CallDescriptorUnknown(cd=cd)
    return context, talk


def _patience_s(context: Context) -> float:
    return context.block_time_s or BLOCK_TIME_S


def _deadline(context: Context, flags: int) -> float:
    if flags & TPNOBLOCK:
        return monotonic()
    return FOREVER if flags & TPNOTIME else monotonic() + _patience_s(context)


def _noted(context: Context, cd: int, event: int) -> int:
    """The event; one that ends the conversation ends its descriptor."""
    if event:
        note(TPEEVENT)
    if event and event != TPEV_SENDONLY:
        ended = context.talks.pop(cd)
        if event in (TPEV_SVCSUCC, TPEV_SVCFAIL):
            note(TPEEVENT, ended.rcode)
    return event
