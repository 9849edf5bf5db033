"""The thread of a session that calls its in-process listeners."""

import threading
from typing import TYPE_CHECKING

from hms.client.listening import Listening

if TYPE_CHECKING:
    from hms.client.consumer import Consumer
    from hms.client.consumer_steps import Listener
    from hms.client.session import Session


class ListeningThread:
    """Runs while there are any listeners."""

    def __init__(self, session: "Session") -> None:
        self._connection = session.connection
        self._listening: Listening[threading.Thread] = Listening(session)

    @property
    def is_current(self) -> bool:
        """Whether a listener asks."""
        return self._listening.runner is threading.current_thread()

    def set(self, consumer: "Consumer", listener: "Listener | None") -> None:
        """From now on, or with None no longer; then it returns when the last call has ended."""
        connection = self._connection
        with connection.lock:
            self._listening.set(consumer, listener)
            if listener is not None and self._listening.runner is None:
                self._start()
            connection.flush()
        self._join()

    def stop(self) -> None:
        """Call no listener any more."""
        with self._connection.lock:
            self._listening.clear()
            self._connection.flush()
        self._join()

    def _start(self) -> None:
        steps = self._listening.calling()
        thread = threading.Thread(
            target=self._connection.run, args=(steps,), name="hms-session", daemon=True
        )
        self._listening.runner = thread
        thread.start()

    def _join(self) -> None:
        """Wait for the thread if there is no listener left for it."""
        thread = self._listening.runner
        if thread is not None and not self._listening.count and not self.is_current:
            thread.join()
