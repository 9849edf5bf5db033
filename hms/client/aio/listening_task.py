"""The task of a session that calls its in-process listeners."""

import asyncio
from typing import TYPE_CHECKING, Any

from hms.client.listening import Listening

if TYPE_CHECKING:
    from hms.client.aio.consumer import Consumer
    from hms.client.aio.session import Session
    from hms.client.consumer_steps import Listener


class ListeningTask:
    """Runs while there are any listeners."""

    def __init__(self, session: "Session") -> None:
        self._connection = session.connection
        self._listening: Listening[asyncio.Task[None]] = Listening(session)

    @property
    def is_current(self) -> bool:
        """Whether a listener asks."""
        task = self._listening.runner
        return task is not None and task is asyncio.current_task()

    def set(self, consumer: "Consumer", listener: "Listener | None") -> "asyncio.Future[Any]":
        """From now on, or with None no longer; then the future is done when the last call is."""
        self._listening.set(consumer, listener)
        if listener is not None and self._listening.runner is None:
            steps = self._listening.calling()
            self._listening.runner = self._connection.loop.create_task(self._connection.run(steps))
        self._connection.flush()
        return self._ended()

    def stop(self) -> "asyncio.Future[Any]":
        """Call no listener any more; the future is done when the last call is."""
        self._listening.clear()
        self._connection.flush()
        return self._ended()

    def _ended(self) -> "asyncio.Future[Any]":
        """Done when the task is, if it has to end."""
        task = self._listening.runner
        if task is not None and not self._listening.count and not self.is_current:
            return asyncio.shield(task)
        done = self._connection.loop.create_future()
        done.set_result(None)
        return done
