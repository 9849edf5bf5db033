"""Callers: the descriptors of accepted connections, and how one of them is cut.

libzmq accepts every connection, and a ROUTER socket cannot end a connection of its own. A caller
that never says HELLO, or that was given up and stays, would keep a descriptor for good; enough of
them, and the log cannot open its next segment. The socket's monitor names the descriptor of each
connection as it is accepted, every frame carries it too (ZMQ_SRCFD), and shutdown(2) ends exactly
that one. libzmq then closes it.

libzmq assembles a frame of many parts before anybody sees it, however much it is. So the kernel is
asked how many bytes libzmq has read of a connection, every few milliseconds while something comes
and no frame is complete: Arrivals tells of which. One whose frames keep coming costs no such
question, an idle one a question now and then.
"""

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import zmq

from hms.server.listening_filter import attach, program
from hms.server.logins.callers import UNKNOWN
from hms.server.logins.callers import Caller as Who

__all__ = ["BYTES_BEFORE_LOGIN", "NEVER", "Arrivals", "Caller", "Callers", "descriptor_of"]

_EVENT = struct.Struct("=HI")
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_LISTENING
_EVENTS_PER_TURN = 1024
_INT = struct.Struct("=i")
_CREDENTIALS = struct.Struct("=iII")
"""Process, user and group of struct ucred."""
_TCP_INFO_BYTES = 136
_TCP_BYTES = struct.Struct("=QQ")
_TCP_BYTES_AT = 120
"""tcpi_bytes_acked and tcpi_bytes_received of struct tcp_info, linux/tcp.h."""
_PEEK_OFF = 42
_PEEK_OFF_MAX = 0x7FFF_FFFF
_PEEK_OFF_LOW = 1 << 30
"""SO_PEEK_OFF of asm-generic/socket.h: on a local socket the kernel lowers it by what is read, and
nobody here reads ahead, so it counts."""
_ARRIVAL = select.EPOLLIN | select.EPOLLONESHOT
BYTES_BEFORE_LOGIN = 16 << 10
"""A HELLO is shorter: five names of 255 characters at most."""
STRAYS_MAX = 256
"""More than a client has on its way when it is given up."""
BYTES_OF_HANDSHAKE = 4096
BYTES_OF_PING = 24
"""A ping and an answer to one, with room to spare."""
NEVER, LEFT = -1.0, -2.0


@dataclass(slots=True)
class Caller:
    """One connection. inode: of its socket, as a descriptor is used again. idle_at: when it was
    first seen without a peer, in seconds of the gateway's clock."""

    descriptor: int
    inode: int
    listener: str = ""
    """What its listener is called."""
    has_peer: bool = False
    idle_at: float | None = None
    greeted_at: float | None = None
    is_ending: bool = False
    """It was cut to make room, and the monitor has not told yet that it is closed."""
    is_cut: bool = False
    peer: int = 0
    """The key of the last peer that it had."""
    strays: int = 0
    """Frames that were refused since it had a peer last."""
    probes: int = 0
    """How often it was asked whether it is gone, since the system closed it."""
    taken_bytes: int = 0
    """Of the frames that were taken out of libzmq, as they crossed the wire."""
    unheard_bytes: int = 0
    """What has come since it was last heard, as the last look found."""
    suspicions: int = 0
    """How many looks in turn found more than one frame can be."""
    heard_at: float = NEVER
    """When a look found that it was heard last."""
    _counts_from: float = NEVER
    _heard_bytes: int = 0
    """Since when bytes are counted, and how many had come then."""
    _seen_bytes: int = 0
    _local_bytes: int = -1
    """What was read of a local socket before its counter was set; -1: this is none."""

    def who(self) -> Who:
        """Where it comes from, of one that has sent no frame yet."""
        found = Who(self.listener, UNKNOWN)
        with contextlib.suppress(OSError, struct.error):
            if os.fstat(self.descriptor).st_ino == self.inode:
                connection = socket.socket(fileno=self.descriptor)
                try:
                    found = _who(connection, self.listener)
                finally:
                    connection.detach()  # the descriptor is libzmq's
        return found

    def count_reads(self) -> None:
        """Have the kernel count what is read of it, where it does not do so by itself."""
        connection = self._socket()
        if connection is None:
            return
        try:
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_UNIX:
                connection.setsockopt(socket.SOL_SOCKET, _PEEK_OFF, _PEEK_OFF_MAX)
                self._local_bytes = 0
        except OSError:
            pass  # it has gone already
        finally:
            connection.detach()

    def look(self) -> bool:
        """Find how much has come since it was last heard: of one frame, or of none. False when
        nothing has come since the last look."""
        came = self.read_bytes()
        if came is None:
            return False
        if self._counts_from != self.heard_at:
            self._counts_from, self._heard_bytes, self._seen_bytes = self.heard_at, came, came
            return True
        has_grown, self._seen_bytes = came != self._seen_bytes, came
        self.unheard_bytes = came - self._heard_bytes
        return has_grown

    def unfinished_bytes(self, age_s: float, ping_s: float) -> int:
        """How much has come and not been taken out, as its frame is not complete; what libzmq says
        to libzmq is taken off."""
        came = self.read_bytes()
        if came is None:
            return 0
        own = BYTES_OF_HANDSHAKE + int(BYTES_OF_PING * age_s / ping_s)
        return max(0, came - self.taken_bytes - own)

    def read_bytes(self) -> int | None:
        """How many bytes libzmq has read of it; None when it is gone."""
        connection = self._socket()
        if connection is None:
            return None
        try:
            if self._local_bytes >= 0:
                return self._read_of_local(connection)
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            # What came is asked first: what comes meanwhile makes it less, never more.
            waiting = fcntl.ioctl(connection, termios.FIONREAD, bytes(4))
            return int(_TCP_BYTES.unpack_from(info, _TCP_BYTES_AT)[1] - _INT.unpack(waiting)[0])
        except (OSError, struct.error):
            return None
        finally:
            connection.detach()  # the descriptor is libzmq's

    def _read_of_local(self, connection: socket.socket) -> int:
        left = connection.getsockopt(socket.SOL_SOCKET, _PEEK_OFF)
        if left < _PEEK_OFF_LOW:
            connection.setsockopt(socket.SOL_SOCKET, _PEEK_OFF, _PEEK_OFF_MAX)
            self._local_bytes += _PEEK_OFF_MAX - left
            return self._local_bytes
        return self._local_bytes + _PEEK_OFF_MAX - left

    def acknowledged_bytes(self) -> int | None:
        """Bytes that the other side has acknowledged; None where TCP is not spoken, or when the
        connection is gone."""
        connection = self._socket() if self._local_bytes < 0 else None
        if connection is None:
            return None
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            return int(_TCP_BYTES.unpack_from(info, _TCP_BYTES_AT)[0])
        except (OSError, struct.error):
            return None
        finally:
            connection.detach()

    def _socket(self) -> socket.socket | None:
        """Its descriptor to ask the kernel with, to be detached; None when it is another's now."""
        try:
            if os.fstat(self.descriptor).st_ino == self.inode:
                return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, self.descriptor)
        except OSError:
            pass
        return None

    def cut(self) -> None:
        """End the connection, unless its descriptor is another's by now.

        libzmq closes it in a thread of its own, so a copy is looked at. When a flood has taken the
        last descriptor there is none for a copy, and just then it must be ended.
        """
        self.is_cut = True
        with contextlib.suppress(OSError):
            try:
                copy = os.dup(self.descriptor)
            except OSError as fault:
                if fault.errno == errno.EMFILE:
                    self._shut(self.descriptor)
                return
            try:
                self._shut(copy)
            finally:
                os.close(copy)

    def _shut(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_ino != self.inode:
            return
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()  # it is closed by its owner

    def left(self) -> None:
        """Its peer is known no more; the connection may say HELLO again, or has to go."""
        self.has_peer, self.heard_at, self._counts_from = False, LEFT, LEFT


class Arrivals:
    """Which connections bring something; of all listening sockets of a gateway.

    The kernel tells once of each: then it is active, until a look finds that nothing more came. It
    tells nothing of what libzmq has read before the main thread asks, as when little comes at a
    time and the processor is shared: wake_some() has the quiet ones looked at in turn.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.at = self._epoll.fileno()
        """Readable when one became active; to be waited for."""
        self._quiet: dict[int, Caller] = {}
        self.active: dict[int, Caller] = {}

    def add(self, caller: Caller) -> None:
        """A new connection."""
        self.active.pop(caller.descriptor, None)
        self._quiet[caller.descriptor] = caller
        with contextlib.suppress(OSError):  # it may have gone already
            self._epoll.register(caller.descriptor, _ARRIVAL)

    def remove(self, caller: Caller) -> None:
        """It was closed; the kernel knows."""
        for where in (self._quiet, self.active):
            if where.get(caller.descriptor) is caller:
                del where[caller.descriptor]

    def take_events(self) -> None:
        """Note who became active."""
        for descriptor, _ in self._epoll.poll(0):
            caller = self._quiet.pop(descriptor, None)
            if caller is not None:
                self.active[descriptor] = caller

    def wake_some(self, count: int) -> None:
        """Have so many looked at of which the kernel has told nothing for longest."""
        for descriptor in list(islice(self._quiet, count)):
            self.active[descriptor] = self._quiet.pop(descriptor)

    def rest(self, caller: Caller) -> None:
        """Nothing came of late: be told again when something does."""
        if self.active.pop(caller.descriptor, None) is not None:
            self._quiet[caller.descriptor] = caller
            try:  # noqa: SIM105 - suppress() is three calls, for each message that comes alone
                self._epoll.modify(caller.descriptor, _ARRIVAL)
            except OSError:
                pass  # it has gone already

    def close(self) -> None:
        """Be told of nobody any more."""
        self._epoll.close()


class Callers:
    """The connections of one listening socket, in the order of their acceptance.

    All sockets of a gateway together keep at most callers_max: beyond, those without a peer are
    cut, the oldest first. everywhere: the callers of all of them. login_s: how long one may be
    there without a peer. name: of the listener; on_cut: told of whom is cut, and why.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        listening: "zmq.Socket[bytes]",
        callers_max: int,
        login_s: float,
        everywhere: "list[Callers]",
        arrivals: Arrivals,
        name: str = "",
        on_cut: Callable[[Caller, str], None] = lambda _caller, _why: None,
    ) -> None:
        self._max, self._everywhere, self._arrivals = callers_max, everywhere, arrivals
        self._name, self._on_cut = name, on_cut
        everywhere.append(self)
        self._login_s = login_s
        self._callers: dict[int, Caller] = {}
        self.ending = 0
        """So many of them were cut to make room and are not closed yet."""
        self.gone: list[Caller] = []
        """Those that had a peer and were closed, by the other side or by the system; a caller who
        looks at them takes them away."""
        self._listening = listening
        self._at = -1
        """The listening descriptor, as the monitor tells it."""
        self._dropped: tuple[str, ...] = ()
        self._is_filtered = False
        address = f"inproc://callers-{id(self)}"
        listening.monitor(address, _EVENTS)
        self.monitor = context.socket(zmq.PAIR)
        # Unlimited: libzmq's I/O thread would wait for room, and with it every connection.
        self.monitor.setsockopt(zmq.RCVHWM, 0)
        self.monitor.connect(address)
        self.monitor_fd = int(self.monitor.getsockopt(zmq.FD))
        """Readable when events have come since all were taken, at first or later; it says so once.
        To ask the socket itself costs four calls of the system each time that the node sleeps."""

    def __len__(self) -> int:
        """Connections that are open."""
        return len(self._callers)

    def take_events(self) -> bool:
        """Note who came and who went; cut the oldest without a peer when there are too many.
        Whether more may be to be taken, which the descriptor does not say again."""
        has_more = self._take_some()
        over = sum(len(callers) - callers.ending for callers in self._everywhere) - self._max
        if over > 0:
            self._cut_idle(over)
        return has_more

    def _take_some(self) -> bool:
        """Note so many events, and tell whether more may wait."""
        for _ in range(_EVENTS_PER_TURN):
            try:
                parts = self.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return False
            self._note(*_EVENT.unpack(parts[0]))
        return True

    def greeted(self, descriptor: int) -> Caller:
        """The connection has a peer now. What the monitor says of it may not be read yet, and may
        stand behind what it says of thousands of others."""
        while self._take_some():
            pass
        caller = self._callers.get(descriptor) or Caller(-1, -1)
        caller.has_peer, caller.idle_at, caller.strays = True, None, 0
        return caller

    def strayed(self, descriptor: int, size: int) -> None:
        """A connection without a peer has sent a frame of so many bytes that was refused: cut it,
        if it never had a peer and that is much, or if it goes on for long."""
        caller = self._callers.get(descriptor)
        if caller is None:
            return
        caller.strays += 1
        is_large = size > BYTES_BEFORE_LOGIN and caller.greeted_at is None
        if is_large or caller.strays == STRAYS_MAX:
            self._cut(caller, f"it sent {caller.strays} frames that were refused")

    def cut_all(self) -> None:
        """Nobody stays; the socket is to listen anew."""
        self._at = -1
        while self._take_some():
            pass
        for caller in self._callers.values():
            caller.cut()

    def drop(self, sources: tuple[str, ...]) -> None:
        """Have the kernel drop what opens a connection from these addresses, and from no other.
        Where it cannot, all come in as before."""
        self._dropped = sources
        code = program(sources)
        if code or self._is_filtered:
            self._is_filtered = attach(self._at, code) and bool(code)

    def tend(self, now: float) -> None:
        """Cut those that have had no peer for login_s."""
        for caller in list(self._callers.values()):
            if caller.has_peer:
                continue
            if caller.idle_at is None:
                caller.idle_at = now
            elif now - caller.idle_at > self._login_s:
                self._cut(caller, f"it said no HELLO within {self._login_s:g} s")

    def close(self) -> None:
        """End the monitor."""
        with contextlib.suppress(zmq.ZMQError):
            self._listening.disable_monitor()
        self.monitor.close(0)

    def _note(self, event: int, descriptor: int) -> None:
        if event == zmq.EVENT_LISTENING:
            self._at, self._is_filtered = descriptor, False
            self.drop(self._dropped)
            return
        before = self._callers.pop(descriptor, None)
        if before is not None:
            self.ending -= before.is_ending
            self._arrivals.remove(before)
            if before.has_peer:
                self.gone.append(before)
        if event != zmq.EVENT_ACCEPTED:
            return
        with contextlib.suppress(OSError):  # it may have gone already
            caller = Caller(descriptor, os.fstat(descriptor).st_ino, self._name)
            caller.count_reads()
            self._callers[descriptor] = caller
            self._arrivals.add(caller)

    def _cut_idle(self, count: int) -> None:
        idle = [one for one in self._callers.values() if not (one.has_peer or one.is_ending)]
        for caller in idle[:count]:
            caller.is_ending = True
            self.ending += 1
            self._cut(caller, "there are too many connections, and it has said no HELLO")

    def _cut(self, caller: Caller, why: str) -> None:
        if not caller.is_cut:
            self._on_cut(caller, why)
        caller.cut()


def _who(connection: socket.socket, listener: str) -> Who:
    if connection.family == socket.AF_UNIX:
        said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, gid = _CREDENTIALS.unpack(said)
        return Who(listener, "", uid, gid)
    return Who(listener, str(connection.getpeername()[0]))


def descriptor_of(part: Any) -> int:
    """The descriptor of the connection that a received part came through; -1 when not known."""
    try:
        return int(part.get(zmq.SRCFD))
    except (zmq.ZMQError, ValueError):
        return -1
