"""Inquiry: a node that is silent while a request waits may have been replaced. The other replicas
of its log are asked at once, over sockets of their own, instead of waiting for the heartbeat. One
that does not answer HELLO keeps nobody from them either.

One that leads answers HELLO with WELCOME or CHALLENGE, one that follows says who does. Only a later
epoch of the same log is a reason to leave: one that is slow, or cut off from this client alone, has
not been replaced. A HELLO of an inquiry brings neither the client's name nor any proof of it, so
that nothing is taken over; who answers it with WELCOME is told good-bye.
"""

import os
from collections.abc import Sequence
from time import monotonic
from typing import Protocol

import msgspec
import zmq

from hms.client.core.link import Link, State
from hms.client.core.operations import FOREVER
from hms.client.core.transport import Transport
from hms.errors.catalogue import NotPrimary
from hms.errors.tree import HmsError
from hms.wire import structures
from hms.wire.client_identity import SECRET_BYTES, uid_of
from hms.wire.frames import Kind, decode_envelope, frame

__all__ = ["AGAIN_S", "ROUND_S", "SILENT_S", "Inquiry"]

SILENT_S = 1.0
"""So long a request waits, and nothing is heard, until others are asked."""
ROUND_S = 5.0
"""They are asked once in so long; once in SILENT_S while HELLO is not answered."""
AGAIN_S = 4.0, 6.0
"""Of one silence they are asked so long after its begin, too: a machine that is gone is replaced
behind a lease of 3 s, the shortest, or of 5 s, and what sends there waits for no round of 5 s."""
ANSWER_S = 1.0
LOOK_S = 0.02
"""How often their answers are looked for meanwhile."""
GOODBYE_MS = 200
ANSWER_BYTES_MAX = 1 << 20


class Leaving(Protocol):
    """Where the link is carried on. lock held."""

    link: Link

    def open(self, address: str) -> Transport:
        """A socket to that address, as for a connection. zmq.ZMQError."""

    def others(self) -> Sequence[str]:
        """Where else the log may be found."""

    def has_input(self) -> bool:
        """Whether the node has said something that nobody has read yet."""

    def leave(self, reason: str, addresses: Sequence[str]) -> None:
        """The connection is lost; go there next."""


class Inquiry:
    """See the module. waits_since: since when a request waits and nothing was heard; set by who
    sends and reads."""

    def __init__(self, loop: Leaving) -> None:
        self._loop, self._link = loop, loop.link
        self.waits_since = FOREVER
        self.is_due = False
        """A turn is to come."""
        self._asked: dict[Transport, str] = {}
        self._asked_at = -FOREVER
        self._told = ""
        """Who leads by now, from one that did not say where."""

    def turn(self, now: float) -> float:
        """Do what is due; when to come again."""
        if self._asked:
            self._look(now)
            return now + LOOK_S if self._asked else self._next(now)
        return self._next(now)

    def end(self) -> None:
        """Nobody is asked any more: the connection is another one, or there is none."""
        self._hang_up()
        self.waits_since, self.is_due = FOREVER, False

    def _hang_up(self) -> None:
        for transport in self._asked:
            transport.close()
        self._asked.clear()
        self._told = ""

    def _next(self, now: float) -> float:
        is_up = self._link.state is State.UP
        waits = self._link.asked if is_up else self._link.state is State.GREETING
        if not waits or self.waits_since == FOREVER:
            self.is_due = False
            return FOREVER
        due_at = max(self.waits_since + SILENT_S, self._again_at(is_up=is_up))
        if now < due_at:
            return due_at
        self._asked_at = now
        for address in self._loop.others():
            self._ask(address)
        return now + LOOK_S if self._asked else self._again_at(is_up=is_up)

    def _again_at(self, *, is_up: bool) -> float:
        """When the round behind the last one is."""
        if not is_up:
            return self._asked_at + SILENT_S
        ages = (self.waits_since + one for one in AGAIN_S if self._asked_at >= self.waits_since)
        return next((at for at in ages if at > self._asked_at), self._asked_at + ROUND_S)

    def _ask(self, address: str) -> None:
        secret = os.urandom(SECRET_BYTES)
        hello = msgspec.structs.replace(
            self._link.hello, uid=uid_of(secret), secret=secret, client_id="", user="", resume=b""
        )
        try:
            transport = self._loop.open(address)
            self._asked[transport] = address
            transport.send(frame(Kind.HELLO, structures.encode(hello), 1))
        except zmq.ZMQError:
            pass  # one that cannot be asked says nothing

    def _look(self, now: float) -> None:
        is_over = now >= self._asked_at + ANSWER_S
        for transport, address in list(self._asked.items()):
            leaves_for: Sequence[str] = ()
            if transport.has_input():
                leaves_for = self._answered(transport, address)
            elif not (is_over or transport.fault()):
                continue
            del self._asked[transport]
            transport.close()
            if leaves_for:
                self._leave(leaves_for)
                return
        if not self._asked and self._told:
            self._leave(())

    def _leave(self, addresses: Sequence[str]) -> None:
        """Unless the node has said something meanwhile: it may be why it stops, and what of it."""
        if self.waits_since > self._asked_at or self._loop.has_input():
            self._hang_up()
            return
        reason = f"it was silent for {monotonic() - self.waits_since:.1f} s, and {self._told}"
        self.end()
        self._loop.leave(reason, addresses)

    def _answered(self, transport: Transport, address: str) -> Sequence[str]:
        """Where to go for the one that leads by now; nothing for no reason to go."""
        try:
            for parts in transport.receive():
                kind = decode_envelope(parts, ANSWER_BYTES_MAX).kind
                payload = bytes(parts[1])
                if kind is Kind.ERROR:
                    return self._refused(address, structures.decode_error(payload))
                if kind is Kind.CHALLENGE:
                    asked = structures.decode(payload, structures.Challenge)
                    return self._leads(address, asked.node, asked.epoch)
                if kind is Kind.WELCOME:
                    transport.send(frame(Kind.GOODBYE, b"", 0))
                    transport.close(GOODBYE_MS)
                    welcome = structures.decode(payload, structures.Welcome)
                    is_same = welcome.log == self._link.log
                    return self._leads(address, welcome.node, welcome.epoch) if is_same else ()
        except (HmsError, zmq.ZMQError, LookupError, TypeError, ValueError):
            pass  # what it says is nonsense
        return ()

    def _leads(self, address: str, node: str, epoch: int) -> Sequence[str]:
        if not self._is_later(node, epoch):
            return ()
        self._told = f"{address} leads in epoch {epoch}"
        return (address,)

    def _refused(self, address: str, error: HmsError) -> Sequence[str]:
        if not isinstance(error, NotPrimary):
            return ()
        epoch, who = int(error.fields["epoch"] or 0), error.fields["primary"]
        node = str(error.fields["node"])
        if who == error.fields["replica"]:  # it listens as the node in a moment
            return self._leads(address, node, epoch)
        if self._is_later(node, epoch):
            self._told = f"{who} leads in epoch {epoch}"
            return str(error.fields["addresses"]).split()
        return ()

    def _is_later(self, node: str, epoch: int) -> bool:
        welcome = self._link.welcome
        return welcome is not None and node == welcome.node and epoch > self._link.epoch_seen
