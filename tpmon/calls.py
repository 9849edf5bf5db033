"""The tp functions of a client, with the names, arguments and numbers of Tmax (X/Open XATMI).

Failures raise, and gettperrno() tells their number. A service that reports failure itself (TPFAIL)
raises nothing: its reply has tperrno TPESVCFAIL.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

from field_buffer import FieldBuffer
from field_buffer.catalogue import (
    CallDescriptorUnknown,
    CallWouldBlock,
    InvalidArgument,
    ServiceTimeout,
    TooManyRequests,
)
from tpmon.asked import Pending
from tpmon.client import Connection
from tpmon.constants import (
    MEANINGS,
    TPESVCFAIL,
    TPGETANY,
    TPNOBLOCK,
    TPNOREPLY,
    TPNOTIME,
    TPSUCCESS,
)
from tpmon.context import Context, current, enter, find, keeps_tperrno, note
from tpmon.data import Data, decode_data, encode_data
from tpmon.environment import addresses
from tpmon.protocol.structures import ResultHead, decode_with_body, make_error

CALLS_MAX = 1024
_ENDLESS_S = 10_000_000.0
_LATE_S = 5.0


@dataclass(slots=True)
class TPSTART_T:  # noqa: N801 - Tmax's name
    """Who connects. dompwd is accepted and not used."""

    usrname: str = ""
    cltname: str = ""
    dompwd: str = ""
    usrpwd: str = ""
    flags: int = 0


@dataclass(slots=True)
class TpReply:
    """What a service replied; unpacks as (tperrno, tpurcode, data)."""

    tperrno: int
    tpurcode: int
    data: Data
    cd: int = 0

    def __iter__(self) -> Iterator[Any]:
        return iter((self.tperrno, self.tpurcode, self.data))


@keeps_tperrno
def tpstart(info: TPSTART_T | None = None) -> None:
    """Connect this thread or task to the node that the environment names; again is no error."""
    context = find()
    if context is not None and not context.connection.is_ended:
        return
    who = info or TPSTART_T()
    connection = Connection(
        addresses(), user=who.usrname, password=who.usrpwd, client_name=who.cltname
    )
    enter(Context(connection.open()))


@keeps_tperrno
def tpend() -> None:
    """Disconnect; without a connection it is no error."""
    context = find()
    if context is not None:
        enter(None)
        context.connection.close()


@keeps_tperrno
def tpcall(svc: str, idata: Data = None, flags: int = 0) -> TpReply:
    """Call a service and wait for its reply; ServiceNotFound, ServiceTimeout, ServerLost."""
    context = current("tpcall()")
    kind, data = encode_data(idata)
    timeout_s = _timeout_s(context, flags)
    result, reply = context.connection.call(svc, data, kind, timeout_s)
    return _reply(result, reply)


@keeps_tperrno
def tpacall(svc: str, data: Data = None, flags: int = 0) -> int:
    """Call a service without waiting; the number of the call for tpgetrply, 0 with TPNOREPLY."""
    context = current("tpacall()")
    kind, encoded = encode_data(data)
    timeout_s = _timeout_s(context, flags)
    wanted = not flags & TPNOREPLY
    if wanted and len(context.calls) >= CALLS_MAX:
        raise TooManyRequests(what="tpacall()", count=len(context.calls), limit=CALLS_MAX)
    pending = context.connection.start_call(
        svc, encoded, kind, timeout_s, is_reply_wanted=wanted, notify=context
    )
    if pending is None:
        return 0
    context.calls_made += 1
    context.calls[context.calls_made] = pending
    return context.calls_made


@keeps_tperrno
def tpgetrply(cd: int = 0, flags: int = 0) -> TpReply:
    """The reply to a call of tpacall; cd 0 or TPGETANY: to any. TPNOBLOCK: only if it is here."""
    context = current("tpgetrply()")
    is_any = not cd or bool(flags & TPGETANY)
    waiting = context.calls if is_any else {cd: context.calls.get(cd)}
    if not waiting or None in waiting.values():
        raise CallDescriptorUnknown(cd=cd)
    found, pending = _wait(context, waiting, flags)  # type: ignore[arg-type]
    del context.calls[found]
    result, reply = decode_with_body(pending.checked().payload, ResultHead)
    return _reply(result, reply, found)


@keeps_tperrno
def tpcancel(cd: int) -> None:
    """Do not wait for the reply to a call any more; the service may still run."""
    context = current("tpcancel()")
    pending = context.calls.pop(cd, None)
    if pending is None:
        raise CallDescriptorUnknown(cd=cd)
    with context.connection.lock:
        context.connection.link.abandon(pending)


@keeps_tperrno
def tpset_timeout(sec: int) -> None:
    """How long calls of this thread or task wait from now on."""
    if sec <= 0:
        raise InvalidArgument(what="tpset_timeout()", detail=f"{sec} is not above 0")
    current("tpset_timeout()").block_time_s = sec


@keeps_tperrno
def tpget_timeout() -> int:
    """How long calls of this thread or task wait, in seconds."""
    return current("tpget_timeout()").block_time_s


def tpstrerror(n: int) -> str:
    """What a tperrno means."""
    return MEANINGS.get(n, f"{n} is no tperrno")


@keeps_tperrno
def tpalloc(type: str, subtype: str = "", size: int = 0) -> Any:  # noqa: A002, ARG001 - Tmax's
    """An empty buffer of a type: STRING, CARRAY, X_OCTET or FIELD."""
    made = {"STRING": str, "CARRAY": bytearray, "X_OCTET": bytearray, "FIELD": FieldBuffer}
    if type not in made:
        raise InvalidArgument(what="tpalloc()", detail=f"{type!r} is no buffer type here")
    return made[type]()


def tprealloc(buf: Any, size: int) -> Any:  # noqa: ARG001 - Tmax's arguments
    """The buffer; buffers grow by themselves."""
    return buf


def tpfree(buf: Any) -> None:
    """Nothing; kept for the reader's eye."""


@keeps_tperrno
def tptypes(buf: Data) -> tuple[str, str, int]:
    """Type, subtype and size in bytes of a buffer."""
    name = "CARRAY"
    if isinstance(buf, str):
        name = "STRING"
    elif isinstance(buf, FieldBuffer | dict):
        name = "FIELD"
    return name, "", len(encode_data(buf)[1])


def _timeout_s(context: Context, flags: int) -> float:
    return _ENDLESS_S if flags & TPNOTIME else context.block_time_s


def _wait(context: Context, waiting: dict[int, Pending], flags: int) -> tuple[int, Pending]:
    """The first of the calls that is done."""
    connection, timeout_s = context.connection, _timeout_s(context, flags)
    deadline = monotonic() if flags & TPNOBLOCK else monotonic() + timeout_s + _LATE_S

    def is_done() -> bool:
        return any(pending.is_done for pending in waiting.values())

    with connection.lock:
        connection.take_in()
        connection.wait_for(context, is_done, deadline)
        for cd, pending in waiting.items():
            if pending.is_done:
                return cd, pending
    if flags & TPNOBLOCK:
        raise CallWouldBlock(cd=next(iter(waiting)))
    raise ServiceTimeout(service=next(iter(waiting.values())).what, timeout_s=timeout_s)


def _reply(result: ResultHead, data: bytes, cd: int = 0) -> TpReply:
    if result.error_number:
        raise make_error(result.error_number, result.error_fields)
    tperrno = 0 if result.rval == TPSUCCESS else TPESVCFAIL
    note(tperrno, result.rcode)
    return TpReply(tperrno, result.rcode, decode_data(result.kind, data), cd)


__all__ = [
    "TPSTART_T",
    "TpReply",
    "tpacall",
    "tpalloc",
    "tpcall",
    "tpcancel",
    "tpend",
    "tpfree",
    "tpget_timeout",
    "tpgetrply",
    "tprealloc",
    "tpset_timeout",
    "tpstart",
    "tpstrerror",
    "tptypes",
]
