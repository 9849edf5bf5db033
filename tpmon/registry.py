"""The services of this process: functions with a name, what they are given and what they return."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from field_buffer.catalogue import InvalidArgument, NotSupported, ServiceNotFound, ServiceTaken
from tpmon.constants import TPEXIT, TPFAIL, TPSUCCESS
from tpmon.data import Data
from tpmon.monitored import check_service_name

if TYPE_CHECKING:
    from hms.client.message import Message

__all__ = [
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


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a service.

    data: what the caller sent, for a listener the message's body; message: the message, for a
    listener only; deadline: when the caller stops waiting, in seconds since 1970 UTC, or None.
    """

    data: Any = None
    message: "Message | None" = None
    name: str = ""
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceResult:
    """How a service ended and what it answers; made by tpreturn()."""

    rval: int
    rcode: int = 0
    data: Data = None


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


def tpforward(*_: object, **__: object) -> ServiceResult:
    """Refused: NotSupported."""
    raise NotSupported(feature="tpforward()", instead="Call it with tpcall() and return its data.")


class Registry:
    """Functions by the name of their service."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    @property
    def names(self) -> list[str]:
        """The services, in the order in which they were added."""
        return list(self._handlers)

    def add(self, name: str, handler: Handler) -> None:
        """Add a service; the same function twice is one. ServiceTaken, InvalidArgument."""
        check_service_name(name)
        if not callable(handler):
            raise InvalidArgument(what=f"service {name}", detail="it is not a function")
        if _is_async(handler):
            detail = "it is an async function; write a plain one, which may call asyncio.run()"
            raise InvalidArgument(what=f"service {name}", detail=detail)
        if self._handlers.setdefault(name, handler) is not handler:
            raise ServiceTaken(service=name)

    def remove(self, name: str) -> None:
        """Remove a service; ServiceNotFound."""
        if self._handlers.pop(name, None) is None:
            raise ServiceNotFound(service=name)

    def find(self, name: str) -> Handler:
        """The function of a service; ServiceNotFound."""
        handler = self._handlers.get(name)
        if handler is None:
            raise ServiceNotFound(service=name)
        return handler


registry = Registry()
"""What the modules of this process have registered."""


@overload
def service(name: str | None = None) -> Callable[[_H], _H]: ...


@overload
def service(name: _H) -> _H: ...


def service(name: str | _H | None = None) -> Any:
    """Make a function a service: @service("NAME"), or @service under the function's own name.

    The function takes a Request. Returning bytes, str, dict, a FieldBuffer, an hms.Message (its
    body) or None is TPSUCCESS, raising is TPFAIL; tpreturn() says both. ServiceTaken when another
    function has the name, InvalidArgument for an async function.
    """
    if name is not None and not isinstance(name, str):
        return service()(name)

    def register(function: _H) -> _H:
        own_name = getattr(function, "__name__", "")
        registry.add(name if isinstance(name, str) else own_name, function)
        return function

    return register


def _is_async(handler: Handler) -> bool:
    called = handler if inspect.isroutine(handler) else type(handler).__call__
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)
