"""What an application holds of a database session while its branch is active."""

from typing import Any

from hms.errors.catalogue import IllegalState

__all__ = ["Handle"]

_OUTCOME = frozenset(("autocommit", "begin", "close", "commit", "rollback", "set_autocommit")) | {
    "tpc_begin",
    "tpc_commit",
    "tpc_prepare",
    "tpc_rollback",
}
"""What would decide a part of the transaction alone."""


class Handle:
    """A database connection inside a branch: everything but what ends a transaction.

    After the branch has ended it refuses everything, because its session may by then work for
    somebody else.
    """

    __slots__ = ("_resource", "_session")

    def __init__(self, resource: str, session: Any) -> None:
        self._resource = resource
        self._session = session

    def __getattr__(self, name: str) -> Any:
        session = self._session
        if session is None:
            detail = "its branch of the transaction has ended"
            raise IllegalState(what=f"the connection to {self._resource}", detail=detail)
        if name in _OUTCOME:
            detail = f"{name}() is not allowed inside a global transaction; its end decides"
            raise IllegalState(what=f"the connection to {self._resource}", detail=detail)
        return getattr(session, name)

    def __repr__(self) -> str:
        return f"<Handle {self._resource}{'' if self._session is not None else ' ended'}>"


def end(handle: Handle) -> None:
    """Refuse everything from now on."""
    handle._session = None  # noqa: SLF001 - its one friend
