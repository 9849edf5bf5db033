"""The tp functions of a client, with the names, arguments and numbers of Tmax (X/Open XATMI).

Failures raise, and gettperrno() tells their number. A service that reports failure itself (TPFAIL)
raises nothing: its reply has tperrno TPESVCFAIL.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from hms.client.core import current_transaction
from hms.client.core.blocking_connection import Connection
from hms.client.core.calls import GRACE_S, give_up
from hms.client.core.service_data import Data, decode_data, encode_data, type_name
from hms.client.profiles.profiled import make_connection, profile_asked
from hms.errors.catalogue import (
    CallDescriptorUnknown,
    CallWouldBlock,
    InvalidArgument,
    ReplyTypeChanged,
    TooManyRequests,
)
from hms.wire.structures import ResultHead, decode_with_body, make_error
from tpmon.constants import (
    MEANINGS,
    TPESVCFAIL,
    TPGETANY,
    TPNOBLOCK,
    TPNOCHANGE,
    TPNOREPLY,
    TPNOTIME,
    TPNOTRAN,
    TPSIGRSTRT,
    TPSUCCESS,
    TPUNSOL_IGN,
)
from tpmon.context import Context, Outstanding, current, enter, find, keeps_tperrno, note
from tpmon.environment import addresses
from tpmon.flags import check_flags, patience_s
from tpmon.unsolicited_functions import take_notice

CALLS_MAX = 1024
_WAIT = TPNOBLOCK | TPNOTIME | TPSIGRSTRT
_CALL = _WAIT | TPNOTRAN


@dataclass(slots=True)
class TPSTART_T:  # noqa: N801 - Tmax's name
    """Who connects; usrpwd and dompwd are checked, or refused where nobody checks them."""

    usrname: str = ""
    cltname: str = ""
    dompwd: str = ""
    usrpwd: str = ""
    flags: int = 0


class TpReply(msgspec.Struct):
    """What a service replied; unpacks as (tperrno, tpurcode, data)."""

    tperrno: int
    tpurcode: int
    data: Data
    cd: int = 0

    def __iter__(self) -> Iterator[Any]:
        return iter((self.tperrno, self.tpurcode, self.data))


@keeps_tperrno
def tpstart(info: TPSTART_T | None = None, *, profile: str | None = None) -> None:
    """Connect this thread or task to the node that the environment names; again is no error.

    profile: of hms-client.toml, else that of HMS_PROFILE; its addresses hold before those of the
    environment, and what info says before both. "": the file is not read. ClientConfigError,
    ProfileNotFound."""
    context = find()
    if context is not None and not context.connection.is_ended:
        return
    who = info or TPSTART_T()
    said = {
        "user": who.usrname,
        "password": who.usrpwd,
        "domain_password": who.dompwd,
        "client_name": who.cltname,
    }
    given = {name: value for name, value in said.items() if value}
    asked = profile_asked(None, profile)
    connection = make_connection(Connection, None, asked, given, addresses)
    context = Context(connection.open())
    context.unsolicited.is_ignored = bool(who.flags & TPUNSOL_IGN)
    connection.on_notice(partial(take_notice, context))
    enter(context)


@keeps_tperrno
def tpend() -> None:
    """Disconnect; without a connection, or in a server, which keeps its own, it is no error."""
    context = find()
    if context is not None and not context.is_server:
        enter(None)
        context.connection.close()


@keeps_tperrno
def tpcall(
    svc: str, idata: Data = None, flags: int = 0, *, timeout_s: float | None = None
) -> TpReply:
    """Call a service and wait for its reply; ServiceNotFound, ServiceTimeout, ServerLost,
    NodeSilent. timeout_s: how long this call waits, instead of what tpset_timeout() has set.

    flags: TPNOBLOCK fails (TPEBLOCK) when no server is free; TPNOTIME waits forever; TPNOCHANGE
    takes only a reply of the data's own type (TPEOTYPE); TPNOTRAN, TPSIGRSTRT.
    """
    check_flags("tpcall()", flags, _CALL | TPNOCHANGE)
    context = current("tpcall()")
    kind, data = encode_data(idata)
    if timeout_s is None:
        timeout_s = patience_s(context, flags)
    may_wait = not flags & TPNOBLOCK
    run = partial(context.connection.run_service, svc, data, kind, timeout_s, may_wait=may_wait)
    if flags & TPNOTRAN:
        with current_transaction.outside():
            result, reply = run()
    else:
        result, reply = run()
    return _reply(svc, result, reply, wanted=kind if flags & TPNOCHANGE else None)


@keeps_tperrno
def tpacall(svc: str, data: Data = None, flags: int = 0) -> int:
    """Call a service without waiting; the number of the call for tpgetrply, 0 with TPNOREPLY."""
    check_flags("tpacall()", flags, _CALL | TPNOREPLY)
    context = current("tpacall()")
    kind, encoded = encode_data(data)
    wanted = not flags & TPNOREPLY
    if wanted and len(context.calls) >= CALLS_MAX:
        raise TooManyRequests(what="tpacall()", count=len(context.calls), limit=CALLS_MAX)
    with current_transaction.outside(is_it=bool(flags & TPNOTRAN)):
        pending = context.connection.start_call(
            svc,
            encoded,
            kind,
            patience_s(context, flags),
            is_reply_wanted=wanted,
            may_wait=not flags & TPNOBLOCK,
            notify=context,
        )
    if pending is None:
        return 0
    cd = context.new_descriptor()
    context.calls[cd] = Outstanding(pending, kind)
    return cd


@keeps_tperrno
def tpgetrply(cd: int = 0, flags: int = 0) -> TpReply:
    """The reply to a call of tpacall; cd 0 or TPGETANY: to any. TPNOBLOCK: only if it is here.

    TPEBLOCK and a TPETIME of this function itself leave the call outstanding; every other outcome
    ends it.
    """
    check_flags("tpgetrply()", flags, _WAIT | TPGETANY | TPNOCHANGE)
    context = current("tpgetrply()")
    is_any = not cd or bool(flags & TPGETANY)
    waiting = (
        dict(context.calls) if is_any else {cd: context.calls[cd]} if _has(context, cd) else {}
    )
    if not waiting:
        raise CallDescriptorUnknown(cd=cd)
    found = _wait(context, waiting, flags)
    call = context.calls.pop(found)
    result, reply = decode_with_body(call.pending.checked().payload, ResultHead)
    wanted = call.kind if flags & TPNOCHANGE else None
    return _reply(call.pending.what, result, reply, found, wanted=wanted)


@keeps_tperrno
def tpcancel(cd: int) -> None:
    """Do not wait for the reply to a call any more; the service may still run."""
    context = current("tpcancel()")
    call = context.calls.pop(cd, None)
    if call is None:
        raise CallDescriptorUnknown(cd=cd)
    with context.connection.lock:
        context.connection.link.abandon(call.pending)
        give_up(call.pending, f"the call of {call.pending.what} was cancelled")


@keeps_tperrno
def tpset_timeout(sec: int) -> None:
    """How long calls of this thread or task wait from now on, in seconds; 0: as the service or the
    node has it (blocktime_s, BLOCKTIME)."""
    if sec < 0:
        raise InvalidArgument(what="tpset_timeout()", detail=f"{sec} is below 0")
    current("tpset_timeout()").block_time_s = sec


@keeps_tperrno
def tpget_timeout() -> int:
    """How long calls of this thread or task wait, in seconds; 0: as service or node have it."""
    return current("tpget_timeout()").block_time_s


def tpstrerror(n: int) -> str:
    """What a tperrno means."""
    return MEANINGS.get(n, f"{n} is no tperrno")


def _has(context: Context, cd: int) -> bool:
    return cd in context.calls


def _wait(context: Context, waiting: dict[int, Outstanding], flags: int) -> int:
    """The first of the calls that is done."""
    connection, timeout_s = context.connection, patience_s(context, flags)
    deadline = monotonic() if flags & TPNOBLOCK else connection.calls.call_deadline(timeout_s)

    def is_done() -> bool:
        return any(call.pending.is_done for call in waiting.values())

    begun_at = monotonic()
    with connection.lock:
        connection.driver.take_in()
        is_over = connection.driver.wait_for(context, is_done, deadline) or flags & TPNOBLOCK
        if not is_over and not connection.link.has_heard_since(begun_at):
            connection.driver.wait_for(context, is_done, monotonic() + GRACE_S)
        for cd, call in waiting.items():
            if call.pending.is_done:
                return cd
        if flags & TPNOBLOCK:
            raise CallWouldBlock(cd=next(iter(waiting)))
        late = next(iter(waiting.values())).pending.what
        raise connection.calls.call_too_late(late, begun_at, timeout_s)


def _reply(
    svc: str, result: ResultHead, data: bytes, cd: int = 0, *, wanted: int | None = None
) -> TpReply:
    if result.error_number:
        raise make_error(result.error_number, result.error_fields)
    tperrno = 0 if result.rval == TPSUCCESS else TPESVCFAIL
    if wanted is not None and result.kind != wanted:
        given = type_name(result.kind)
        raise ReplyTypeChanged(service=svc, given=given, wanted=type_name(wanted))
    note(tperrno, result.rcode)
    return TpReply(tperrno, result.rcode, decode_data(result.kind, data), cd)


__all__ = [
    "TPSTART_T",
    "TpReply",
    "tpacall",
    "tpcall",
    "tpcancel",
    "tpend",
    "tpget_timeout",
    "tpgetrply",
    "tpset_timeout",
    "tpstart",
    "tpstrerror",
]
