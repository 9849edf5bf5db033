"""Events: tppost and tpsubscribe. An event is a topic of its name, so that all that holds for
topics holds for events: strings with wildcards, durable subscriptions, selectors.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from field_buffer import FieldBuffer
from hms.client.core.service_data import Data
from hms.errors.catalogue import CallDescriptorUnknown, InvalidArgument
from tpmon.constants import TPEV_PROC, TPEV_SVC, UNSOL_TPPOST
from tpmon.context import Context, current, keeps_tperrno
from tpmon.unsolicited import UnsolicitedMessage

if TYPE_CHECKING:
    from hms.client.message import Message

__all__ = ["TPEVCTL", "tppost", "tpsubscribe", "tpsubscribe2", "tpunsubscribe"]

FIELD_TYPE = "FIELD"
"""The JMSType of a message that is a field buffer: a filter can ask for its fields."""


@dataclass(slots=True)
class TPEVCTL:
    """How events reach a subscriber. ctl_flags TPEV_SVC: a call of the service svc for each;
    TPEV_PROC: as unsolicited messages. name1: the name of a durable subscription, if any."""

    ctl_flags: int = TPEV_PROC
    svc: str = ""
    name1: str = ""


@keeps_tperrno
def tppost(eventname: str, data: Data = None, flags: int = 0) -> None:  # noqa: ARG001 - Tmax's
    """Publish an event, persistent; with nobody subscribed it is dropped. DestinationNotFound."""
    from hms.client.destinations import Topic  # noqa: PLC0415 - only for events

    context = current("tppost()")
    producer = context.posts.get(eventname)
    if producer is None:
        producer = _session(context).producer(Topic(eventname))
        context.posts[eventname] = producer
    producer.send(_message(data))


@keeps_tperrno
def tpsubscribe(
    eventexpr: str,
    filter: str | None = None,  # noqa: A002 - Tmax's
    ctl: TPEVCTL | None = None,
    flags: int = 0,  # noqa: ARG001 - Tmax's
) -> int:
    """Subscribe to an event, or to several by a wildcard; its descriptor, for tpunsubscribe().
    filter: a message selector. Without ctl they come as unsolicited messages."""
    from hms.client.session import open_session  # noqa: PLC0415 - only for events

    context, wanted = current("tpsubscribe()"), ctl or TPEVCTL()
    is_service = wanted.ctl_flags == TPEV_SVC
    if wanted.ctl_flags not in (TPEV_SVC, TPEV_PROC) or is_service is not bool(wanted.svc):
        raise InvalidArgument(what="tpsubscribe()", detail="give TPEV_SVC and svc, or TPEV_PROC")
    session = open_session(context.connection, is_asynchronous=is_service)
    try:
        _subscribe(context, session, eventexpr, filter, wanted)
    except BaseException:
        session.close()
        raise
    sd = context.new_descriptor()
    context.subscriptions[sd] = session
    return sd


def _subscribe(
    context: Context, session: Any, event: str, selector: str | None, wanted: TPEVCTL
) -> None:
    from hms.client.destinations import Topic  # noqa: PLC0415 - only for events

    options: dict[str, Any] = {"selector": selector, "listener": wanted.svc or None}
    if wanted.name1:
        consumer = session.subscriber(Topic(event), durable=wanted.name1, **options)
    else:
        consumer = session.consumer(Topic(event), **options)
    if not wanted.svc:
        consumer.listen(lambda message: _came(context, message))


def tpsubscribe2(eventexpr: str, svcname: str, flags: int = 0) -> int:
    """Have a service called for every event."""
    return tpsubscribe(eventexpr, None, TPEVCTL(TPEV_SVC, svcname), flags)


@keeps_tperrno
def tpunsubscribe(sd: int, flags: int = 0) -> None:  # noqa: ARG001 - Tmax's
    """End a subscription; a durable one goes on collecting."""
    session = current("tpunsubscribe()").subscriptions.pop(sd, None)
    if session is None:
        raise CallDescriptorUnknown(cd=sd)
    session.close()


def _session(context: Context) -> Any:
    """The session that posts of a context go through."""
    from hms.client.session import open_session  # noqa: PLC0415 - only for events

    if context.post_session is None:
        context.post_session = open_session(context.connection)
    return context.post_session


def _message(data: Data) -> "Message":
    from hms.client.message import Message  # noqa: PLC0415 - only for events

    if isinstance(data, FieldBuffer):
        return Message(data, type=FIELD_TYPE)
    if isinstance(data, str):
        return Message.text(data)
    if isinstance(data, dict):
        return Message.map(data)
    return Message(bytes(data)) if data is not None else Message()


def _came(context: Context, message: "Message") -> None:
    data: Any = message.body
    if message.type == FIELD_TYPE:
        data = FieldBuffer(message.properties)
    context.unsolicited.came(UnsolicitedMessage(UNSOL_TPPOST, data, len(message.body_bytes)))
