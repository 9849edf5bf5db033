"""What the node's monitor needs of whoever looks after server processes."""

from typing import Any, Protocol

from field_buffer.catalogue import ServerNotFound

__all__ = ["NoServers", "Supervisor"]


class Supervisor(Protocol):
    """Its methods wait for nothing: they are called under the engine's lock (P5)."""

    def describe(self) -> list[dict[str, Any]]:
        """The servers of the configuration, with name, pids, restarts and fault."""

    def kill(self, name: str) -> None:
        """End the process "NAME:pid" at once."""

    def restart(self, name: str) -> None:
        """Begin to replace the processes of a server; ServerNotFound."""

    def scale(self, name: str, count: int) -> None:
        """Begin to have at least so many processes; ServerNotFound, InvalidArgument."""


class NoServers:
    """A node without server processes of its own."""

    def describe(self) -> list[dict[str, Any]]:
        """None."""
        return []

    def kill(self, name: str) -> None:
        """Nothing to end."""

    def restart(self, name: str) -> None:
        """ServerNotFound."""
        raise ServerNotFound(server=name)

    def scale(self, name: str, count: int) -> None:  # noqa: ARG002 - the protocol's
        """ServerNotFound."""
        raise ServerNotFound(server=name)
