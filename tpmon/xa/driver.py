"""Driver: what the adapter kit needs to know of one kind of database."""

from typing import Any, Protocol

from hms.wire.xid import Xid

__all__ = ["Driver"]


class Driver(Protocol):
    """What the kit needs to know of one kind of database.

    Every function may raise what the driver's package raises: code_of() says which X/Open code
    that is. is_freed_by_prepare: another session may finish what this one prepared while this one
    goes on with something else.
    """

    is_last_resource: bool
    is_freed_by_prepare: bool

    def connect(self) -> Any:
        """A new session."""

    def check(self, session: Any) -> str:
        """Why the database cannot take part, "" when it can."""

    def close(self, session: Any) -> None:
        """End a session, whatever state it is in."""

    def is_clean(self, session: Any) -> bool:
        """Whether it is outside any transaction and can serve another branch."""

    def begin(self, session: Any, xid: Xid) -> None:
        """Begin a branch."""

    def prepare(self, session: Any, xid: Xid) -> int:
        """End its work and prepare it: XA_OK, XA_RDONLY or one of XA_RB*."""

    def commit_one_phase(self, session: Any, xid: Xid) -> int:
        """End its work and commit it: XA_OK or one of XA_RB*."""

    def roll_back(self, session: Any, xid: Xid) -> None:
        """End its work and roll it back."""

    def commit_prepared(self, session: Any, xid: Xid) -> None:
        """Commit a branch that is prepared, of whatever session."""

    def roll_back_prepared(self, session: Any, xid: Xid) -> None:
        """Roll a branch back that is prepared, of whatever session."""

    def prepared(self, session: Any, after: Xid | None, count: int) -> list[Xid]:
        """The prepared branches behind that one in a fixed order, count at most."""

    def code_of(self, fault: Exception) -> int | None:
        """The XAER or XA_RB code of an error, None when it is none of the driver's."""
