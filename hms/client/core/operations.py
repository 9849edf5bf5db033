"""Steps: an operation that has to wait, written once for threads and for asyncio.

It is a generator. Between its steps it touches the link; a step says what has to happen before it
goes on. Its driver (thread_driver.py with threads, loop_driver.py in an event loop)
holds the connection's lock while it runs, sends what the link has to send before each step, and
throws into it what ends a step, such as a cancellation: so one `finally` cleans up for both."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")

FOREVER = float("inf")


class Wait(msgspec.Struct, frozen=True):
    """Wait until is_done(), asked again whenever key is woken, or until the deadline, a time of
    monotonic(); the step's outcome is whether it is done."""

    key: object
    is_done: Callable[[], object]
    deadline: float


class Outside(msgspec.Struct, frozen=True):
    """Call a function of the application, which may use the connection itself, so without the lock.
    In asyncio what it returns is awaited if it can be. The step's outcome is the result.

    gives_way: it is one of many that may follow one another without a wait, so in asyncio others
    have a turn after it, and the operation can be cancelled there."""

    call: Callable[[], Any]
    gives_way: bool = False


class Mark:
    """A key that is done once something has come to pass."""

    is_done = False


Steps = Generator[Wait | Outside, Any, _T]
