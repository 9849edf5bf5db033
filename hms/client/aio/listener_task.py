"""The task of a session that calls its in-process listeners."""

import asyncio
from collections.abc import Callable
from typing import Any

from hms.client.consumer_steps import ConsumerSteps, Listener
from hms.client.core.loop_driver import RUNNER, LoopDriver, my_runner
from hms.client.core.operations import Steps
from hms.client.listener_calls import Listening
from hms.client.session_steps import SessionSteps


class ListeningTask:
    """Runs while there are any listeners."""

    def __init__(self, driver: LoopDriver, session: SessionSteps) -> None:
        self._driver = driver
        self._listening: Listening[asyncio.Task[None]] = Listening(session)

    @property
    def is_current(self) -> bool:
        """Whether a listener asks."""
        task = self._listening.runner
        return task is not None and task is my_runner()

    def set(self, consumer: ConsumerSteps, listener: Listener | None) -> "asyncio.Future[Any]":
        """From now on, instead of another one; with None no longer, and the future is done when
        the last call has ended."""
        self._listening.set(consumer, listener)
        if listener is not None and self._listening.runner is None:
            self._listening.runner = self._driver.event_loop.create_task(self._run())
        self._driver.flush()
        if listener is None and not self.is_current and self._listening.is_calling:
            return asyncio.ensure_future(self._driver.run(self._listening.ended(consumer)))
        done = self._driver.event_loop.create_future()
        done.set_result(None)
        return done

    async def close(
        self, closing: Callable[[], Steps[None]], consumer: ConsumerSteps | None = None
    ) -> None:
        """Close a consumer, or the session, when its running listener has ended; behind it when
        that listener asks."""
        await self._driver.run(self._listening.ending(closing, my_runner(), consumer))

    async def _run(self) -> None:
        RUNNER.set(asyncio.current_task())
        await self._driver.run(self._listening.calling())
