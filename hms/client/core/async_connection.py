"""The shell of asyncio: an event loop drives a connection's operations; there is no thread.

ZeroMQ's descriptors signal a change only, and any send or receive may take the signal: so after
each the socket is asked whether there is input, and as long as something came it is read again in
the loop's next round. The monitor's descriptor signals nothing before the first look at it.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any, Self, TypeVar

from hms.client.core import current_transaction
from hms.client.core.calls import Calls
from hms.client.core.link import State
from hms.client.core.operations import FOREVER, Mark, Outside, Steps, Wait
from hms.client.core.service_data import Data
from hms.client.core.service_reply import Reply
from hms.client.core.transport import Transport
from hms.client.core.transport_loop import guarded
from hms.errors.catalogue import IllegalState
from hms.errors.tree import HmsError

_LOGGER = logging.getLogger("hms.client")
TURNS_OF_A_FUTURE = 2
"""Rounds of the loop until the callbacks of a future that was told have run."""
_T = TypeVar("_T")
_Waiter = tuple[Callable[[], object], "asyncio.Future[None]"]


RUNNER: "ContextVar[asyncio.Task[Any] | None]" = ContextVar("hms_runner", default=None)
"""The task that calls the listener in which this code runs, also in a task that was made there."""


def my_runner() -> "asyncio.Task[Any] | None":
    """The task that asks, or the one that calls the listener that asks."""
    return RUNNER.get() or asyncio.current_task()


class AsyncConnection(Calls):
    """For the tasks of one loop, any number of them; options: see
    hms.client.core.connection_options.Options."""

    def __init__(self, address: str | Sequence[str], **options: Any) -> None:
        super().__init__(address, **options)
        self.lock = contextlib.nullcontext()  # between two steps nothing else runs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: dict[object, list[_Waiter]] = {}
        self._fds: tuple[int, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._turn_at = FOREVER
        self._will_read = False
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop in which it was opened."""
        self.check_awaited()
        assert self._loop is not None
        return self._loop

    def check_awaited(self) -> None:
        """IllegalState when it was never opened."""
        if self._loop is None:
            detail = "it was not awaited, so it is not open"
            raise IllegalState(what="the connection", detail=detail)

    # ---- open and close

    async def open(self) -> Self:
        """Connect; ConnectionRefused after connect_timeout_s, or the node's own refusal."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            await self.run(self.opening())
        return self

    def me(self) -> object:
        """The task that asks, or that calls the listener that asks."""
        return my_runner()

    def begin(self) -> None:
        """Begin to connect."""
        super().begin()
        self._come_by(0.0)

    async def close(self) -> None:
        """Wait for running listeners and for the confirmation of what was sent, settle what was
        received, and disconnect; behind a listener that asks for it. Confirmations have as long as
        in threads: see hms.connect()'s close()."""
        await self._close(is_hasty=False)

    async def _close(self, *, is_hasty: bool) -> None:
        if self._loop is not None:
            await self.run(self.closing(is_hasty=is_hasty))

    def stop(self, error: HmsError, linger_ms: int) -> None:
        """End for good."""
        super().stop(error, linger_ms)
        self._give_back()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: object, *_trace: object) -> None:
        await self._close(is_hasty=kind is not None)

    def transaction(self, timeout_s: float = 0, wait: str = "completed") -> Any:
        """A block that is one global transaction: it commits at its end, or rolls back by a fault.

        timeout_s: after so long it can only be rolled back, 0 never; wait: "completed", or "logged"
        to go on as soon as the decision is durable. TransactionRolledBack, TxMixed, TxHazard.
        """
        return current_transaction.blocks().AsyncBlock(self, timeout_s, wait)

    async def call(self, service: str, data: Data = None, timeout_s: float | None = None) -> Reply:
        """Run a service and wait for its reply; timeout_s None: as long as the service or the node
        says. ServiceTimeout, ServiceNotFound, ServerLost, ServiceHung; ServiceFailedReply when the
        service itself fails, with its reply as attribute."""
        return await self.run(self.asking_service(service, data, timeout_s))

    def call_async(
        self, service: str, data: Data = None, timeout_s: float | None = None
    ) -> "asyncio.Task[Reply]":
        """The same as a task: its reply can be awaited later."""
        return self.loop.create_task(self.call(service, data, timeout_s))

    # ---- operations

    async def run(self, steps: Steps[_T]) -> _T:
        """Drive an operation to its end; a cancellation is thrown into it, so that it cleans up."""
        try:
            step = next(steps)
            while True:
                try:
                    outcome = await self._done(step)
                except BaseException as fault:  # noqa: BLE001 - the operation decides
                    step = steps.throw(fault)
                else:
                    step = steps.send(outcome)
        except StopIteration as ended:
            result: _T = ended.value
            return result
        finally:
            self.flush()

    async def _done(self, step: Wait | Outside) -> object:
        self.flush()
        if isinstance(step, Wait):
            return await self._wait_for(*step)
        outcome = step.call()
        if step.gives_way:
            await asyncio.sleep(0)
        return await _own(outcome) if inspect.isawaitable(outcome) else outcome

    async def _wait_for(self, key: object, is_done: Callable[[], object], deadline: float) -> bool:
        while not is_done():
            left_s = deadline - monotonic()
            if left_s <= 0:
                return False
            woken = self.loop.create_future()
            timer = self.loop.call_later(left_s, _resolve, woken) if deadline < FOREVER else None
            waiter = is_done, woken
            self._waiters.setdefault(key, []).append(waiter)
            try:
                await woken
            finally:
                self._forget(key, waiter)
                if timer is not None:
                    timer.cancel()
        return True

    def _forget(self, key: object, waiter: _Waiter) -> None:
        waiting = self._waiters[key]
        waiting.remove(waiter)
        if not waiting:
            del self._waiters[key]

    # ---- what the carrier needs

    def _wake(self, key: object) -> None:
        keys = [key] if key is not None else list(self._waiters)
        for one in keys:
            for is_done, woken in self._waiters.get(one, ()):
                if is_done():
                    _resolve(woken)

    def _come_by(self, at: float) -> None:
        if at >= self._turn_at or self._loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._turn_at = at
        self._timer = self._loop.call_later(max(0.0, at - monotonic()), self._take_turn)

    def _take_turn(self) -> None:
        self._turn_at, self._timer = FOREVER, None
        at = self._safe_turn()
        if self.link.state is not State.ENDED:
            self._come_by(at)
        else:
            self.flush()
            self._give_back()

    def _watch(self, transport: Transport | None) -> None:
        for fd in self._fds:
            self.loop.remove_reader(fd)
        self._fds = ()
        if transport is not None:
            self._fds = transport.fd, transport.monitor_fd
            self.loop.add_reader(transport.fd, self._on_input)
            self.loop.add_reader(transport.monitor_fd, self._come_by, 0.0)

    def _on_input(self) -> None:
        """Read, and come back as long as there was something: the signal may not come again."""
        self._will_read = False
        if not self._take_in() and not self._will_read:
            self._will_read = True
            self.loop.call_soon(self._on_input)

    def _after_flush(self) -> None:
        calls, self.link.calls = self.link.calls, []
        for call in calls:
            self.loop.call_soon(self._call, call)

    def telling(self) -> Steps[None]:
        """Wait until the callbacks that are due have run."""
        mark = Mark()
        self.link.calls.append(partial(self._reached, mark, TURNS_OF_A_FUTURE))
        deadline = monotonic() + self.request_timeout_s
        if not (yield Wait(mark, lambda: mark.is_done, deadline)):
            raise self.too_late("callbacks of send_async()", self.request_timeout_s)

    def _reached(self, mark: Mark, turns: int) -> None:
        if turns:
            self.loop.call_soon(self._reached, mark, turns - 1)
            return
        mark.is_done = True
        self.link.woken.append(mark)
        self.flush()

    def _call(self, call: Callable[[], object]) -> None:
        """Call a function of the application, which may be a coroutine function."""
        outcome = guarded(call)
        if inspect.isawaitable(outcome):
            task = asyncio.ensure_future(_guarded(outcome))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def _resolve(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)


async def _own(outcome: Awaitable[object]) -> object:
    """Await something of the application's; its own cancellation is a failure, not ours."""
    try:
        return await outcome
    except asyncio.CancelledError as fault:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it was cancelled inside") from fault


async def _guarded(outcome: Awaitable[object]) -> None:
    try:
        await outcome
    except Exception:
        _LOGGER.exception("a callback of the application failed")
