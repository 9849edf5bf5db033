"""Which transaction the work of this thread or task belongs to.

The transaction manager stands above the client (tpmon.tx). It plugs its blocks in with provide(),
so that connection.transaction() finds them, and only who uses one loads it.
"""

import contextlib
import contextvars
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

__all__ = ["Blocks", "Transaction", "blocks", "current", "enter", "opened", "outside", "provide"]

Then = Callable[[Any], None]
"""Is called with a Pending that is done."""


class Transaction(Protocol):
    """A global transaction, as the client's core needs it."""

    is_ended: bool

    def enlist(self, resource: Any) -> Any:
        """Let a resource manager, or an XA session, take part."""

    def carry(self, link: Any, then: Then) -> tuple[bytes, Then]:
        """Its name, to go with a call over that link, and who gets the answer."""


class Blocks(Protocol):
    """What begins transactions for the length of a block."""

    def Block(self, connection: Any, timeout_s: float, wait: str) -> Any:  # noqa: N802 - a class
        """For threads."""

    def AsyncBlock(self, connection: Any, timeout_s: float, wait: str) -> Any:  # noqa: N802 - a class
        """For asyncio."""


_providers: list[Callable[[], Blocks]] = []


def provide(load: Callable[[], Blocks]) -> None:
    """Where connection.transaction() finds its blocks; load is called when one is first used."""
    _providers[:] = [load]


def blocks() -> Blocks:
    """What provide() named."""
    return _providers[0]()


_transaction: contextvars.ContextVar[Transaction | None] = contextvars.ContextVar(
    "transaction", default=None
)


_sessions: contextvars.ContextVar["weakref.WeakSet[Any] | None"] = contextvars.ContextVar(
    "xa_sessions", default=None
)


def opened(session: Any) -> None:
    """An XA session was opened in this thread: its work joins the thread's transactions."""
    known = _sessions.get()
    if known is None:
        known = weakref.WeakSet()
        _sessions.set(known)
    known.add(session)
    transaction = current()
    if transaction is not None:
        transaction.enlist(session)


def sessions(connection: Any) -> list[Any]:
    """The XA sessions of this thread that join a transaction of a connection: all that are open on
    it, and those of other connections that work in no branch of somebody else's. What was lost for
    good with its connection, and was not closed, joins none."""
    known = [s for s in _sessions.get() or () if not (s.state.is_closed or s.requests.is_ended)]
    return [s for s in known if s.connection is connection or not s.resource.is_working]


def current() -> Transaction | None:
    """The transaction of this thread or task, if it is in one."""
    transaction = _transaction.get()
    return None if transaction is None or transaction.is_ended else transaction


def enter(transaction: Transaction | None) -> None:
    """Make it the one of this thread or task."""
    _transaction.set(transaction)


@contextlib.contextmanager
def outside(*, is_it: bool = True) -> Iterator[None]:
    """What is done in the block belongs to no transaction, if that is wanted (TPNOTRAN)."""
    token = _transaction.set(None) if is_it else None
    try:
        yield
    finally:
        if token is not None:
            _transaction.reset(token)
