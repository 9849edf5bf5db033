"""The comfortable layer: `with connection.transaction()`, and @transactional for functions.

    with connection.transaction(timeout_s=30):
        hms.rm("bank").execute("UPDATE …")

Leaving the block commits, an exception that leaves it rolls back.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from hms.client.core import current_transaction, tracing
from hms.client.core.arguments import check_seconds, check_word, shown
from hms.errors.catalogue import InvalidArgument, TxInvalid, TxProtocolError
from tpmon import context
from tpmon.tx.connection_place import place_of
from tpmon.tx.transaction import Transaction, current

if TYPE_CHECKING:
    from hms.client.core.requests import AnyConnection

__all__ = ["AsyncBlock", "AsyncTransaction", "Block", "rm", "transactional"]

REQUIRES = ("required", "requires_new", "supports", "mandatory", "never")
_F = TypeVar("_F", bound=Callable[..., Any])


class Block:
    """One transaction for the length of a block; it is the thread's own meanwhile.

    wait: "completed" leaves the block when it is committed everywhere, "logged" when the decision
    is durable.
    """

    def __init__(
        self, connection: "AnyConnection", timeout_s: float, wait: str = "completed"
    ) -> None:
        try:
            check_word("wait", wait, ("completed", "logged"))
            check_seconds("timeout_s", timeout_s)
        except InvalidArgument as fault:
            raise TxInvalid(what=fault.what, detail=fault.detail) from fault
        self._place = place_of(connection)
        self._timeout_s = timeout_s
        self._is_waited = wait == "completed"
        self._transaction: Transaction | None = None
        self._connection = connection
        self._span: tracing.Span | None = None
        self._active: AbstractContextManager[None] = nullcontext()

    def __enter__(self) -> Transaction:
        made = self.begin()
        current_transaction.enter(made)
        if self._span is not None:
            self._active = self._span.active()
            self._active.__enter__()
        return made

    def begin(self) -> Transaction:
        """Begin it; whose it is stays open."""
        if current() is not None:
            raise TxProtocolError(what="transaction()", detail="one is going on here already")
        if tracing.tracer is not None:
            self._span = tracing.tracer.begin("transaction", "")
        tell = None if self._span is None else self._span.event
        made = self._transaction = Transaction(self._place, self._timeout_s, tell=tell)
        made.enlist_all(current_transaction.sessions(self._connection))
        return made

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._active.__exit__(None, None, None)
        span = self._span
        with tracing.running(span) if span is not None else nullcontext():
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        transaction = self._transaction
        assert transaction is not None
        current_transaction.enter(None)
        if transaction.is_ended:
            return
        if error is not None:
            transaction.rollback()
            return
        try:
            transaction.commit(is_waited=self._is_waited)
        except TxProtocolError:  # calls are outstanding: nobody can end it after the block
            transaction.rollback()
            raise


class AsyncTransaction:
    """A transaction for asyncio: whatever may wait runs in a thread beside the loop."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction

    async def rm(self, name: str) -> Any:
        """The connection to a resource manager; it blocks, so use it in a thread too."""
        return await asyncio.to_thread(self.transaction.rm, name)

    async def enlist(self, resource: Any) -> Any:
        """Let a resource manager, or an XA session, take part."""
        return await asyncio.to_thread(self.transaction.enlist, resource)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transaction, name)


class AsyncBlock:
    """The same for asyncio."""

    def __init__(
        self, connection: "AnyConnection", timeout_s: float, wait: str = "completed"
    ) -> None:
        self._block = Block(connection, timeout_s, wait)

    async def __aenter__(self) -> AsyncTransaction:
        made = await asyncio.to_thread(self._block.begin)
        current_transaction.enter(made)
        return AsyncTransaction(made)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        current_transaction.enter(None)
        ending = asyncio.ensure_future(asyncio.to_thread(self._block.__exit__, kind, error, trace))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:  # its thread may not even have begun, and it has to end
            await asyncio.wait([ending])
            ending.exception()  # looked at: the cancellation is what is raised
            raise


def rm(name: str) -> Any:
    """The connection to [rm.NAME] whose work belongs to the transaction of this thread or task.

    TxProtocolError outside a transaction; ResourceUnknown, ResourceUnavailable, XaError.
    """
    transaction = current()
    if transaction is None:
        raise TxProtocolError(what=f"rm({shown(name)})", detail="no transaction is going on here")
    return transaction.rm(name)


def transactional(
    requires: str = "required", *, timeout_s: float = 0, connection: "AnyConnection | None" = None
) -> Callable[[_F], _F]:
    """Let a function run in a transaction: of its caller, or one of its own.

    requires: "required" joins or begins, "requires_new" always begins (the caller's is suspended),
    "supports" takes what there is, "mandatory" and "never" refuse the other case. connection: where
    it begins, that of tpstart() or of the server when it is not given. A coroutine function is
    given a transaction of its event loop's connection.
    """
    if requires not in REQUIRES:
        detail = f"{requires!r} is none of {', '.join(REQUIRES)}"
        raise TxInvalid(what="@transactional", detail=detail)

    def decorate(function: _F) -> _F:
        if inspect.iscoroutinefunction(function):
            return _async(function, requires, timeout_s, connection)  # type: ignore[return-value]

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            outer = current()
            if not _begins(requires, outer, function.__name__):
                return function(*args, **kwargs)
            _suspend(outer)
            try:
                with Block(connection or _connection(), timeout_s):
                    return function(*args, **kwargs)
            finally:
                _resume(outer)

        return run  # type: ignore[return-value]

    return decorate


def _async(
    function: Callable[..., Any],
    requires: str,
    timeout_s: float,
    connection: "AnyConnection | None",
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        outer = current()
        if not _begins(requires, outer, function.__name__):
            return await function(*args, **kwargs)
        await asyncio.to_thread(_suspend, outer)
        current_transaction.enter(None)
        try:
            async with AsyncBlock(connection or _connection(), timeout_s):
                return await function(*args, **kwargs)
        finally:
            await asyncio.to_thread(_resume, outer)
            current_transaction.enter(outer)

    return run


def _begins(requires: str, outer: Transaction | None, name: str) -> bool:
    """Whether a new transaction is needed; TxProtocolError when there is one too many or few."""
    if requires == "mandatory" and outer is None:
        raise TxProtocolError(what=name, detail="it must be called in a transaction")
    if requires == "never" and outer is not None:
        raise TxProtocolError(what=name, detail="it must not be called in a transaction")
    return requires == "requires_new" or (requires == "required" and outer is None)


def _suspend(outer: Transaction | None) -> None:
    if outer is not None:
        outer.suspend()
    current_transaction.enter(None)


def _resume(outer: Transaction | None) -> None:
    if outer is not None:
        outer.resume()
    current_transaction.enter(outer)


def _connection() -> "AnyConnection":
    return context.current("@transactional").connection
