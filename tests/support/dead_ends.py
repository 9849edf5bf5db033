"""A way to a server on which connections can die without an end: whatever comes is swallowed."""

import select
import socket
import threading

CHUNK = 1 << 16


class DeadEnds:
    """Hands on what comes; after swallow() the connections of that time are dead ends."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self._to = host.removeprefix("tcp://"), int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs, self._dead, self._is_over = {}, set(), False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over = True
        self._thread.join()
        for one in [self._listener, *self._pairs]:
            one.close()

    def swallow(self):
        """What is connected now stays so, and nothing comes through any more."""
        self._dead = set(self._pairs)

    def _run(self):
        while not self._is_over:
            ready = select.select([self._listener, *self._pairs], [], [], 0.02)[0]
            for one in ready:
                if one is self._listener:
                    self._meet(one.accept()[0])
                elif one in self._pairs:
                    self._hand_on(one)

    def _meet(self, client):
        try:
            server = socket.create_connection(self._to)
        except OSError:
            client.close()
            return
        self._pairs |= {client: server, server: client}

    def _hand_on(self, one):
        other = self._pairs[one]
        try:
            data = one.recv(CHUNK)
            if data and one not in self._dead:
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (one, other):
                del self._pairs[end]
                end.close()
