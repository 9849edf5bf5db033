"""Transport loop: what carries a link: one ZeroMQ socket after the other. It never waits.

Two drivers carry it on: thread_driver.py with threads, loop_driver.py in an event loop. They watch
the socket and wake the threads or tasks that wait. What is due by the clock stands in
heartbeat.py."""

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

import zmq

from hms.client.core.addresses import arranged
from hms.client.core.connection_options import Options
from hms.client.core.events import EventKind
from hms.client.core.inquiry import SILENT_S, Inquiry
from hms.client.core.link import Link, State
from hms.client.core.link_participants import Ticking
from hms.client.core.operations import FOREVER
from hms.client.core.reconnection import Attempts
from hms.client.core.side_link import SideLink
from hms.client.core.transport import Transport, contexts
from hms.errors.catalogue import (
    ConnectionClosed,
    ConnectionLost,
    LoginExpired,
    LoginRefused,
    NodeStopping,
    NotPrimary,
    ServerKeyMismatch,
    TpConnectionClosed,
    TpProtocol,
    TpSecurity,
)
from hms.errors.tree import HmsError

_LOGGER = logging.getLogger("hms.client")
GREETING_S = 5.0
"""How long a node may take until WELCOME, when it has said something."""
LOOK_BACK_S = 30.0
"""How long, and at most a third of request_timeout_s, the log that may hold what is not confirmed
is looked for at all the addresses, before another one is taken."""
LOOK_PAUSE_S = 0.5
"""The longest pause between two looks."""
HANDSHAKES_MIN = 4
"""A node that ends in the middle of one looks like a wrong key: so often in a row at one address it
is one. The second attempt follows at once, so that one end may take two; the fourth 0.3 s later."""
_HOPELESS = (TpSecurity, TpProtocol)


class SideDriver(Protocol):
    """What carries a side link on."""

    def begin(self) -> None:
        """Begin to connect."""

    def flush(self) -> None:
        """Send what it has to send."""

    def stop(self, error: HmsError, linger_ms: int) -> None:
        """End for good."""


class Shell(Protocol):
    """What a transport loop needs of the driver that carries it on."""

    def beside(self, link: Link, addresses: Sequence[str], /) -> SideDriver:
        """Another driver for a link of the same client, under the same lock."""

    def wake(self, keys: Sequence[object], /) -> None:
        """Wake who waits for one of these keys; None among them: everybody."""

    def come_by(self, at: float, /) -> None:
        """Have a turn of the heartbeat taken by then."""

    def watch(self, transport: Transport | None, /) -> None:
        """Watch this socket from now on instead of the one before."""

    def after_flush(self) -> None:
        """Have link.calls run, and read what nobody waits for."""

    @property
    def is_polled(self) -> bool:
        """Whether somebody polls the socket, for whom sending may have taken the signal."""


class TransportLoop:
    """See the module. Callers that touch link hold the driver's lock and call flush() after it."""

    def __init__(
        self, link: Link, addresses: Sequence[str], options: Options, shell: Shell
    ) -> None:
        self.link = link
        self.addresses = arranged(addresses, options.address_order)
        self.transport: Transport | None = None
        self.lost_at = FOREVER
        """When the outage began; FOREVER while there is none."""
        self.greeting_until = FOREVER
        self._dialed_at = -FOREVER
        self.ticks: list[tuple[float, Ticking]] = []
        self._shell = shell
        self._reconnect = options.reconnect
        self._looks_s = min(LOOK_BACK_S, options.request_timeout_s / 3)
        self._is_server = options.is_server
        self.attempts = Attempts(
            self.addresses, options.reconnect_interval_s, options.reconnect_period_s
        )
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._keys = options.keys
        self._key_turn = 0
        self._failed_handshakes: dict[str, int] = {}
        """How often in a row, by address."""
        self._refused: set[str] = set()
        self._was_up = self._has_others = False
        """_has_others: the log that answers may be led by another replica."""
        self.inquiry = Inquiry(self)
        self._side: SideDriver | None = None
        self._is_side = isinstance(link, SideLink)
        if not self._is_side:
            link.on_part = self._part
        self._ended: LoginExpired | None = None
        """How the node ended the login, until there is another one."""
        self._moved_to: list[str] = []
        self._moved_in = 0
        """Where the node that moved sends its clients, and in which epoch it said so."""
        self.followed: NotPrimary | None = None
        """What a replica that follows has said last."""

    # ---- lock held

    def flush(self) -> None:
        """Send what the link has to send, wake who waits for what came, plan what is due."""
        link = self.link
        while link.outbox:
            self._send_outbox()
        if link.woken:
            woken, link.woken = link.woken, []
            self._shell.wake(woken)
        if link.ticking:
            self._plan_ticks()
        if self._has_others and link.asked and self.inquiry.waits_since == FOREVER:
            self._expect()
        if link.calls or link.unattended:
            self._shell.after_flush()
        if self._side is not None:
            self._side.flush()

    def _part(self, log: bytes) -> bool:
        """Another log answers than the one that may hold what was sent: look for it beside."""
        link = self.link
        if link.side is not None or (side := SideLink.beside(link, log)) is None:
            return False
        link.side = side
        self._side = driver = self._shell.beside(side, side.addresses)
        side.on_over = self._side_is_over
        driver.begin()
        return True

    def _side_is_over(self) -> None:
        driver, self._side = self._side, None
        if driver is not None:
            driver.stop(ConnectionClosed(what="connection"), 0)

    def _expect(self) -> None:
        """A request waits from now on: when nothing is heard others are asked."""
        inquiry = self.inquiry
        inquiry.waits_since = monotonic()
        if not inquiry.is_due:
            inquiry.is_due = True
            self._shell.come_by(inquiry.waits_since + SILENT_S)

    def _plan_ticks(self) -> None:
        now = monotonic()
        ticking, self.link.ticking = self.link.ticking, []
        for participant in ticking:
            self.ticks.append((now + participant.tick_s, participant))
            self._shell.come_by(now + participant.tick_s)

    def begin(self) -> None:
        """Begin to connect."""
        self._context = contexts.acquire()
        self.attempts.begin(monotonic())

    def stop(self, error: HmsError, linger_ms: int) -> None:
        """End for good."""
        self.drop_transport(linger_ms)
        self.link.lose(error, is_final=True)
        self.flush()
        self._shell.come_by(0.0)

    @property
    def is_refused(self) -> bool:
        """Whether nothing listens at any of the addresses: each refused the last attempt."""
        return self._refused.issuperset(self.addresses)

    # ---- the socket

    def _send_outbox(self) -> None:
        link, transport = self.link, self.transport
        outbox, link.outbox = link.outbox, []
        if transport is None:
            return
        try:
            for frame in outbox:
                transport.send(frame)
        except zmq.ZMQError as fault:
            self.lost(str(fault))
            return
        link.sent_at = monotonic()
        if self._shell.is_polled:  # sending may have taken the signal: look whether there is input
            while self.transport is transport and transport.has_input():
                self.read(transport)

    def read(self, transport: Transport) -> None:
        """Take frames in, of which the transport's has_input() has told; there may be more."""
        received = transport.receive()
        now = monotonic()
        self.inquiry.waits_since = FOREVER
        try:
            for parts in received:
                self.link.receive(parts, now)
            if received and self.greeting_until != FOREVER:
                self.greeting_until = max(self.greeting_until, self._dialed_at + GREETING_S)
        except HmsError as error:
            self.lost(error)
        if self.link.state is State.UP and not self._was_up:
            self._connected()

    def take_in(self) -> bool:
        """Read and do what follows; whether nothing came, so that polling makes sense."""
        transport = self.transport
        if transport is None or not transport.has_input():
            return True
        self.read(transport)
        self.flush()
        return False

    def _connected(self) -> None:
        self._was_up, self._ended, self._moved_to = True, None, []
        welcome = self.link.welcome
        has_epochs = welcome is not None and welcome.epoch > 0
        self._has_others = has_epochs and not self._is_server and bool(self.others())
        if self.lost_at != FOREVER:
            self.link.announce(EventKind.RECONNECTED)
        self.lost_at = self.greeting_until = FOREVER

    def lost(self, reason: str | HmsError) -> None:
        """The connection is gone, or an attempt to get one."""
        now, link = monotonic(), self.link
        was_up, is_first = link.state is State.UP, self.lost_at == FOREVER
        error = reason if isinstance(reason, HmsError) else self._why(reason)
        if isinstance(error, LoginExpired):
            self._ended = error
        elif isinstance(error, LoginRefused) and self._ended is not None:
            error = self._ended  # the same proof once more is no news; that it holds no more is
        self.drop_transport(0)
        is_final = self._is_hopeless(error, was_up=was_up)
        link.lose(error, is_final=is_final)
        self._announce_loss(error, was_up=was_up)
        if is_first and link.welcome is not None:
            self.lost_at = now
        if was_up:
            self._was_up = False
            self.attempts.learn(() if self._is_server else self.link.members)
            self.attempts.learn_replicas(() if self._is_server else self.link.replicas)
            self.attempts.begin(now)
            self._follow(error, now, was_up=True)
            link.looks_until = now + self._looks_s if len(self.addresses) > 1 else 0.0
        else:
            self.attempts.failed(now)
            self._follow(error, now, was_up=False)
            if link.is_looking or self._is_side:
                self.attempts.due_by(now + LOOK_PAUSE_S)
        if is_final or (was_up and not isinstance(error, NotPrimary)):
            link.report(error)
        self._shell.come_by(0.0)

    def _follow(self, error: HmsError, now: float, *, was_up: bool) -> None:
        """A replica that follows says who leads. A client that knows replicas goes to those only:
        before the first WELCOME a replica that was given is believed. What one says of an epoch
        that is over is not followed."""
        if not isinstance(error, NotPrimary) or self._is_server:
            return
        self.followed = error
        if int(error.fields.get("epoch") or 0) < self.link.epoch_seen:
            return
        addresses = str(error.fields["addresses"]).split()
        if self.link.welcome is None:
            self.attempts.learn_replicas(addresses)
        if was_up:
            self._moved_to, self._moved_in = addresses, int(error.fields.get("epoch") or 0)
        elif self._is_to_lead(error):
            self.attempts.stay(now)
            return
        self.attempts.go_to(addresses, now)

    def _is_to_lead(self, error: NotPrimary) -> bool:
        """Whether the replica that answered leads in a moment: it says so, or the one before said
        so, and it has not heard it yet."""
        if error.fields["primary"] == error.fields["replica"]:
            return True
        epoch = int(error.fields.get("epoch") or 0)
        return self.link.address in self._moved_to and epoch <= self._moved_in

    def note_refusal(self, *, is_it: bool) -> None:
        """Whether nothing listens where the last attempt went."""
        if is_it:
            self._refused.add(self.attempts.address)
        else:
            self._refused.discard(self.attempts.address)

    def _why(self, reason: str) -> HmsError:
        """The error for a socket that is gone. A handshake that fails again and again, with each of
        the keys, is no outage: libzmq would try for ever and tell nobody."""
        transport = self.transport
        if transport is not None and transport.is_refused:
            return LoginRefused(address=self.attempts.address)
        if transport is not None and transport.has_failed_handshake:
            self._key_turn += 1
            address = self.attempts.address
            failed = self._failed_handshakes[address] = self._failed_handshakes.get(address, 0) + 1
            tries = HANDSHAKES_MIN + (len(self._keys.servers) if self._keys else 0)
            if failed >= tries and self.link.welcome is None:
                return ServerKeyMismatch(address=address)
        else:
            self._failed_handshakes.pop(self.attempts.address, None)
        return self.lost_error(reason)

    def _announce_loss(self, error: HmsError, *, was_up: bool) -> None:
        if self.link.welcome is not None:  # else connect() itself raises it
            kind = EventKind.CLOSED if was_up else EventKind.RECONNECT_FAILED
            kind = EventKind.MOVED if was_up and isinstance(error, NotPrimary) else kind
            self.link.announce(kind, error)

    def _is_hopeless(self, error: HmsError, *, was_up: bool) -> bool:
        if was_up:
            return not self._reconnect
        is_refusal = not isinstance(error, TpConnectionClosed | NodeStopping)
        is_first = self.link.welcome is None
        return isinstance(error, _HOPELESS) or (is_first and is_refusal)

    def lost_error(self, reason: str) -> HmsError:
        """The error for an ordinary loss."""
        return ConnectionLost(address=self.attempts.address, reason=reason)

    def drop_transport(self, linger_ms: int) -> None:
        """Close the socket, if there is one."""
        self._has_others = False
        self.inquiry.end()
        if self.transport is not None:
            self._shell.watch(None)
            self.transport.close(linger_ms)
            self.transport = None

    def give_back(self, *, waits: bool = False) -> None:
        """Give back what was taken of ZeroMQ; waits: for frames that have still to leave."""
        if self._context is not None:
            self._context = None
            contexts.release(waits=waits)

    def others(self) -> Sequence[str]:
        """Where the log may be found beside the address that is connected."""
        known = dict.fromkeys((*self.addresses, *self.link.replicas))
        return [one for one in known if one != self.link.address]

    def has_input(self) -> bool:
        """Whether the node has said something that nobody has read yet."""
        return self.transport is not None and bool(self.transport.has_input())

    def leave(self, reason: str, addresses: Sequence[str]) -> None:
        """The node is silent, and another one leads: there, or at one of the next addresses."""
        was_up = self.link.state is State.UP
        self.lost(reason)
        if was_up:
            self.attempts.pass_over()
        self.attempts.go_to(addresses, monotonic())

    def open(self, address: str) -> Transport:
        """A socket to that address. zmq.ZMQError."""
        assert self._context is not None
        keys = self._keys
        if keys is None or address.startswith("ipc://"):
            return Transport(self._context, address)
        next_key = self.link.next_server_key
        known = (*keys.servers, next_key) if next_key else keys.servers
        return Transport(self._context, address, keys, known[self._key_turn % len(known)])

    def dial(self, now: float) -> None:
        """Try the address whose turn it is."""
        self.attempts.started()
        patience_s = self.attempts.patience_s
        address = self.link.address = self.attempts.address
        self.link.is_private = address.startswith("ipc://") or self._keys is not None
        try:
            self.transport = self.open(address)
        except zmq.ZMQError as fault:
            self.lost(str(fault))
            return
        self._dialed_at, self.greeting_until = now, now + patience_s
        self._shell.watch(self.transport)
        self.link.greet(now)
        if self.link.epoch_seen and not self._is_server:
            self.inquiry.waits_since = now  # one of the others may lead by then


def guarded(call: Callable[[], object]) -> object:
    """Run a function of the application; its fault must not end what calls it."""
    try:
        return call()
    except Exception:
        _LOGGER.exception("a callback of the application failed")
        return None
