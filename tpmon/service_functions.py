"""The services of this process: functions with a name, what they are given and what they return."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from hms.client.core.service_data import Data, encode_data
from hms.client.message import Message
from hms.errors.catalogue import InvalidArgument, ServiceNotFound, ServiceTaken
from tpmon.constants import TPEXIT, TPFAIL, TPSUCCESS
from tpmon.scheduling.monitor_state import check_service_name

__all__ = [
    "TPSVCINFO",
    "Handler",
    "Registry",
    "Request",
    "ServiceResult",
    "registry",
    "service",
    "tpforward",
    "tpreturn",
]

_RCODES = range(-(2**63), 2**63)
TRANSACTIONS = ("", "required", "mandatory", "never")
TYPES = ("STRING", "CARRAY", "FIELD", "JSON", "NONE")


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a service.

    data: what the caller sent, for a listener the message's body; message: the message, for a
    listener only; deadline: when the caller stops waiting, in seconds since 1970 UTC, or None;
    cltid: who called, for tpnotify(); flags: TPCONV and who has control; cd: the conversation;
    user: who called, as a secured node has proved it, also where another service forwarded the
    call; "$node" for a server that the node started, empty on an open node and for a listener.
    """

    data: Any = None
    message: "Message | None" = None
    name: str = ""
    deadline: float | None = None
    cltid: int = 0
    flags: int = 0
    cd: int = 0
    user: str = ""

    @property
    def len(self) -> int:
        """The size of the data in bytes."""
        return len(encode_data(self.data)[1])


TPSVCINFO = Request
"""Tmax's name of it."""


@dataclass(frozen=True, slots=True)
class ServiceResult:
    """How a service ended and what it answers; made by tpreturn() and tpforward()."""

    rval: int
    rcode: int = 0
    data: Data = None
    forward: str = ""


Handler = Callable[[Request], Any]
_H = TypeVar("_H", bound=Handler)


def tpreturn(rval: int, rcode: int = 0, data: Data = None, flags: int = 0) -> ServiceResult:  # noqa: ARG001 - Tmax's
    """The result for a service to return; it does not jump out of it as in C.

    rval: TPSUCCESS, TPFAIL, or TPEXIT, which fails and ends the server. Raises InvalidArgument.
    """
    if rval not in (TPSUCCESS, TPFAIL, TPEXIT):
        raise InvalidArgument(what="tpreturn()", detail=f"rval {rval!r} is not TPSUCCESS or TPFAIL")
    if not isinstance(rcode, int) or rcode not in _RCODES:
        raise InvalidArgument(what="tpreturn()", detail=f"rcode {rcode!r} is no 64-bit integer")
    return ServiceResult(rval, int(rcode), data)


def tpforward(svc: str, data: Data = None, flags: int = 0) -> ServiceResult:  # noqa: ARG001 - Tmax's
    """The result for a service to return that hands its call on: the other service answers the
    caller, whose deadline stays. Not for conversations. Raises InvalidArgument."""
    check_service_name(svc)
    return ServiceResult(TPSUCCESS, 0, data, svc)


@dataclass(frozen=True, slots=True)
class Offer:
    """A service. takes: the types of data that are let through, all when it is empty; transaction:
    whether it needs one, "" to take what there is; is_conversation: it is a generator, which talks
    with its caller."""

    handler: Handler
    takes: tuple[str, ...] = ()
    transaction: str = ""
    is_conversation: bool = False

    @property
    def signature(self) -> str:
        """What the node compares with other servers of the service."""
        kind = "conversation" if self.is_conversation else "request"
        return f"{kind} of {' or '.join(self.takes)}" if self.takes else kind


class Registry:
    """Functions by the name of their service."""

    def __init__(self) -> None:
        self._offers: dict[str, Offer] = {}
        self.transactional: set[str] = set()
        """Those that do not just take the transaction that there is."""
        self.get = self._offers.get
        """What is known of a service; None when there is none of that name."""

    @property
    def names(self) -> list[str]:
        """The services, in the order in which they were added."""
        return list(self._offers)

    def add(
        self, name: str, handler: Handler, takes: str | Iterable[str] = (), transaction: str = ""
    ) -> None:
        """Add a service; the same function twice is one. ServiceTaken, InvalidArgument."""
        check_service_name(name)
        if not callable(handler):
            raise InvalidArgument(what=f"service {name}", detail="it is not a function")
        if inspect.isasyncgenfunction(_called(handler)):
            detail = "it is an async generator; a conversation is a plain one"
            raise InvalidArgument(what=f"service {name}", detail=detail)
        if transaction not in TRANSACTIONS:
            detail = f"transaction={transaction!r} is none of {', '.join(TRANSACTIONS[1:])}"
            raise InvalidArgument(what=f"service {name}", detail=detail)
        talks = inspect.isgeneratorfunction(_called(handler))
        offer = Offer(handler, _checked_types(name, takes), transaction, talks)
        if transaction and offer.is_conversation:
            raise InvalidArgument(what=f"service {name}", detail="a conversation has none")
        if self._offers.setdefault(name, offer).handler is not handler:
            raise ServiceTaken(service=name)
        if self._offers[name].transaction:
            self.transactional.add(name)

    def remove(self, name: str) -> None:
        """Remove a service; ServiceNotFound."""
        if self._offers.pop(name, None) is None:
            raise ServiceNotFound(service=name, at="this process")
        self.transactional.discard(name)

    def find(self, name: str) -> Handler:
        """The function of a service; ServiceNotFound."""
        return self.offer(name).handler

    def signature(self, name: str) -> str:
        """What the node compares with other servers of the service; ServiceNotFound."""
        return self.offer(name).signature

    def offer(self, name: str) -> Offer:
        """All that is known of a service; ServiceNotFound."""
        offer = self._offers.get(name)
        if offer is None:
            raise ServiceNotFound(service=name, at="this process")
        return offer


registry = Registry()
"""What the modules of this process have registered."""


@overload
def service(
    name: str | None = None, *, takes: str | Iterable[str] = (), transaction: str = ""
) -> Callable[[_H], _H]: ...


@overload
def service(name: _H) -> _H: ...


def service(
    name: str | _H | None = None, *, takes: str | Iterable[str] = (), transaction: str = ""
) -> Any:
    """Make a function a service: @service("NAME"), or @service under the function's own name.

    The function takes a Request. Returning bytes, str, dict, a FieldBuffer, an hms.Message (its
    body) or None is TPSUCCESS, raising is TPFAIL; tpreturn() says both. A generator function is a
    conversation. takes: the only types of data that are let through (STRING, CARRAY, FIELD, JSON,
    NONE). transaction: "required" runs it in its caller's transaction or in one of its own, which
    for a listener takes the message; "mandatory" and "never" refuse the other case; else it runs
    in its caller's, if there is one. An async function runs on the server's one event loop; calls
    run at once when the server has several threads. ServiceTaken when another function has the
    name, InvalidArgument for an async generator.
    """
    if name is not None and not isinstance(name, str):
        return service()(name)

    def register(function: _H) -> _H:
        own_name = getattr(function, "__name__", "")
        known = name if isinstance(name, str) else own_name
        registry.add(known, function, takes, transaction)
        return function

    return register


def _checked_types(name: str, takes: str | Iterable[str]) -> tuple[str, ...]:
    types = (takes,) if isinstance(takes, str) else tuple(takes)
    unknown = [one for one in types if one not in TYPES]
    if unknown:
        detail = f"takes={unknown[0]!r} is none of {', '.join(TYPES)}"
        raise InvalidArgument(what=f"service {name}", detail=detail)
    return tuple(sorted(types))


def _called(handler: Handler) -> Any:
    return handler if inspect.isroutine(handler) else type(handler).__call__
