"""Words for systemd: ready, stopping, alive, how far it is. Nothing without NOTIFY_SOCKET."""

import contextlib
import os
import socket
from collections.abc import Mapping

__all__ = ["Notifier"]


class Notifier:
    """Sends datagrams to the supervisor that started the process; it never waits or fails."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        where = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{where[1:]}" if where.startswith("@") else where
        self._socket: socket.socket | None = None
        mine = environment.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        micros = environment.get("WATCHDOG_USEC", "")
        self.wants_watchdog = mine and micros.isdigit()

    def say(self, *words: str) -> None:
        """Such as READY=1."""
        if not self._address:
            return
        with contextlib.suppress(OSError):
            if self._socket is None:
                kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
                self._socket = socket.socket(socket.AF_UNIX, kind)
            self._socket.sendto("\n".join(words).encode(), self._address)
