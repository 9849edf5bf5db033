"""The driver for asyncio: an event loop drives a connection's operations; there is no thread.

ZeroMQ's descriptors signal a change only, and any send or receive may take the signal: so after
each the socket is asked whether there is input, and as long as something came it is read again in
the loop's next round. The monitor's descriptor signals nothing before the first look at it.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from hms.client.core.connection_options import Options
from hms.client.core.fork_detection import forbid_in_child
from hms.client.core.heartbeat import Heartbeat
from hms.client.core.link import Link, State
from hms.client.core.operations import FOREVER, Mark, Outside, Steps, Wait
from hms.client.core.transport import Transport
from hms.client.core.transport_loop import TransportLoop, guarded
from hms.errors.catalogue import IllegalState
from hms.errors.tree import HmsError

_LOGGER = logging.getLogger("hms.client")
_UNLOCKED = contextlib.nullcontext()
"""Between two steps nothing else runs."""
TURNS_OF_A_FUTURE = 2
"""Rounds of the loop until the callbacks of a future that was told have run."""
_T = TypeVar("_T")
_Waiter = tuple[Callable[[], object], "asyncio.Future[None]"]


RUNNER: "ContextVar[asyncio.Task[Any] | None]" = ContextVar("hms_runner", default=None)
"""The task that calls the listener in which this code runs, also in a task that was made there."""


def my_runner() -> "asyncio.Task[Any] | None":
    """The task that asks, or the one that calls the listener that asks."""
    return RUNNER.get() or asyncio.current_task()


class LoopDriver:
    """See the module."""

    def __init__(
        self,
        link: Link,
        addresses: Sequence[str],
        options: Options,
        main: "LoopDriver | None" = None,
    ) -> None:
        self.link, self._options, self._main = link, options, main
        self.lock: AbstractContextManager[Any] = _UNLOCKED
        forbid_in_child(self)
        self.loop = TransportLoop(link, addresses, options, self)
        self.flush, self.me = self.loop.flush, my_runner
        self._heartbeat = Heartbeat(self.loop)
        self._event_loop: asyncio.AbstractEventLoop | None = None
        if main is not None:
            self._event_loop = main.event_loop
        self._waiters: dict[object, list[_Waiter]] = {}
        self._fds: tuple[int, ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._turn_at = FOREVER
        self._will_read = False
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def is_awaited(self) -> bool:
        """Whether an event loop drives it."""
        return self._event_loop is not None

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which its connection was opened; IllegalState when it never was."""
        if self.lock is not _UNLOCKED:
            self._refuse()
        if self._event_loop is None:
            detail = "it was not awaited, so it is not open"
            raise IllegalState(what="the connection", detail=detail)
        return self._event_loop

    def _refuse(self) -> None:
        """ConnectionForked: its sockets and its event loop are the parent's."""
        with self.lock:
            raise AssertionError("only the lock of a forked child is another one")

    def enter_loop(self) -> None:
        """The running event loop drives it from now on."""
        self._event_loop = asyncio.get_running_loop()

    def begin(self) -> None:
        """Begin to connect."""
        self.loop.begin()
        self.come_by(0.0)

    def stop(self, error: HmsError, linger_ms: int) -> None:
        """End for good."""
        self.loop.stop(error, linger_ms)
        self.loop.give_back()

    def beside(self, link: Link, addresses: Sequence[str]) -> "LoopDriver":
        """Another driver for a link of the same client, in the same event loop."""
        return LoopDriver(link, addresses, self._options, self)

    # ---- operations

    async def run(self, steps: Steps[_T]) -> _T:
        """Drive an operation to its end; a cancellation is thrown into it, so that it cleans up."""
        if self.lock is not _UNLOCKED:
            self._refuse()
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
            return await self._wait_for(step.key, step.is_done, step.deadline)
        outcome = step.call()
        if step.gives_way:
            await asyncio.sleep(0)
        return await _own(outcome) if inspect.isawaitable(outcome) else outcome

    async def _wait_for(self, key: object, is_done: Callable[[], object], deadline: float) -> bool:
        loop = self.event_loop
        while not is_done():
            left_s = deadline - monotonic()
            if left_s <= 0:
                return False
            woken = loop.create_future()
            timer = loop.call_later(left_s, _resolve, woken) if deadline < FOREVER else None
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

    def call_mark(self, mark: Mark) -> bool:
        """Have the mark reached behind the callbacks that are due."""
        self.link.calls.append(partial(self._reached, mark, TURNS_OF_A_FUTURE))
        return True

    def _reached(self, mark: Mark, turns: int) -> None:
        if turns:
            self.event_loop.call_soon(self._reached, mark, turns - 1)
            return
        mark.is_done = True
        self.link.woken.append(mark)
        self.flush()

    # ---- what the transport loop needs

    is_polled = True
    """The event loop polls."""

    def wake(self, keys: Sequence[object]) -> None:
        """Wake the tasks that wait for one of these keys; None among them: all."""
        if self._main is not None:  # who waits for its answers waits there
            self._main.wake([*keys, self._main.link])
            if self._main.link.outbox:  # it was given back what has still to be sent
                self._main.come_by(0.0)
            return
        for one in list(self._waiters) if None in keys else keys:
            for is_done, woken in self._waiters.get(one, ()):
                if is_done():
                    _resolve(woken)

    def come_by(self, at: float) -> None:
        """Take a turn by then."""
        if at >= self._turn_at or self._event_loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._turn_at = at
        self._timer = self._event_loop.call_later(max(0.0, at - monotonic()), self._take_turn)

    def _take_turn(self) -> None:
        self._turn_at, self._timer = FOREVER, None
        at = self._heartbeat.turn()
        if self.link.state is not State.ENDED:
            self.come_by(at)
        else:
            self.flush()
            self.loop.give_back()

    def watch(self, transport: Transport | None) -> None:
        """Have the event loop watch its socket and its monitor."""
        loop = self.event_loop
        for fd in self._fds:
            loop.remove_reader(fd)
        self._fds = ()
        if transport is not None:
            self._fds = transport.fd, transport.monitor_fd
            loop.add_reader(transport.fd, self._on_input)
            loop.add_reader(transport.monitor_fd, self.come_by, 0.0)

    def _on_input(self) -> None:
        """Read, and come back as long as there was something: the signal may not come again."""
        self._will_read = False
        if not self.loop.take_in() and not self._will_read:
            self._will_read = True
            self.event_loop.call_soon(self._on_input)

    def after_flush(self) -> None:
        """Have the callbacks run in the event loop."""
        calls, self.link.calls = self.link.calls, []
        for call in calls:
            self.event_loop.call_soon(self._call, call)

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
