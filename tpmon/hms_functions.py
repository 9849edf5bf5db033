# ruff: noqa: ARG001 - Tmax's argument lists
"""The hms_ functions of Tmax, over the connection that tpstart() opened in this thread or task.

Names, argument order and numbers are Tmax's; lengths, out-pointers and NULL results are not: a
function returns its result and raises its error, and gettperrno() tells the number as well.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from field_buffer.types import FieldValue, infer_type
from hms.client.consumer import Acknowledge
from hms.client.destinations import Topic
from hms.client.message import Message
from hms.client.session import Session, open_session
from hms.constants import (
    HMS_ACK_ONE,
    HMS_ACK_UPTHROUGH,
    HMS_AUTO_ACK,
    HMS_NORMAL_SESSION,
    HMS_TRANSACTED_SESSION,
    AckMode,
)
from hms.errors.catalogue import IllegalState, InvalidArgument
from tpmon import hms_client_functions
from tpmon.context import current, keeps_tperrno
from tpmon.hms_client_functions import *  # noqa: F403 - the other half of these functions


@keeps_tperrno
def hms_create_session(
    hms: str,
    transacted: int = HMS_NORMAL_SESSION,
    ackmode: int = HMS_AUTO_ACK,
    flags: int = 0,
) -> Session:
    """A session; transacted is 0 or HMS_TRANSACTED_SESSION. hms is the HMS's name: every node of
    this version has one, so any name does."""
    if transacted not in (HMS_NORMAL_SESSION, HMS_TRANSACTED_SESSION):
        detail = f"transacted is {transacted}"
        raise InvalidArgument(what="hms_create_session()", detail=detail)
    return _session(hms, ackmode, is_transacted=transacted == HMS_TRANSACTED_SESSION)


@keeps_tperrno
def hms_create_xa_session(hms: str, flags: int = 0) -> Session:
    """A session that works in the distributed transactions: F-B6; outside of one it acknowledges by
    itself."""
    return _session(hms, HMS_AUTO_ACK, is_xa=True)


@keeps_tperrno
def hms_create_async_session(
    hms: str,
    func: Callable[[Session], None] | None = None,
    flags: int = 0,
) -> Session:
    """A session whose consumers have a service called per message; func: when it ends by itself."""
    session = _session(hms, HMS_AUTO_ACK, is_asynchronous=True)
    if func is not None:
        session.state.on_end = partial(func, session)
    return session


def _session(hms: str, ackmode: int, **kind: bool) -> Session:
    if not isinstance(hms, str):
        raise InvalidArgument(what="hms", detail=f"a {type(hms).__name__} is no name")
    try:
        mode = AckMode(ackmode)
    except ValueError as fault:
        raise InvalidArgument(what="ackmode", detail=str(fault)) from fault
    connection = current("hms_create_session()").connection
    return open_session(connection, ack=mode, **kind)


@keeps_tperrno
def hms_close_session(sess: Session, flags: int = 0) -> None:
    """Close; a transaction is rolled back."""
    sess.close()


@keeps_tperrno
def hms_commit(sess: Session, flags: int = 0) -> None:
    """Commit the local transaction."""
    sess.commit()


@keeps_tperrno
def hms_rollback(sess: Session, flags: int = 0) -> None:
    """Roll the local transaction back."""
    sess.rollback()


@keeps_tperrno
def hms_recover(sess: Session, flags: int = 0) -> None:
    """Have what was not acknowledged delivered again."""
    sess.recover()


@keeps_tperrno
def hms_unsubscribe_durable_subscriber(
    sess: Session,
    des: str,
    name: str,
    flags: int = 0,
) -> None:
    """End a durable subscription."""
    sess.unsubscribe(Topic(des), name)


# ---- messages


@keeps_tperrno
def hms_alloc(sess: Session, size: int = 0) -> Message:
    """An empty message; it grows by itself."""
    return Message()


def hms_free(msg: Message) -> None:
    """Nothing; kept for the reader's eye."""


@keeps_tperrno
def hms_set_property(
    msg: Message,
    name: str,
    type: int,  # noqa: A002 - Tmax's name
    value: Any,
) -> None:
    """Add or replace a property of one of the types HMS_CHAR to HMS_CARRAY."""
    msg.properties.set_typed(name, type, value)


@keeps_tperrno
def hms_get_property(msg: Message, name: str) -> tuple[int, FieldValue]:
    """Type and value of a property, also of a reserved one; PropertyNotFound."""
    value = msg.property(name)
    return int(infer_type(value, name)), value


@keeps_tperrno
def hms_set_body(msg: Message, data: bytes) -> None:
    """Set the body."""
    msg.body = data


@keeps_tperrno
def hms_get_body(msg: Message) -> bytes:
    """The body's bytes."""
    return msg.body_bytes


@keeps_tperrno
def hms_ack(msg: Message, flags: int = HMS_ACK_ONE) -> None:
    """Acknowledge the message; with HMS_ACK_UPTHROUGH all that its consumer received up to it."""
    if flags == HMS_ACK_UPTHROUGH:
        _acknowledge_upthrough(msg)
    elif flags == HMS_ACK_ONE:
        msg.ack()
    else:
        raise InvalidArgument(what="hms_ack()", detail=f"flags is {flags}")


def _acknowledge_upthrough(msg: Message) -> None:
    acknowledge = msg._acknowledge  # noqa: SLF001 - set by the consumer
    if not isinstance(acknowledge, Acknowledge):
        raise IllegalState(what="hms_ack()", detail="the message was not received in a session")
    acknowledge.upthrough(msg)


__all__ = [
    "hms_ack",
    "hms_alloc",
    "hms_close_session",
    "hms_commit",
    "hms_create_async_session",
    "hms_create_session",
    "hms_create_xa_session",
    "hms_free",
    "hms_get_body",
    "hms_get_property",
    "hms_recover",
    "hms_rollback",
    "hms_set_body",
    "hms_set_property",
    "hms_unsubscribe_durable_subscriber",
]
__all__ += hms_client_functions.__all__
