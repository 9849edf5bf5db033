"""Listener calls: the in-process listeners of a session, called one at a time, in order (F-E2).

A consumer, session or connection is closed when the listener that is running for it has ended; when
that listener itself asks, behind it: close() returns at once, the message is settled by how the
listener ends, and then the close takes effect.
"""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from hms.client.consumer_steps import ConsumerSteps, Listener
from hms.client.core.link import State
from hms.client.core.link_participants import Caller
from hms.client.core.listener_outcomes import Reject, Retry
from hms.client.core.operations import FOREVER, Steps, Wait
from hms.client.core.repeated_failures import RepeatedFailures
from hms.client.message_lists import Delivered
from hms.client.session_steps import SessionSteps
from hms.errors.catalogue import ListenerInterrupted

_LOGGER = logging.getLogger("hms.client")
_LOGGER.addFilter(RepeatedFailures())
_Runner = TypeVar("_Runner")


class Listening(Caller, Generic[_Runner]):
    """The listeners of one session; runner: the thread or task that calls them, while there are
    any."""

    def __init__(self, session: SessionSteps) -> None:
        self.runner: _Runner | None = None
        self._session = session
        self._link = session.requests.link
        self._listeners: dict[ConsumerSteps, Listener] = {}
        self._current: ConsumerSteps | None = None
        """Whose listener is running."""
        self._afterwards: list[Callable[[], Steps[None]]] = []
        """What the running listener closed."""
        self._is_closing = False

    def set(self, consumer: ConsumerSteps, listener: Listener | None) -> None:
        """From now on, or with None no longer."""
        consumer.set_listener(listener)
        if listener is None:
            self._listeners.pop(consumer, None)
        else:
            self._listeners[consumer] = listener
        self._link.woken.append(self._session)

    def hush(self) -> None:
        """Call none of them any more."""
        for consumer in list(self._listeners):
            self.set(consumer, None)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._listeners)

    @property
    def is_calling(self) -> bool:
        """Whether one of them is running, or the thread or task that called them has still to end;
        not while that closes what a listener closed: two of them may wait for each other."""
        return self._current is not None or self._is_ending

    @property
    def _is_ending(self) -> bool:
        is_idle = self._current is None and not self._is_closing
        return is_idle and self.runner is not None and not self._listeners

    def is_calling_for(self, consumer: ConsumerSteps | None) -> bool:
        """Whether the one of a consumer is running; None: any."""
        return self._current is not None and consumer in (None, self._current)

    def is_within(self, me: object) -> bool:
        """Whether the running one asks."""
        return self._current is not None and self.runner is me

    def serves(self, session: object) -> bool:
        """Whether they are the listeners of that session."""
        return session is self._session

    def afterwards(self, closing: Callable[[], Steps[None]]) -> None:
        """Do that when the running one has ended and its message is settled."""
        self._afterwards.append(closing)

    # ---- closing

    def ending(
        self,
        closing: Callable[[], Steps[None]],
        me: object,
        consumer: ConsumerSteps | None = None,
    ) -> Steps[None]:
        """Close a consumer, or with None the session, behind its running listener."""
        if consumer is None:
            self._session.state.begin_close()
            self.hush()
        else:
            self.set(consumer, None)
        if self.is_within(me) and self.is_calling_for(consumer):
            self.afterwards(closing)
            return
        try:
            yield from self.ended(consumer)
        except BaseException:  # a cancelled close still closes
            if self.is_calling_for(consumer):
                self.afterwards(closing)
            else:
                yield from closing()
            raise
        yield from closing()

    def ended(self, consumer: ConsumerSteps | None) -> Steps[None]:
        """Wait until the running listener of a consumer, or any, has ended, and with the last of
        them the thread or task that called it."""
        yield Wait(
            self._session,
            lambda: not (self.is_calling_for(consumer) or self._is_ending),
            FOREVER,
        )

    # ---- calling

    def calling(self) -> Steps[None]:
        """Call the listeners until there is none any more."""
        self._link.callers.append(self)
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
            self._link.callers.remove(self)
            self._link.woken += (self._session, self._link)

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
        self._current = consumer
        try:
            yield from consumer.handling(delivered, listener)
        except ListenerInterrupted as error:
            self._interrupted(error)
        except (Reject, Retry) as verdict:
            kind = type(verdict).__name__
            _LOGGER.warning("the listener of %s: %s: %s", consumer.destination, kind, verdict)
        except Exception:
            _LOGGER.exception(
                "the listener of %s failed; the message comes again", consumer.destination
            )
        finally:
            self._current = None
            self._link.woken += (self._session, self._link)
        self._is_closing = True
        try:
            while self._afterwards:
                yield from self._closed(self._afterwards.pop(0))
        finally:
            self._is_closing = False

    def _interrupted(self, error: ListenerInterrupted) -> None:
        """A listener wanted its thread to end: the session calls none any more, and says so."""
        _LOGGER.error("%s", error, exc_info=error)
        self.hush()
        self._session.state.interrupted(error)

    def _closed(self, closing: Callable[[], Steps[None]]) -> Steps[None]:
        try:
            yield from closing()
        except Exception:
            _LOGGER.exception("what a listener closed did not close cleanly")
