"""Listening: the thread of a session that calls in-process listeners, one at a time, in order."""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tpmon.driver import FOREVER
from tpmon.link import State

if TYPE_CHECKING:
    from hms.client.consumer import Consumer
    from hms.client.message import Message
    from hms.client.session import Session

_LOGGER = logging.getLogger("hms.client")
_Listener = Callable[["Message"], object]


class Listening:
    """The listeners of one session; the thread runs while there are any."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._listeners: dict[Consumer, _Listener] = {}
        self._thread: threading.Thread | None = None

    @property
    def is_current_thread(self) -> bool:
        """Whether a listener asks."""
        return self._thread is threading.current_thread()

    def set(self, consumer: "Consumer", listener: _Listener | None) -> None:
        """From now on, or with None no longer; then it returns when the last call has ended."""
        connection = self._session.connection
        with connection.lock:
            if listener is None:
                self._listeners.pop(consumer, None)
            else:
                self._listeners[consumer] = listener
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="hms-session", daemon=True
                    )
                    self._thread.start()
            thread = self._thread if not self._listeners else None
            connection.link.woken.append(self._session)
            connection.flush()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def stop(self) -> None:
        """Call no listener any more."""
        for consumer in list(self._listeners):
            self.set(consumer, None)

    def _run(self) -> None:
        connection = self._session.connection
        while True:
            with connection.lock:
                connection.wait_for(self._session, self._is_due, FOREVER)
                found = self._next()
                connection.flush()
                if found is None and not self._goes_on:
                    self._thread = None
                    return
            if found is not None:
                self._call(*found)

    @property
    def _goes_on(self) -> bool:
        is_over = self._session.connection.link.state is State.ENDED
        return bool(self._listeners) and not is_over

    def _is_due(self) -> bool:
        return not self._goes_on or any(one.has_messages for one in self._listeners)

    def _next(self) -> "tuple[Consumer, object, _Listener] | None":
        """The next message of the consumer that waits longest for its turn."""
        for consumer, listener in self._listeners.items():
            delivered = consumer.take_for_listener()
            if delivered is not None:
                self._listeners[consumer] = self._listeners.pop(consumer)
                return consumer, delivered, listener
        return None

    def _call(self, consumer: "Consumer", delivered: object, listener: _Listener) -> None:
        try:
            consumer.handle(delivered, listener)  # type: ignore[arg-type]
        except Exception:
            _LOGGER.exception(
                "the listener of %s failed; the message comes again", consumer.destination
            )
