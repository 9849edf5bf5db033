"""A proxy between a client and a server that keeps what the client says."""

import socket
import threading
from contextlib import suppress

__all__ = ["ByteProxy"]


class ByteProxy:
    """target: tcp://HOST:PORT. said: all that came from clients. change: what becomes of a piece
    that the server says."""

    def __init__(self, target, change=lambda data: data):
        self.said, self._change = bytearray(), change
        host, _, port = target.partition("://")[2].rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._open, self._threads = [self._listening], []
        self._start(self._accept)

    def _start(self, job, *arguments):
        thread = threading.Thread(target=job, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self._open.append(near)
                far = socket.create_connection(self._target)
                self._open.append(far)
                self._start(self._carry, near, far, self._keep)
                self._start(self._carry, far, near, self._change)

    def _keep(self, data):
        self.said += data
        return data

    @staticmethod
    def _carry(one, other, change):
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(change(data))
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        """End all connections."""
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for one in self._open:
            one.close()
