"""Conversations: tpconnect, tpsend, tprecv, tpdiscon, and the same as an object.

tpsend and tprecv return the event that ended the conversation, or TPEV_SENDONLY when control came;
gettperrno() is TPEEVENT then.
"""

import contextlib
from collections.abc import Iterator
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from field_buffer.catalogue import (
    CallDescriptorUnknown,
    CallWouldBlock,
    ConversationEnded,
    ConversationProtocol,
    InvalidArgument,
    RequestTimeout,
    TooManyRequests,
)
from tpmon.asked import own_copy
from tpmon.constants import (
    TPEEVENT,
    TPEV_DISCONIMM,
    TPEV_SENDONLY,
    TPEV_SVCERR,
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
from tpmon.data import Data, decode_data, encode_data
from tpmon.protocol.structures import InvokeHead
from tpmon.steps import FOREVER
from tpmon.talk import Part, Talk

if TYPE_CHECKING:
    from tpmon.client import Connection

__all__ = ["Conversation", "tpconnect", "tpdiscon", "tprecv", "tpsend"]

TALKS_MAX = 1024
BLOCK_TIME_S = 30.0
"""How long to wait for the other side when tpset_timeout() says nothing."""

_FLAGS = TPNOBLOCK | TPNOTIME | TPNOTRAN | TPSIGRSTRT
_ENDS = {
    TPEV_DISCONIMM: "the other side has left",
    TPEV_SVCERR: "its server failed",
    TPEV_SVCFAIL: "the service failed",
    TPEV_SVCSUCC: "the service has returned",
}


@keeps_tperrno
def tpconnect(svc: str, data: Data = None, flags: int = TPSENDONLY) -> int:
    """Begin a conversation; its descriptor. flags: TPSENDONLY keeps control, TPRECVONLY leaves it
    to the service. ServiceNotFound; RequestTimeout when no server takes it up in time."""
    control = flags & (TPSENDONLY | TPRECVONLY)
    if control not in (TPSENDONLY, TPRECVONLY) or flags & ~(_FLAGS | control):
        raise InvalidArgument(what="tpconnect()", detail="give TPSENDONLY or TPRECVONLY")
    context = current("tpconnect()")
    if len(context.talks) >= TALKS_MAX:
        raise TooManyRequests(what="tpconnect()", count=len(context.talks), limit=TALKS_MAX)
    kind, encoded = encode_data(data)
    connection = context.connection
    talk = connection.run(
        connection.connecting(
            svc,
            encoded,
            kind,
            has_control=control == TPSENDONLY,
            deadline=_deadline(context, flags & ~TPNOBLOCK),
        )
    )
    cd = context.new_descriptor()
    context.talks[cd] = talk
    return cd


@keeps_tperrno
def tpsend(cd: int, data: Data = None, flags: int = 0) -> int:
    """Say something; TPRECVONLY hands control over. The event that ended the conversation, or 0."""
    context, talk = _find("tpsend()", cd)
    if flags & ~(_FLAGS | TPRECVONLY):
        raise InvalidArgument(what="tpsend()", detail=f"flags {flags:#x} do not belong there")
    kind, encoded = encode_data(data)
    part = Part(kind, encoded, gives_control=bool(flags & TPRECVONLY))
    deadline, connection = _deadline(context, flags), context.connection
    event = connection.run(talk.sending(part, deadline, may_wait=not flags & TPNOBLOCK))
    return _noted(context, cd, event)


@keeps_tperrno
def tprecv(cd: int, flags: int = 0) -> tuple[int, Any]:
    """What the other side says, and the event: 0, TPEV_SENDONLY with control, or the end, with what
    the service returned. CallWouldBlock with TPNOBLOCK, RequestTimeout."""
    context, talk = _find("tprecv()", cd)
    if flags & ~_FLAGS:
        raise InvalidArgument(what="tprecv()", detail=f"flags {flags:#x} do not belong there")
    with context.connection.lock:
        context.connection.take_in()
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
        context.connection.leave(talk)
        context.connection.flush()


def _find(what: str, cd: int) -> tuple[Context, Talk]:
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


@contextlib.contextmanager
def speaking(context: Context, head: InvokeHead) -> "Iterator[Conversation | None]":
    """The server's side of the conversation that a call is, if it is one."""
    connection, key = context.connection, (False, head.call)
    talk = connection.link.talks.get(key) if head.mode else None
    if talk is None:
        yield None
        return
    cd = context.new_descriptor()
    context.talks[cd] = talk
    with connection.lock:
        talk.begin()
        connection.flush()
    try:
        yield Conversation(connection, talk, head.service, BLOCK_TIME_S, cd)
    finally:
        context.talks.pop(cd, None)
        connection.link.talks.pop(key, None)


class Conversation:
    """One side of a conversation as an object: send() and receive() raise when it is over, or
    return what it ended with. See Connection.conversation()."""

    def __init__(
        self, connection: "Connection", talk: Talk, service: str, timeout_s: float, cd: int = 0
    ) -> None:
        self._connection = connection
        self._talk = talk
        self._service = service
        self._timeout_s = timeout_s
        self._is_told = False
        self.cd = cd

    @property
    def has_control(self) -> bool:
        """Whether this side may speak."""
        return self._talk.has_control and not self._talk.event

    @property
    def is_over(self) -> bool:
        """Whether nothing can be said any more; what came before can still be received."""
        return bool(self._talk.event)

    def send(self, data: Data, *, gives_control: bool = False) -> None:
        """Say something; ConversationEnded, ConversationProtocol, RequestTimeout."""
        kind, encoded = encode_data(data)
        part = Part(kind, encoded, gives_control)
        event = self._connection.run(self._talk.sending(part, self._deadline()))
        if event:
            raise self._ended(event)

    def receive(self) -> Any:
        """What the other side says. What a service returned is the last of it; then, and when it
        ended otherwise, ConversationEnded. RequestTimeout when nothing came in time."""
        found = self._connection.run(self._talk.receiving(self._deadline()))
        if found is None:
            raise self._late()
        event, part = found
        if event:
            if event != TPEV_SVCSUCC or self._is_told:
                raise self._ended(event)
            self._is_told = True
        return decode_data(part.kind, part.data)

    def close(self) -> None:
        """Leave; after the end it does nothing."""
        with self._connection.lock:
            self._connection.leave(self._talk)
            self._connection.flush()

    # ---- the server's side

    def say(self, data: Any) -> None:
        """Say something and hand control over, as soon as this side has it."""
        if not self._connection.run(self._talk.awaiting_control(self._deadline())):
            raise self._late()
        self.send(data, gives_control=True)

    def hear(self) -> Any:
        """What the other side says next; ConversationEnded."""
        return self.receive()

    def _deadline(self) -> float:
        return monotonic() + self._timeout_s

    def _late(self) -> RequestTimeout:
        what = f"conversation with {self._service}"
        return RequestTimeout(what=what, timeout_s=self._timeout_s)

    def _ended(self, event: int) -> Exception:
        if self._talk.error is not None:
            return own_copy(self._talk.error)
        return ConversationEnded(service=self._service, detail=_ENDS.get(event, str(event)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
