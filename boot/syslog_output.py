"""Lines of a node's log for the system log of the machine: a datagram each, and nobody waits."""

import logging
import os
import socket

from hms.client.core.log_output import LogOutput

__all__ = ["SOCKET", "SyslogOutput"]

SOCKET = "/dev/log"
LINE_MAX = 8000
"""Bytes; what is longer is cut, as system logs do not take it."""
DAEMON = 3 * 8
SEVERITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


class SyslogOutput(LogOutput):
    """What a system log that is away or full does not take is counted, and told when it does."""

    def __init__(self, path: str = SOCKET) -> None:
        super().__init__(fd=-1)
        self._path = path
        self._socket: socket.socket | None = None

    def line(self, record: logging.LogRecord) -> bytes:
        """With facility and severity; the system log has the time."""
        priority = DAEMON + SEVERITIES.get(record.levelname, 6)
        text = self.format(record).replace("\n", " ").encode("utf-8", "backslashreplace")
        return b"<%d>hms[%d]: %s" % (priority, os.getpid(), text[:LINE_MAX])

    def write(self, data: bytes) -> int:
        """A system log that was started anew has another socket of that name."""
        try:
            return self._connected().send(data)
        except ConnectionError:
            self.close_socket()
            return self._connected().send(data)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            made.settimeout(0)
            try:
                made.connect(self._path)
            except OSError:
                made.close()
                raise
            self._socket = made
        return self._socket

    def close_socket(self) -> None:
        """The next line connects."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
