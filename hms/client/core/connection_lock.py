"""The lock of a connection, which a thread gives away while it waits and takes back in any case.

Ctrl-C raises out of a lock that is waited for. What goes on then believes that it has the lock: it
would work beside the thread that has, and give that one's away. So the lock knows its owner, and
taking it back ends with the lock; the exception comes behind that.
"""

import threading
from types import TracebackType
from typing import Protocol, cast

__all__ = ["ConnectionLock", "make_lock", "take_back"]


class ConnectionLock(Protocol):
    """What is used of threading.RLock; it is never taken twice."""

    def acquire(self) -> bool:
        """Wait for it."""

    def release(self) -> None:
        """Give it away."""

    def _is_owned(self) -> bool:
        """This thread has it."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def make_lock() -> ConnectionLock:
    """A new one."""
    return cast("ConnectionLock", threading.RLock())


def take_back(lock: ConnectionLock) -> None:
    """Have the lock, also when it was not given away yet; what interrupted that is raised then.
    Called when the first try was interrupted: a call for each wait would be time for each message.
    """
    fault: BaseException | None = None
    while not lock._is_owned():  # noqa: SLF001 - what Condition asks as well
        try:
            lock.acquire()
        except BaseException as error:  # noqa: BLE001 - of a signal handler: any
            fault = error
    if fault is not None:
        raise fault
