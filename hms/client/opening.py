"""Opening and closing at the node: producers and consumers. The connection's lock is held."""

from functools import partial
from time import monotonic, time_ns

from field_buffer.catalogue import IllegalState, NotSupported
from hms.client.destinations import Destination
from hms.client.inbox import Inbox
from hms.client.sending import Sender
from hms.client.session_state import SessionState
from hms.constants import AckMode
from tpmon.asked import OnLoss, Pending
from tpmon.client import Connection
from tpmon.link import State
from tpmon.protocol.structures import (
    CloseConsumer,
    CloseProducer,
    OpenConsumer,
    OpenProducer,
    Request,
)


def checked_kind(
    ack: AckMode, *, is_transacted: bool, is_xa: bool, is_asynchronous: bool
) -> AckMode:
    """The acknowledgement mode, if a session of that kind exists; IllegalState, NotSupported."""
    mode = AckMode(ack)
    if is_xa:
        raise NotSupported(feature="an XA session", instead="Use a transacted session.")
    if mode not in (AckMode.AUTO, AckMode.CLIENT):
        raise NotSupported(feature=f"AckMode.{mode.name}", instead="Use AckMode.AUTO or CLIENT.")
    if mode is AckMode.CLIENT and (is_transacted or is_asynchronous):
        kind = "a transacted" if is_transacted else "an asynchronous"
        raise IllegalState(what="session()", detail=f"{kind} session acknowledges by itself")
    if is_transacted and is_asynchronous:
        raise IllegalState(what="session()", detail="it cannot be transacted and asynchronous")
    return mode


def open_sender(
    connection: Connection, state: SessionState, destination: Destination, name: str
) -> Sender:
    """Open a producer."""
    link = connection.link
    number = link.new_handle()
    opening = OpenProducer(number, state.number, destination.kind, destination.name, name)
    sender = Sender(link, number, destination, monotonic, is_transacted=state.is_transacted)
    register = partial(state.register, sender, opening)
    pending = Pending("OpenProducer", OnLoss.REPEAT, then=register)
    connection.answer_to(link.request(opening, pending))
    return sender


def close_sender(connection: Connection, state: SessionState, sender: Sender) -> None:
    """Close a producer whose sends are settled."""
    if state.senders.pop(sender.number, None) is not None:
        _close(connection, CloseProducer(sender.number))


def open_inbox(
    connection: Connection,
    state: SessionState,
    opening: OpenConsumer,
    destination: Destination,
    notify: object,
) -> Inbox:
    """Open a consumer; it may be given messages before the reply."""
    link = connection.link
    inbox = Inbox(link, opening, destination, _now_ms, notify)
    link.receivers[inbox.number] = inbox
    state.inboxes[inbox.number] = inbox
    try:
        pending = Pending("OpenConsumer", OnLoss.REPEAT, then=inbox.opened)
        connection.answer_to(link.request(opening, pending))
    except BaseException:
        link.receivers.pop(inbox.number, None)
        state.inboxes.pop(inbox.number, None)
        raise
    return inbox


def close_inbox(connection: Connection, state: SessionState, inbox: Inbox) -> None:
    """Settle and close a consumer; unknown to the node if that closed it."""
    state.settle()
    state.give_back(inbox)
    connection.link.receivers.pop(inbox.number, None)
    state.inboxes.pop(inbox.number, None)
    connection.flush()
    if inbox.error is None:
        _close(connection, CloseConsumer(inbox.number))


def _close(connection: Connection, request: Request) -> None:
    if connection.link.state is State.UP:  # else the lost connection has closed it
        pending = Pending(type(request).__name__, OnLoss.DONE)
        connection.answer_to(connection.link.request(request, pending))


def _now_ms() -> int:
    """Milliseconds since 1970 UTC, as messages have their expiry."""
    return time_ns() // 1_000_000
