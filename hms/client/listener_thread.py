"""The thread of a session that calls its in-process listeners."""

import threading
from collections.abc import Callable

from hms.client.consumer_steps import ConsumerSteps, Listener
from hms.client.core.operations import Steps
from hms.client.core.thread_driver import ThreadDriver
from hms.client.listener_calls import Listening
from hms.client.session_steps import SessionSteps


class ListeningThread:
    """Runs while there are any listeners."""

    def __init__(self, driver: ThreadDriver, session: SessionSteps) -> None:
        self._driver = driver
        self._listening: Listening[threading.Thread] = Listening(session)

    @property
    def is_current(self) -> bool:
        """Whether a listener asks."""
        return self._listening.runner is threading.current_thread()

    def set(self, consumer: ConsumerSteps, listener: Listener | None) -> None:
        """From now on, instead of another one; with None no longer, and it returns when the last
        call has ended."""
        driver = self._driver
        with driver.lock:
            self._listening.set(consumer, listener)
            if listener is not None and self._listening.runner is None:
                self._start()
            driver.flush()
        if listener is None and not self.is_current:
            driver.run(self._listening.ended(consumer))
            self._join()

    def close(
        self, closing: Callable[[], Steps[None]], consumer: ConsumerSteps | None = None
    ) -> None:
        """Close a consumer, or the session, when its running listener has ended; behind it when
        that listener asks."""
        self._driver.run(self._listening.ending(closing, threading.current_thread(), consumer))
        self._join()

    def _start(self) -> None:
        steps = self._listening.calling()
        thread = threading.Thread(
            target=self._driver.run, args=(steps,), name="hms-session", daemon=True
        )
        self._listening.runner = thread
        thread.start()

    def _join(self) -> None:
        """Wait for the thread if there is no listener left for it. A listener of another session
        does not: this thread may be closing the connection, and wait for that listener."""
        thread, me = self._listening.runner, threading.current_thread()
        callers = list(self._driver.link.callers)
        is_listener = any(one.is_within(me) for one in callers)
        if thread not in (None, me) and not self._listening.count and not is_listener:
            assert thread is not None
            thread.join()
