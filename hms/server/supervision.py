"""What the node's monitor needs of the supervisor of server processes."""

from typing import Any, Protocol

from hms.errors.catalogue import ServerNotFound

__all__ = ["NoServers", "Supervisor"]


class Supervisor(Protocol):
    """Its methods wait for nothing: they are called under the engine's lock (P5)."""

    def describe(self) -> list[dict[str, Any]]:
        """The servers of the configuration, with name, pids, restarts and fault."""

    def is_own(self, name: str, uid: int) -> bool:
        """Whether the client of that uid is the process "NAME:pid" that the node started."""

    def kill(self, name: str) -> None:
        """End the process "NAME:pid" at once."""

    def comes_back(self, name: str) -> bool:
        """Whether a process of that server which ends now is followed by another."""

    def restart(self, name: str) -> None:
        """Begin to replace the processes of a server; ServerNotFound."""

    def scale(self, name: str, count: int) -> None:
        """Begin to have at least so many processes; ServerNotFound, InvalidArgument."""


class NoServers:
    """A node without server processes of its own."""

    def describe(self) -> list[dict[str, Any]]:
        """None."""
        return []

    def is_own(self, name: str, uid: int) -> bool:  # noqa: ARG002 - the protocol's
        """Nobody's."""
        return False

    def kill(self, name: str) -> None:
        """Nothing to end."""

    def comes_back(self, name: str) -> bool:  # noqa: ARG002 - the protocol's
        """Nothing follows."""
        return False

    def restart(self, name: str) -> None:
        """ServerNotFound."""
        raise ServerNotFound(server=name)

    def scale(self, name: str, count: int) -> None:  # noqa: ARG002 - the protocol's
        """ServerNotFound."""
        raise ServerNotFound(server=name)
