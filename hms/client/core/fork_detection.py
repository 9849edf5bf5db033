"""Connections over a fork: a child process has copies of its parent's sockets, numbers and locks.

Both would speak as one client: the child's sends would be taken for repeats of the parent's, and a
lock that another thread held at the fork is never released. So in the child each operation of an
inherited connection raises ConnectionForked; its own connections are not touched.
"""

import os
import weakref
from types import TracebackType
from typing import Any, NoReturn, Protocol

from hms.errors.catalogue import ConnectionForked

__all__ = ["forbid_in_child"]


class _Locked(Protocol):
    lock: Any


class _Forbidden:
    """Stands for the lock that each operation takes first."""

    def __init__(self, owner: int) -> None:
        self._owner = owner

    def __enter__(self) -> NoReturn:
        raise ConnectionForked(owner=self._owner, own=os.getpid())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Never entered."""


_connections: weakref.WeakSet[Any] = weakref.WeakSet()


def forbid_in_child(connection: _Locked) -> None:
    """From a fork on the child's copy of the connection raises ConnectionForked."""
    _connections.add(connection)


def _forked() -> None:
    for connection in _connections:
        connection.lock = _Forbidden(os.getppid())


os.register_at_fork(after_in_child=_forked)
