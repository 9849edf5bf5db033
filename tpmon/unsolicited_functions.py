"""Unsolicited messages: tpbroadcast, tpnotify and their family. A message is for clients that are
there now; one that has to get it in any case subscribes to an event (event_functions.py)."""

from typing import Any

from hms.client.core.service_data import Data, decode_data, encode_data
from hms.errors.catalogue import InvalidArgument
from hms.wire.structures import NoticeHead
from tpmon.constants import TPUNSOL_IGN, UNSOL_ANY, UNSOL_TPBROADCAST, UNSOL_TPNOTIFY
from tpmon.context import Context, current, keeps_tperrno
from tpmon.unsolicited import UnsolFunc, UnsolicitedMessage

__all__ = [
    "tpbroadcast",
    "tpchkunsol",
    "tpclearunsol",
    "tpgetclid",
    "tpgetunsol",
    "tpnotify",
    "tpsendtocli",
    "tpsetunsol",
    "tpsetunsol_flag",
]


@keeps_tperrno
def tpbroadcast(
    lnid: str = "", usrname: str = "", cltname: str = "", data: Data = None, flags: int = 0
) -> int:
    """Send data to the clients of this node whose names are these, empty for all; to how many."""
    _check("tpbroadcast()", flags)
    kind, encoded = encode_data(data)
    head = NoticeHead(UNSOL_TPBROADCAST, kind, 0, lnid or "", usrname or "", cltname or "")
    return current("tpbroadcast()").connection.notify(head, encoded)


@keeps_tperrno
def tpnotify(cltid: int, data: Data = None, flags: int = 0) -> None:
    """Send data to one client: the cltid of a request, or of tpgetclid(). HandleUnknown when it has
    gone."""
    _check("tpnotify()", flags)
    kind, encoded = encode_data(data)
    current("tpnotify()").connection.notify(NoticeHead(UNSOL_TPNOTIFY, kind, cltid), encoded)


def tpsendtocli(clid: int, data: Data = None, flags: int = 0) -> None:
    """The same as tpnotify()."""
    tpnotify(clid, data, flags)


@keeps_tperrno
def tpgetclid() -> int:
    """The id of this client, for tpnotify(); another one after a reconnect."""
    welcome = current("tpgetclid()").connection.link.welcome
    return welcome.connection if welcome is not None else 0


@keeps_tperrno
def tpsetunsol(func: UnsolFunc | None) -> UnsolFunc | None:
    """Have this called with data, length and flags of every unsolicited message, on a thread of the
    library; the one before. None: they are kept for tpgetunsol(), the latest 1,024."""
    return current("tpsetunsol()").unsolicited.handle(func)


@keeps_tperrno
def tpsetunsol_flag(flag: int) -> None:
    """TPUNSOL_IGN drops what comes; TPUNSOL_HND and TPUNSOL_POLL take it."""
    current("tpsetunsol_flag()").unsolicited.is_ignored = bool(flag & TPUNSOL_IGN)


@keeps_tperrno
def tpclearunsol() -> None:
    """Call no handler any more."""
    current("tpclearunsol()").unsolicited.handle(None)


@keeps_tperrno
def tpchkunsol() -> int:
    """How many unsolicited messages are kept."""
    return current("tpchkunsol()").unsolicited.count


@keeps_tperrno
def tpgetunsol(type: int = UNSOL_ANY, flags: int = 0) -> Any:  # noqa: A002, ARG001 - Tmax's
    """The oldest message that is kept, of a type if one is named; None when there is none."""
    message = current("tpgetunsol()").unsolicited.take(type)
    return None if message is None else message.data


def take_notice(context: Context, head: NoticeHead, data: bytes) -> None:
    """One came; on a thread of the library."""
    decoded = decode_data(head.kind, data)
    context.unsolicited.came(UnsolicitedMessage(head.what, decoded, len(data), head.client))


def _check(what: str, flags: int) -> None:
    if flags & ~0x29:  # TPNOBLOCK, TPNOTRAN, TPNOTIME: it neither waits nor takes part
        raise InvalidArgument(what=what, detail=f"flags {flags:#x} do not belong there")
