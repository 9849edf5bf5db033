"""The driver for threads: the application's own threads drive a connection's operations.

An application thread sends on the socket itself, under the driver's lock, and while it waits it
reads for all (socket_wait.py). What the background thread does stands in background_thread.py.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from hms.client.core.background_thread import BackgroundThread
from hms.client.core.connection_lock import ConnectionLock, make_lock, take_back
from hms.client.core.connection_options import Options
from hms.client.core.exit_settling import settle_at_exit
from hms.client.core.fork_detection import forbid_in_child
from hms.client.core.link import Link
from hms.client.core.operations import FOREVER, Mark, Outside, Steps, Wait
from hms.client.core.transport import Transport
from hms.client.core.transport_loop import TransportLoop
from hms.errors.tree import HmsError

_T = TypeVar("_T")


class ThreadDriver:
    """See the module."""

    def __init__(
        self,
        link: Link,
        addresses: Sequence[str],
        options: Options,
        main: "ThreadDriver | None" = None,
    ) -> None:
        self.link, self._options, self._main = link, options, main
        self.lock: ConnectionLock = make_lock() if main is None else main.lock
        self._side: ThreadDriver | None = None
        self.loop = loop = TransportLoop(link, addresses, options, self)
        self._background = BackgroundThread(self)
        self._waiting = waiting = self._background.waiting
        # What is called for each message goes there directly.
        self.flush, self.wake, self.wait_for = loop.flush, waiting.wake, waiting.wait_for
        self.come_by = self._background.come_by
        self.me = threading.current_thread
        if main is not None:  # who waits for its answers waits there
            self.wake = main.wake_all
        forbid_in_child(self)
        settle_at_exit(self)

    def run(self, steps: Steps[_T]) -> _T:
        """Drive an operation to its end."""
        with self.lock:
            try:
                step = next(steps)
                while True:
                    try:
                        self.flush()
                        if isinstance(step, Wait):
                            outcome: object = self.wait_for(step.key, step.is_done, step.deadline)
                        else:
                            outcome = self._call(step)
                    except BaseException as fault:  # noqa: BLE001 - the operation decides
                        step = steps.throw(fault)
                    else:
                        step = steps.send(outcome)
            except StopIteration as ended:
                result: _T = ended.value
                return result
            finally:
                self.flush()

    def _call(self, step: Outside) -> object:
        try:
            self.lock.release()
            return step.call()
        finally:
            try:
                if not self.lock._is_owned():  # noqa: SLF001 - as take_back() asks
                    self.lock.acquire()
            except BaseException:
                take_back(self.lock)
                raise

    # ---- lock held

    def begin(self) -> None:
        """Begin to connect."""
        self.loop.begin()
        self._background.start()

    def stop(self, error: HmsError, linger_ms: int) -> None:
        """End for good."""
        self.loop.stop(error, linger_ms)

    def beside(self, link: Link, addresses: Sequence[str]) -> "ThreadDriver":
        """Another driver for a link of the same client, under the same lock."""
        self._side = ThreadDriver(link, addresses, self._options, self)
        return self._side

    def wake_all(self, keys: Sequence[object]) -> None:
        """Wake who waits for one of these keys at a link beside this one, or for any at this."""
        self.wake([*keys, self.link])
        if self.link.outbox:  # it was given back what has still to be sent
            self.come_by(0.0)

    def take_in(self) -> None:
        """Take in what is here already."""
        if self._waiting.reader is None:
            self.loop.take_in()

    def call_mark(self, mark: Mark) -> bool:
        """Have the mark reached behind the callbacks that are due; False for one of them, and when
        none will run any more."""
        return self._background.call_mark(mark)

    # ---- lock not held

    def wait_until(self, key: object, is_done: Callable[[], object]) -> None:
        """Wait until is_done(), asked again whenever key is woken or interrupt() is called."""
        with self.lock:
            self.wait_for(key, is_done, FOREVER)
            self.flush()

    def interrupt(self) -> None:
        """Have all that wait look again; a signal handler may call this too."""
        self._waiting.interrupt()

    def join(self) -> None:
        """Wait for the background thread and give everything back."""
        self._background.join()
        if self._side is not None:
            self._side.join()

    # ---- what the transport loop needs

    def watch(self, transport: Transport | None) -> None:
        """Poll its socket from now on."""
        self._waiting.watch(-1 if transport is None else transport.fd)
        self._background.watch(transport)

    def after_flush(self) -> None:
        """Callbacks, and answers for which no thread waits, are the background thread's."""
        link = self.link
        if link.calls and self._main is not None:
            calls, link.calls = link.calls, []
            self._main.link.calls += calls
            self._main.come_by(0.0)
        elif link.calls:
            self.come_by(0.0)
        elif link.unattended and self._waiting.reader is None:
            self._background.take_over(at_once=True)

    @property
    def is_polled(self) -> bool:
        """Whether a thread polls the socket."""
        return self._background.is_reader or self._waiting.is_polling
