"""What the tests of the server's runtime share: a connection whose node is played by the test."""

import queue
import threading
from types import SimpleNamespace

from hms.client.core.link import State
from hms.errors.catalogue import ConnectionClosed
from hms.wire.structures import Advertise, InvokeHead, Unadvertise

WAIT_S = 60


class PlayedConnection:
    """Stands for hms.client.core.blocking_connection.Connection; said holds what the server told
    the node."""

    def __init__(self):
        self.lock = threading.Lock()
        self.driver = self
        self.said = queue.SimpleQueue()
        self._changed = threading.Condition()
        self.link = SimpleNamespace(
            calls=[],
            woken=[],
            welcome=object(),
            state=State.UP,
            limits=SimpleNamespace(message_bytes_max=1 << 20),
            error=ConnectionClosed(what="connection"),
        )
        self.before_reply = lambda: None
        """Run before Unadvertise is answered: what the node had sent before."""

    def __call__(self, address, **options):
        self.options = options | {"address": address}
        return self

    # what the server uses

    def open(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.said.put("closed")

    @property
    def is_connected(self):
        return self.link.state is State.UP

    def on_invoke(self, callback):
        self._callback = callback

    def advertise(self, name, signature="", places=1):
        self.request(Advertise(name, signature, places))

    def unadvertise(self, name):
        self.request(Unadvertise(name))

    def request(self, request, *_):
        if isinstance(request, Unadvertise):
            self.before_reply()
        self.said.put(request)

    def send_result(self, head, data):
        self.said.put((head, data))

    def wait_until(self, _key, is_done):
        with self._changed:
            assert self._changed.wait_for(is_done, WAIT_S)

    def interrupt(self):
        with self._changed:
            self._changed.notify_all()

    def flush(self):
        calls, self.link.calls = self.link.calls, []
        for call in calls:
            call()

    # what the test plays

    def invoke(self, service, data=b"", number=1):
        self._callback(InvokeHead(service, number, 0), data)
        self.interrupt()

    def connect_again(self):
        self.link.welcome = object()

    def lose_for_good(self):
        self.link.state = State.ENDED
        self.options["exception_listener"](self.link.error)
