"""What moves a link: one socket, one background thread, and the application's own threads.

An application thread sends on the socket itself, under the connection's lock, and while it waits it
reads for all (waiting.py). What the background thread does stands in background.py.
"""

import os
import threading
from collections.abc import Callable, Sequence
from time import monotonic

import zmq

from field_buffer.catalogue import (
    ConnectionLost,
    NodeStopping,
    TpConnectionClosed,
    TpProtocol,
    TpSecurity,
)
from field_buffer.errors import HmsError
from tpmon.link import Link, State
from tpmon.reconnect import Attempts
from tpmon.transport import Transport, contexts
from tpmon.waiting import Waiting

TICK_S = 0.005
"""How long an acknowledgement is held back for others to join it."""
GREETING_S = 5.0
"""How long a node may take to answer HELLO before the next address is tried."""
FOREVER = float("inf")
_HOPELESS = (TpSecurity, TpProtocol)


class Driver:
    """See the module. Whoever touches link holds the lock, and calls flush() after it."""

    def __init__(
        self, link: Link, addresses: Sequence[str], *, reconnect: bool, attempts: Attempts
    ) -> None:
        self.lock = threading.Lock()
        self.link = link
        self.addresses = tuple(addresses)
        self._reconnect = reconnect
        self._attempts = attempts
        self._waiting = Waiting(self.lock, self._take_in, self._nobody_waits)
        self._transport: Transport | None = None
        self._context = contexts.acquire()
        self._was_up = False
        self.lost_at = FOREVER
        self._greeting_until = FOREVER
        self._tick_at = FOREVER
        self._wakes_at = 0.0
        self._thread_reads = False
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    # ---- for whoever holds the lock

    def flush(self) -> None:
        """Send what the link has to send, wake who waits for what came, plan what is due."""
        link = self.link
        while link.outbox:
            self._send_outbox()
        if link.woken:
            for key in link.woken:
                self._waiting.wake(key)
            link.woken.clear()
        if link.ticking and self._tick_at == FOREVER:
            self._tick_at = monotonic() + TICK_S
            self._call_thread_by(self._tick_at)
        if link.calls or (link.unattended and not self._is_read):
            self._call_thread_by(0.0)

    def take_in(self) -> None:
        """Take in what is here already, lock held."""
        if not self._waiting.has_reader:
            self._take_in()

    def wait_for(self, key: object, is_done: Callable[[], object], deadline: float) -> bool:
        """Wait until is_done() or the deadline, reading for all meanwhile."""
        return self._waiting.wait_for(key, is_done, deadline)

    def outage_ends_by(self, patience_s: float) -> float:
        """Until when to wait through an outage; for ever while there is none."""
        return self.lost_at + patience_s

    # ---- the socket

    @property
    def _is_read(self) -> bool:
        return self._thread_reads or self._waiting.has_reader

    def _send_outbox(self) -> None:
        link, transport = self.link, self._transport
        outbox, link.outbox = link.outbox, []
        if transport is None:
            return
        try:
            for frame in outbox:
                transport.send(frame)
        except zmq.ZMQError as fault:
            self._lost(str(fault))
            return
        link.sent(monotonic())
        # Sending may have taken the signal for which somebody polls: look whether there is input.
        if self._thread_reads or self._waiting.is_polling:
            self._read()

    def _read(self) -> bool:
        """Take frames in; whether there were any."""
        transport = self._transport
        if transport is None:
            return False
        received = transport.receive()
        now = monotonic()
        try:
            for parts in received:
                self.link.receive(parts, now)
        except HmsError as error:
            self._lost(error)
        if self.link.state is State.UP and not self._was_up:
            self._connected()
        return bool(received)

    def _take_in(self) -> bool:
        """What the reader does; whether nothing came, so that polling makes sense."""
        took = self._read()
        if took:
            self.flush()
        return not took

    def _connected(self) -> None:
        self._was_up = True
        self.lost_at = self._greeting_until = FOREVER

    def _lost(self, reason: str | HmsError) -> None:
        """The connection is gone, or an attempt to get one."""
        now = monotonic()
        was_up, is_first = self.link.state is State.UP, self.lost_at == FOREVER
        self._drop_transport(0)
        error = reason if isinstance(reason, HmsError) else self._lost_error(reason)
        is_final = self._is_hopeless(error, was_up=was_up)
        self.link.lose(error, is_final=is_final)
        if is_first:
            self.lost_at = now
        if was_up:
            self._was_up = False
            self._attempts.begin(now)
        else:
            self._attempts.failed(now)
        if was_up or is_final:
            self.link.report(error)
        self._call_thread_by(0.0)

    def _is_hopeless(self, error: HmsError, *, was_up: bool) -> bool:
        if was_up:
            return not self._reconnect
        is_refusal = not isinstance(error, TpConnectionClosed | NodeStopping)
        is_first = self.link.welcome is None
        return isinstance(error, _HOPELESS) or (is_first and is_refusal)

    def _lost_error(self, reason: str) -> HmsError:
        address = self._attempts.address
        return ConnectionLost(address=address, reason=reason)

    def _drop_transport(self, linger_ms: int) -> None:
        if self._transport is not None:
            self._waiting.watch(-1)
            self._transport.close(linger_ms)
            self._transport = None

    def _dial(self, now: float) -> None:
        self._attempts.started()
        try:
            self._transport = Transport(self._context, self._attempts.address)
        except zmq.ZMQError as fault:
            self._lost(str(fault))
            return
        self._greeting_until = now + GREETING_S
        self._waiting.watch(self._transport.fd)
        self.link.greet(now)

    # ---- the background thread's turn

    def _nobody_waits(self) -> None:
        soon = 0.0 if self.link.unattended else self._waiting.last_at + TICK_S
        if not self._thread_reads:
            self._call_thread_by(soon)

    def _call_thread_by(self, at: float) -> None:
        """Have the background thread take its turn by then."""
        if self._wakes_at > at and self._wake_fd >= 0:
            self._wakes_at = 0.0
            os.eventfd_write(self._wake_fd, 1)
