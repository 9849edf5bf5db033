"""Words for systemd: ready, stopping, alive, how far it is. Nothing without NOTIFY_SOCKET."""

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Self

__all__ = ["Notifier"]


class Notifier:
    """Sends datagrams to the supervisor that started the process; it never waits or fails."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        where = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{where[1:]}" if where.startswith("@") else where
        self._socket: socket.socket | None = None

    @classmethod
    def taken(cls) -> Self:
        """From the environment of this process; those that it starts do not inherit it."""
        made = cls(os.environ)
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            os.environ.pop(name, None)
        return made

    def say(self, *words: str) -> None:
        """Such as READY=1."""
        if not self._address:
            return
        with contextlib.suppress(OSError):
            if self._socket is None:
                kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
                self._socket = socket.socket(socket.AF_UNIX, kind)
            self._socket.sendto("\n".join(words).encode(), self._address)

    def close(self) -> None:
        """Let go of the socket; the next word opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
