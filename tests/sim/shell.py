"""The shell of the simulation: it drives the library's own operations (hms.client.*_steps), as
thread_driver.py does with threads and loop_driver.py in an event loop. A wait is a condition of the
simulation.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from hms.client.browse_pages import BrowsePages
from hms.client.consumer_steps import ConsumerSteps
from hms.client.core.connection_options import Options
from hms.client.core.operations import FOREVER, Outside, Steps, Wait
from hms.client.core.requests import Requests
from hms.client.opening_steps import Opening
from hms.client.pending_sends import SendOptions
from hms.client.prefetch_buffer import Delivered, PrefetchBuffer, Stamp
from hms.client.producer_steps import ProducerSteps
from hms.client.send_buffer import Sender
from hms.client.session_members import SessionMembers

if TYPE_CHECKING:
    from tests.sim.client import Client, Condition

_T = TypeVar("_T")
PATIENCE_S = 1e9
Driven = Generator["Condition", None, _T]


class Shell:
    """A driver, and the carrier of its link, as the operations need them."""

    lock = contextlib.nullcontext()
    lost_at = FOREVER
    """Nobody loses patience."""
    is_refused = False
    addresses = ()

    def __init__(self, client: "Client") -> None:
        self.link = client.link
        self.loop = self
        self.flush = client.flush
        self.requests = Requests(self, Options(request_timeout_s=PATIENCE_S))

    def me(self) -> object:
        """An application of the simulation has no thread of its own, and no listener."""
        return self

    def drive(self, steps: Steps[_T], *, is_cancelled: Callable[[], bool] = bool) -> Driven[_T]:
        """Run an operation; is_cancelled: asked while it waits, whether that is enough."""
        try:
            step = next(steps)
            while True:
                self.flush()
                if _must_wait(step):
                    is_done = step.is_done
                    yield lambda is_done=is_done: is_done() or is_cancelled()
                    if not is_done():
                        step = steps.throw(asyncio.CancelledError())
                        continue
                step = steps.send(_outcome(step))
        except StopIteration as ended:
            return ended.value

    def at_once(self, steps: Steps[_T]) -> _T:
        """Run an operation that has nothing to wait for."""
        for _ in (driven := _Result(self.drive(steps))):
            raise AssertionError("it waits")
        return driven.value


class _Result:
    """Iterates over a generator and keeps what it returns."""

    def __init__(self, driven: Driven[Any]) -> None:
        self._driven = driven
        self.value: Any = None

    def __iter__(self) -> Driven[None]:
        self.value = yield from self._driven


def _must_wait(step: Wait | Outside) -> bool:
    return isinstance(step, Wait) and not step.is_done() and step.deadline > monotonic()


def _outcome(step: Wait | Outside) -> object:
    return bool(step.is_done()) if isinstance(step, Wait) else step.call()


class Consumer(ConsumerSteps):
    """A consumer whose messages stay as they were delivered."""

    def __init__(self, session: "Session", prefetched: PrefetchBuffer, opening: Opening) -> None:
        super().__init__(session, prefetched)
        self.opening = opening
        self.prefetched = prefetched

    def _message(self, delivered: Delivered, _stamp: Stamp) -> Any:
        return delivered

    def _messages(self, delivered: list[Delivered]) -> list[Any]:
        return list(delivered)


class Producer(ProducerSteps):
    """A producer."""

    def __init__(
        self, session: "Session", sender: Sender, options: SendOptions, opening: Opening
    ) -> None:
        super().__init__(session, sender, options)
        self.opening = opening
        self.sender = sender


class Session(SessionMembers[Producer, Consumer, BrowsePages]):
    """A session; what it makes is returned before it is granted, as in asyncio."""

    def _producer(self, sender: Sender, options: SendOptions, opening: Opening) -> Producer:
        return Producer(self, sender, options, opening)

    def _consumer(self, prefetched: PrefetchBuffer, opening: Opening) -> Consumer:
        return Consumer(self, prefetched, opening)

    def _browser(self, pages: BrowsePages) -> BrowsePages:
        return pages
