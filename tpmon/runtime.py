"""A server process: it connects, offers the services of its modules and runs their calls.

Handlers run in the main thread, one at a time, so that they need no locks and signals reach them;
with more threads so many run at once, the main thread being one of them. Coroutines of async
handlers run on one event loop, and the thread of the call waits for them.

While a thread waits for a call it reads the socket itself: to be handed one by another thread would
cost a wake-up of 20 to 60 µs. What a connection brought is answered on that same connection: after
a reconnect the node has given the call up and uses its number anew.
"""

import contextlib
import enum
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from hms.client.core.blocking_connection import Connection
from hms.client.core.link import State
from hms.client.core.pending_requests import OnLoss, own_copy
from hms.errors.catalogue import IllegalState, ServiceModuleError
from hms.errors.tree import HmsError
from hms.wire.structures import InvokeHead, Unadvertise, Welcome
from tpmon.context import Context, enter
from tpmon.environment import SECRET_VARIABLE
from tpmon.event_loop import EventLoop
from tpmon.invocation import Outcome, invoke
from tpmon.module_loading import begin, end, load, put_first
from tpmon.service_conversation import speaking
from tpmon.service_functions import Handler, Registry, registry

__all__ = ["Server", "tpadvertise", "tpunadvertise"]

LEAVE_TIMEOUT_S = 5.0
"""How long the node may take to know that the services are offered no more."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOGGER = logging.getLogger("tpmon.server")
_servers: "list[Server]" = []


class _Mark(enum.Enum):
    """What the queue holds besides calls."""

    STOP = "leave after the current call"
    LAST = "no call comes behind this"


class _Invocation(msgspec.Struct, frozen=True):
    """A call, and the login under which it came."""

    head: InvokeHead
    data: bytes
    login: Welcome | None


class Server:
    """Offers the services that modules register, until stop() or a signal.

    modules: their names; address: of the node, or several; name: the [server.NAME] of a process
    that the node started; python_path: folders where modules are looked for first; threads: so
    many calls run at once; on_serving is called when all services are offered.
    """

    def __init__(
        self,
        modules: str | Sequence[str] = (),
        address: str | Sequence[str] = "tcp://127.0.0.1:7700",
        name: str = "",
        python_path: Sequence[str | os.PathLike[str]] = (),
        *,
        threads: int = 1,
        on_serving: Callable[[], None] = lambda: None,
        services: Registry = registry,
        connect: Callable[..., Connection] = Connection,
    ) -> None:
        self._modules = [modules] if isinstance(modules, str) else list(modules)
        self._address = address
        self._name = name
        self._python_path = python_path
        self._threads = threads
        self._fault: BaseException | None = None
        self._on_serving = on_serving
        self._services = services
        self._connect = connect
        self._connection: Connection
        self._context: Context
        self._loop: EventLoop
        self._invocations: queue.SimpleQueue[_Invocation | _Mark] = queue.SimpleQueue()
        self._interrupt: Callable[[], None] = lambda: None

    def run(self) -> None:
        """Load the modules, connect, and serve until stop(), SIGTERM or SIGINT.

        Signals are heard when this is the main thread; a second one ends the process at once.
        Raises ServiceModuleError, ServiceTaken, ConnectionRefused, or why it was lost for good.
        """
        put_first(self._python_path)
        loaded = load(self._modules)
        secret = bytes.fromhex(os.environ.pop(SECRET_VARIABLE, ""))
        self._connection = self._connect(
            self._address,
            client_secret=secret,
            client_name=f"{self._name}:{os.getpid()}" if self._name else ",".join(self._modules),
            is_server=True,
            exception_listener=self._on_error,
        )
        self._connection.on_invoke(self._on_invoke)
        self._interrupt = self._connection.driver.interrupt
        self._context = Context(self._connection, is_server=True)
        with (
            self._hearing_signals(),
            self._connection.open(),
            self._running(),
            EventLoop() as self._loop,
        ):
            enter(self._context)
            begin(loaded)
            try:
                self._offer()
                self._serve()
            finally:
                self._leave()
                end(loaded)

    def stop(self) -> None:
        """Finish the current calls and end run(); from any thread or signal handler."""
        self._invocations.put(_Mark.STOP)
        self._interrupt()

    def advertise(self, name: str, handler: Handler) -> None:
        """Offer one more service while running; ServiceTaken, ServiceMismatch."""
        self._services.add(name, handler)
        try:
            self._connection.advertise(name, self._services.signature(name), self._threads)
        except HmsError:
            self._services.remove(name)
            raise

    def unadvertise(self, name: str) -> None:
        """Offer a service no more; ServiceNotFound."""
        self._services.remove(name)
        self._connection.unadvertise(name)

    # on the thread that reads

    def _on_invoke(self, head: InvokeHead, data: bytes) -> None:
        link = self._connection.link
        if head.is_message and link.restored is not None:
            head = link.restored.invoked(head)
        self._invocations.put(_Invocation(head, data, link.welcome))
        link.woken.append(self)

    def _on_error(self, error: HmsError) -> None:
        _LOGGER.warning("%s", error)
        if self._is_lost_for_good:
            self.stop()

    # in the threads that run calls

    def _offer(self) -> None:
        names = self._services.names
        if not names:
            detail = "it has no function with @service"
            raise ServiceModuleError(module=", ".join(self._modules), detail=detail)
        for name in names:
            self._connection.advertise(name, self._services.signature(name), self._threads)
        _LOGGER.info("serving %s", ", ".join(names))
        self._on_serving()

    def _serve(self) -> None:
        others = [
            threading.Thread(target=self._help, name=f"hms-service-{number}", daemon=True)
            for number in range(2, self._threads + 1)
        ]
        for thread in others:
            thread.start()
        try:
            self._work(self._context)
        finally:
            for thread in others:
                thread.join()
        if self._fault is not None:
            raise self._fault
        if self._is_lost_for_good:
            raise own_copy(self._connection.link.error)

    def _help(self) -> None:
        """What the other threads do; a fault of theirs ends the server."""
        try:
            self._work(Context(self._connection, is_server=True))
        except BaseException as fault:  # noqa: BLE001 - it is raised in the main thread
            self._fault = fault
            self.stop()

    def _work(self, context: Context) -> None:
        """Run calls until the server stops."""
        while isinstance(invocation := self._next(), _Invocation):
            self._run(invocation, context)
        self._invocations.put(invocation)  # for the other threads
        self._interrupt()

    def _next(self) -> _Invocation | _Mark:
        """What comes next; several threads may have seen it, and one of them gets it."""
        waiting = self._invocations
        while True:
            if not waiting.qsize():
                self._connection.driver.wait_until(self, waiting.qsize)
            try:
                return waiting.get_nowait()
            except queue.Empty:
                continue

    def _run(self, invocation: _Invocation, context: Context) -> None:
        """Run a call and send its result."""
        head, login, link = invocation.head, invocation.login, self._connection.link
        if link.welcome is not login or link.state is not State.UP:
            return
        answer_bytes_max = link.limits.message_bytes_max
        enter(context)  # a handler may have made another one its own
        run = partial(invoke, self._services, head, invocation.data, answer_bytes_max)
        if head.mode:
            with speaking(context, head) as speaker:
                outcome = self._in_transaction(head, partial(run, speaker, self._loop.run))
        elif head.transaction or head.is_autotran or head.service in self._services.transactional:
            outcome = self._in_transaction(head, partial(run, None, self._loop.run))
        else:
            outcome = run(None, self._loop.run)
        if outcome.is_last:
            self.stop()
        if link.welcome is login and link.state is State.UP:
            self._connection.send_result(outcome.head, outcome.data)
        else:
            _LOGGER.warning("the result of %s is dropped: its connection is lost", head.service)

    def _in_transaction(self, head: InvokeHead, run: Callable[[], Outcome]) -> Outcome:
        """Run it in the transaction of its caller, or in the one it needs."""
        offer = self._services.get(head.service)
        wanted = "" if offer is None else offer.transaction
        if head.is_autotran and not head.mode:
            wanted = wanted or "required"
        if not head.transaction and not wanted:
            return run()
        from tpmon.tx.transactional_services import serve  # noqa: PLC0415 - only who has transactions

        return serve(self._connection, head, wanted, run)

    @property
    def _is_lost_for_good(self) -> bool:
        return self._connection.link.state is State.ENDED

    def _leave(self) -> None:
        """Offer nothing more, then run what the node had sent before it knew."""
        connection, until = self._connection, time.monotonic() + LEAVE_TIMEOUT_S
        with contextlib.suppress(HmsError):
            for name in self._services.names:
                if connection.is_connected:
                    left_s = max(0.0, until - time.monotonic())
                    gone = Unadvertise(name, is_leaving=bool(self._name))
                    connection.request(gone, left_s, OnLoss.DONE)
        if not connection.is_connected:
            return
        with connection.lock:  # behind the calls that its thread has not brought yet
            connection.link.calls.append(lambda: self._invocations.put(_Mark.LAST))
            connection.flush()
        with contextlib.suppress(queue.Empty):
            while (item := self._invocations.get(timeout=LEAVE_TIMEOUT_S)) is not _Mark.LAST:
                if isinstance(item, _Invocation):
                    self._run(item, self._context)

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Let tpadvertise() find it."""
        _servers.append(self)
        try:
            yield
        finally:
            _servers.remove(self)

    @contextlib.contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.stop()


def tpadvertise(svcname: str, func: Handler) -> None:
    """Offer one more service from a service or tpsvrinit(); ServiceTaken, ServiceMismatch."""
    _server("tpadvertise()").advertise(svcname, func)


def tpunadvertise(svcname: str) -> None:
    """Offer a service no more; ServiceNotFound."""
    _server("tpunadvertise()").unadvertise(svcname)


def _server(what: str) -> Server:
    if not _servers:
        raise IllegalState(what=what, detail="no server runs in this process")
    return _servers[-1]
