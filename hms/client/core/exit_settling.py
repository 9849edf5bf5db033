"""The end of a program that closes no connection: what it has sent without waiting is waited for.

The thread that carries a connection ends with the program. What send_async() was given shortly
before, and a send of AckMode.NONE, would go with it, and nobody would hear of that.
"""

import atexit
import logging
import weakref
from contextlib import suppress
from time import monotonic
from typing import Protocol

import zmq.utils.garbage  # noqa: F401 - first: what it does at exit has to come behind ours

from hms.client.core.link import Link, State
from hms.client.core.operations import Steps, Wait
from hms.errors.catalogue import ConnectionForked

__all__ = ["settle_at_exit"]

EXIT_S = 5.0
"""How long the end of the program waits, for all connections together."""
_LOGGER = logging.getLogger("hms.client")


class _Driver(Protocol):
    link: Link

    def run(self, steps: Steps[bool]) -> bool:
        """Drive an operation to its end."""


_drivers: weakref.WeakSet[_Driver] = weakref.WeakSet()


def settle_at_exit(driver: _Driver) -> None:
    """At the end of the program wait for the outcome of what this one carries."""
    _drivers.add(driver)


def _settling(link: Link, deadline: float) -> Steps[bool]:
    """Whether all that was sent has its outcome by then."""

    def is_settled() -> bool:
        return link.state is State.ENDED or not (link.sends_in_flight or link.on_room)

    for push in list(link.on_room.values()):
        push()
    is_done: bool = yield Wait(link, is_settled, deadline)
    return is_done


@atexit.register
def _settle() -> None:
    deadline = monotonic() + EXIT_S
    for driver in list(_drivers):
        with suppress(ConnectionForked):  # it is its parent's
            if not driver.run(_settling(driver.link, deadline)):
                _LOGGER.warning(
                    "the program ends, and the node at %s has not confirmed all that it was sent; "
                    "close() waits for that",
                    driver.link.address,
                )
