"""Deadlines: by when the future of a send_async() is told, whatever the node does. No socket.

It keeps request_timeout_s as send() does. One tick is planned for the oldest future of a producer,
and the next one then, so that a send costs no timer.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from hms.client.core.link import Link
from hms.client.core.link_participants import Ticking
from hms.client.pending_sends import PendingSend

_MS = 1000


class _Futures(Protocol):
    """Whose futures these are."""

    def open_futures(self) -> Iterator[PendingSend]:
        """Those that were told nothing yet, the oldest first."""

    def overdue(self, send: PendingSend, patience_s: float) -> None:
        """Tell one that its time is over."""


class Deadlines(Ticking):
    """Of one producer."""

    def __init__(self, link: Link, futures: _Futures, clock: Callable[[], float]) -> None:
        self.tick_s = self._patience_s = link.hello.request_timeout_ms / _MS
        self._link = link
        self._futures = futures
        self._clock = clock
        self._is_planned = False

    def watch(self, send: PendingSend) -> None:
        """Its time begins."""
        send.begun_at = self._clock()
        if not self._is_planned and self._patience_s:
            self._plan(self._patience_s)

    def tick(self) -> None:
        """Tell those whose time is over; come again for the next one."""
        self._is_planned = False
        now = self._clock()
        for send in list(self._futures.open_futures()):
            left_s = send.begun_at + self._patience_s - now
            if left_s > 0:
                self._plan(left_s)
                return
            self._futures.overdue(send, self._patience_s)

    def _plan(self, left_s: float) -> None:
        self._is_planned, self.tick_s = True, left_s
        self._link.ticking.append(self)
