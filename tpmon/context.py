"""What the tp functions keep per thread and per task: connection, outstanding calls, tperrno."""

import contextvars
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from hms.client.core.blocking_connection import Connection
from hms.client.core.conversation_state import ConversationState
from hms.client.core.pending_requests import Pending
from hms.errors.catalogue import NotConnected
from hms.errors.tree import HmsError
from tpmon.unsolicited import Unsolicited

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Outstanding(NamedTuple):
    """A call of tpacall(), and the kind of the data that it sent."""

    pending: Pending
    kind: int


class Context:
    """Made by tpstart(), gone with tpend(). A task shares the one of the task that started it.

    A server process has one of its own from the beginning, over the connection that brings its
    calls. block_time_s 0: a call waits as long as service or node say.
    """

    def __init__(self, connection: Connection, *, is_server: bool = False) -> None:
        self.connection = connection
        self.is_server = is_server
        self.calls: dict[int, Outstanding] = {}
        self.talks: dict[int, ConversationState] = {}
        self.subscriptions: dict[int, Any] = {}
        self.posts: dict[str, Any] = {}
        self.post_session: Any = None
        self.unsolicited = Unsolicited()
        self.calls_made = 0
        self.block_time_s = 0

    def new_descriptor(self) -> int:
        """A number for a call, a conversation or a subscription."""
        self.calls_made += 1
        return self.calls_made


_context: contextvars.ContextVar[Context | None] = contextvars.ContextVar("tpmon", default=None)
_tperrno: contextvars.ContextVar[int] = contextvars.ContextVar("tperrno", default=0)
_tpurcode: contextvars.ContextVar[int] = contextvars.ContextVar("tpurcode", default=0)


def current(what: str) -> Context:
    """The context of this thread or task; NotConnected before tpstart()."""
    context = _context.get()
    if context is None:
        raise NotConnected(what=what)
    return context


def find() -> Context | None:
    """The context of this thread or task, if there is one."""
    return _context.get()


enter: Callable[[Context | None], object] = _context.set
"""Make a context the one of this thread or task."""


def gettperrno() -> int:
    """The number of the last call's error in this thread or task, 0 when it went well."""
    return _tperrno.get()


def gettpurcode() -> int:
    """The rcode that the last service replied with."""
    return _tpurcode.get()


def note(tperrno: int, tpurcode: int | None = None) -> None:
    """Keep the numbers for gettperrno() and gettpurcode()."""
    _tperrno.set(tperrno)
    if tpurcode is not None:
        _tpurcode.set(tpurcode)


def keeps_tperrno(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let gettperrno() tell how the function ended."""

    @functools.wraps(function)
    def kept(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        _tperrno.set(0)
        try:
            return function(*args, **kwargs)
        except HmsError as error:
            _tperrno.set(error.tperrno)
            raise

    return kept


__all__ = [
    "gettperrno",
    "gettpurcode",
]
