"""Listening: the in-process listeners of a session, called one at a time, in order (F-E2)."""

import logging
from typing import Generic, TypeVar

from hms.client.consumer_steps import ConsumerSteps, Listener
from hms.client.lists import Delivered
from hms.client.session_steps import SessionSteps
from tpmon.link import State
from tpmon.steps import FOREVER, Steps, Wait

_LOGGER = logging.getLogger("hms.client")
_Runner = TypeVar("_Runner")


class Listening(Generic[_Runner]):
    """The listeners of one session; runner: the thread or task that calls them, while there are
    any."""

    def __init__(self, session: SessionSteps) -> None:
        self.runner: _Runner | None = None
        self._session = session
        self._link = session.connection.link
        self._listeners: dict[ConsumerSteps, Listener] = {}

    def set(self, consumer: ConsumerSteps, listener: Listener | None) -> None:
        """From now on, or with None no longer."""
        consumer.set_listener(listener)
        if listener is None:
            self._listeners.pop(consumer, None)
        else:
            self._listeners[consumer] = listener
        self._link.woken.append(self._session)

    def clear(self) -> None:
        """Call none of them any more."""
        for consumer in list(self._listeners):
            self.set(consumer, None)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._listeners)

    def calling(self) -> Steps[None]:
        """Call the listeners until there is none any more."""
        try:
            while True:
                yield Wait(self._session, self._is_due, FOREVER)
                found = self._next()
                if found is not None:
                    yield from self._call(*found)
                elif not self._goes_on:
                    return
        finally:
            self.runner = None

    @property
    def _goes_on(self) -> bool:
        return bool(self._listeners) and self._link.state is not State.ENDED

    def _is_due(self) -> bool:
        return not self._goes_on or any(one.has_messages for one in self._listeners)

    def _next(self) -> tuple[ConsumerSteps, Delivered, Listener] | None:
        """The next message of the consumer that waits longest for its turn."""
        for consumer, listener in self._listeners.items():
            delivered = consumer.take_for_listener()
            if delivered is not None:
                self._listeners[consumer] = self._listeners.pop(consumer)
                return consumer, delivered, listener
        return None

    def _call(
        self, consumer: ConsumerSteps, delivered: Delivered, listener: Listener
    ) -> Steps[None]:
        try:
            yield from consumer.handling(delivered, listener)
        except Exception:
            _LOGGER.exception(
                "the listener of %s failed; the message comes again", consumer.destination
            )
