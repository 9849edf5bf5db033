# ruff: noqa: ARG001 - Tmax's argument lists
"""The hms_ functions for producers, consumers and browsers; see tpmon.hms_functions."""

from typing import Any

from hms.client.browser import Browser
from hms.client.consumer import Consumer
from hms.client.destinations import Destination, Queue, Topic
from hms.client.message import Message
from hms.client.producer import Producer
from hms.client.session import Session
from hms.constants import (
    HMS_DLV_NON_PERSISTENT,
    HMS_DLV_PERSISTENT,
    HMS_DURABLE,
    HMS_QB_FIRST,
    HMS_QUEUE,
    HMS_TOPIC,
)
from hms.errors.catalogue import InvalidArgument, ReceiveTimeout
from tpmon.context import keeps_tperrno


@keeps_tperrno
def hms_create_producer(
    sess: Session,
    des: str,
    destype: int,
    name: str | None = None,
    flags: int = 0,
) -> Producer:
    """A producer for a destination of type HMS_QUEUE or HMS_TOPIC."""
    return sess.producer(_destination(des, destype), name=name or "")


def hms_create_sender(sess: Session, des: str, name: str | None = None, flags: int = 0) -> Producer:
    """A producer for a queue."""
    return hms_create_producer(sess, des, HMS_QUEUE, name, flags)


def hms_create_publisher(
    sess: Session, des: str, name: str | None = None, flags: int = 0
) -> Producer:
    """A producer for a topic."""
    return hms_create_producer(sess, des, HMS_TOPIC, name, flags)


@keeps_tperrno
def hms_close_producer(prod: Producer, flags: int = 0) -> None:
    """Close a producer."""
    prod.close()


hms_close_sender = hms_close_publisher = hms_close_producer


@keeps_tperrno
def hms_sendex(
    prod: Producer,
    msg: Message,
    dlvmode: int = HMS_DLV_PERSISTENT,
    priority: int = 0,
    ttl: int = 0,
    flags: int = 0,
) -> None:
    """Send; on success the message has its id. ttl is in seconds, 0 forever."""
    is_persistent = dlvmode == HMS_DLV_PERSISTENT
    prod.send(msg, persistent=is_persistent, ttl_s=ttl, priority=priority)


def hms_send(prod: Producer, msg: Message, flags: int = 0) -> None:
    """Send non-persistent, with priority 0, never to expire: as in Tmax."""
    hms_sendex(prod, msg, HMS_DLV_NON_PERSISTENT, 0, 0, flags)


# ---- consumers


@keeps_tperrno
def hms_create_consumer(
    sess: Session,
    des: str,
    destype: int,
    name: str | None,
    msgselector: str | None = None,
    svcname: str | None = None,
    flags: int = 0,
) -> Consumer:
    """A consumer; destype HMS_DURABLE: the durable subscriber called name of a topic.

    svcname: the service that is called per message, in an asynchronous session.
    """
    given: Any = {"selector": msgselector, "name": name or "", "listener": svcname}
    if destype == HMS_QUEUE:
        return sess.consumer(Queue(des), **given)
    if destype == HMS_DURABLE:
        given |= {"durable": _durable(name)}
    elif destype != HMS_TOPIC:
        raise InvalidArgument(what="destype", detail=f"{destype} is no destination type")
    return sess.subscriber(Topic(des), **given)


def hms_create_receiver(
    sess: Session,
    des: str,
    name: str | None,
    msgselector: str | None = None,
    svcname: str | None = None,
    flags: int = 0,
) -> Consumer:
    """A consumer of a queue."""
    return hms_create_consumer(sess, des, HMS_QUEUE, name, msgselector, svcname, flags)


def hms_create_subscriber(
    sess: Session,
    des: str,
    name: str | None,
    msgselector: str | None = None,
    svcname: str | None = None,
    flags: int = 0,
) -> Consumer:
    """A subscriber of a topic."""
    return hms_create_consumer(sess, des, HMS_TOPIC, name, msgselector, svcname, flags)


def hms_create_durable_subscriber(
    sess: Session,
    des: str,
    name: str,
    msgselector: str | None = None,
    svcname: str | None = None,
    flags: int = 0,
) -> Consumer:
    """The durable subscriber of a topic that is known by this name."""
    return hms_create_consumer(sess, des, HMS_DURABLE, name, msgselector, svcname, flags)


@keeps_tperrno
def hms_close_consumer(cons: Consumer, flags: int = 0) -> None:
    """Close a consumer; a durable subscription goes on without it."""
    cons.close()


hms_close_receiver = hms_close_subscriber = hms_close_durable_subscriber = hms_close_consumer


@keeps_tperrno
def hms_recvex(cons: Consumer, timeout: int = 0, flags: int = 0) -> Message:
    """The next message; waits so many seconds, 0 forever. ReceiveTimeout (TPETIME)."""
    message = cons.receive(timeout or None)
    if message is None:
        raise ReceiveTimeout(destination=str(cons.destination), timeout_s=timeout)
    return message


def hms_recv(cons: Consumer, flags: int = 0) -> Message:
    """The next message; waits forever."""
    return hms_recvex(cons, 0, flags)


# ---- browsers


@keeps_tperrno
def hms_create_browser(
    sess: Session, queue: str, msgselector: str | None = None, flags: int = 0
) -> Browser:
    """A browser of a queue; newest first, with HMS_QB_FIRST oldest first."""
    return sess.browser(Queue(queue), msgselector, oldest_first=bool(flags & HMS_QB_FIRST))


@keeps_tperrno
def hms_browser_nextmsg(br: Browser, flags: int = 0) -> Message | None:
    """The next message, or None at the end of the queue."""
    return br.next_message()


def hms_browser_get_msgselector(br: Browser) -> str:
    """The browser's selector, empty for none."""
    return br.selector


def hms_browser_get_queue(br: Browser) -> str:
    """The name of the browser's queue."""
    return br.queue.name


@keeps_tperrno
def hms_close_browser(br: Browser, flags: int = 0) -> None:
    """Close a browser."""
    br.close()


def _destination(name: str, destype: int) -> Destination:
    if destype not in (HMS_QUEUE, HMS_TOPIC):
        raise InvalidArgument(what="destype", detail=f"{destype} is neither queue nor topic")
    return Queue(name) if destype == HMS_QUEUE else Topic(name)


def _durable(name: str | None) -> str:
    if not name:
        raise InvalidArgument(what="name", detail="a durable subscriber needs one")
    return name


__all__ = [
    "hms_browser_get_msgselector",
    "hms_browser_get_queue",
    "hms_browser_nextmsg",
    "hms_close_browser",
    "hms_close_consumer",
    "hms_close_durable_subscriber",
    "hms_close_producer",
    "hms_close_publisher",
    "hms_close_receiver",
    "hms_close_sender",
    "hms_close_subscriber",
    "hms_create_browser",
    "hms_create_consumer",
    "hms_create_durable_subscriber",
    "hms_create_producer",
    "hms_create_publisher",
    "hms_create_receiver",
    "hms_create_sender",
    "hms_create_subscriber",
    "hms_recv",
    "hms_recvex",
    "hms_send",
    "hms_sendex",
]
