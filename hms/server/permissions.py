"""Permissions: whether a connection may have a command applied. Asked at one place, the broker,
which has nobody to ask on a node without logins: that one trusts each client that reaches it."""

from typing import Any, Protocol

from hms.wire.commands import Command

__all__ = ["Permit"]


class Permit(Protocol):
    """Decides on a command before anything of it is applied."""

    def __call__(self, command: Command, head: Any, connection: int | None) -> None:
        """Return, or raise the HmsError with which it is refused. head: the command's structure, as
        decode_request() gives it; connection: None before HELLO."""
