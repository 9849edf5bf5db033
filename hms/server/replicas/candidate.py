"""A candidate: was granted an epoch, and asks the other copies for their promises before it leads.

It listens where a primary would. Who looks at the arbiter finds that it holds the lease, connects,
and is asked; a copy that has promised takes nothing of an older epoch any more. The log is not
touched: the copy that goes furthest is to lead, and this copy gives its lease back to that one.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from hms.errors.catalogue import ArbiterUnavailable, ReplicaFrameBad
from hms.errors.tree import HmsError
from hms.server.arbiter.interface import Arbiter, Configuration
from hms.server.replicas.frames import (
    FORMAT,
    Bye,
    Envelope,
    Fence,
    Join,
    Order,
    Promised,
    Said,
    decode,
    encode,
)
from hms.server.replicas.leadership import Leadership, Role
from hms.server.replicas.link import Group, PrimaryLink, now_s
from hms.server.replicas.log_copy import LogCopy
from hms.server.replicas.orders import refused
from hms.server.replicas.promises import End, GiveWay, Lead, Promises
from hms.store.journal.disk import Disk

__all__ = ["Candidate", "GaveUp", "Outcome"]

log = logging.getLogger("hms.replicas")

FENCING_LEASES: Final = 2
"""So long a candidate waits for promises."""
ASKS_PER_LEASE: Final = 10
RENEWALS_PER_LEASE: Final = 3
LOOKS_PER_LEASE: Final = 50


class GaveUp(NamedTuple):
    """The epoch is not opened; why."""

    why: str


Outcome = Lead | GiveWay | GaveUp


class Candidate:
    """One epoch that was granted; one thread. pauses: told now and then that it goes on."""

    def __init__(
        self,
        group: Group,
        folder: Path,
        disk: Disk,
        arbiter: Arbiter,
        leadership: Leadership,
        granted: Configuration,
        socket: PrimaryLink,
        clock_s: Callable[[], float] = now_s,
        copy: LogCopy | None = None,
    ) -> None:
        """copy: that of the follower, which knows up to where it has read it."""
        self._copy = LogCopy(disk, folder) if copy is None else copy
        self._group, self._arbiter, self._leadership = group, arbiter, leadership

        self._socket, self._clock_s, self._granted = socket, clock_s, granted
        self.promises = Promises(granted)
        self._routes: dict[bytes, bool] = {}
        """Of those who came; True: it has promised."""
        self.came: dict[str, tuple[bytes, Envelope]] = {}
        """What they said of their copies, by name: who leads then goes on with that."""
        self._begun_s = clock_s()
        self._ask_at_s = float("-inf")
        self._renew_at_s = self._begun_s + group.lease_s / RENEWALS_PER_LEASE
        self.refused = 0

    def run(self, pauses: Callable[[], None]) -> Outcome:
        """Ask until it is known who is to lead."""
        self.begin()
        while (outcome := self.step()) is None:
            pauses()
            self._socket.wait(self._group.lease_s / LOOKS_PER_LEASE)
        self.end(outcome)
        return outcome

    def begin(self) -> None:
        """The own promise is durable. Where it suffices the own log is not looked at: recovery
        does that."""
        me = self._leadership.copy_id
        if self.promises.needed == 1:
            self.promises.promised(me, End(), is_clean=True)
            return
        try:
            end, is_clean = self._copy.tail()
        finally:
            self._copy.close()
        self.promises.promised(me, end, is_clean=is_clean)
        self._begun_s = self._clock_s()  # nobody was asked before

    def step(self) -> Outcome | None:
        """One turn: what has come, who is to be asked, whether it is decided."""
        for route, *parts in self._socket.received():
            self._receive(route, parts)
        if self._leadership.role is not Role.LEADING:
            return GaveUp(f"epoch {self._leadership.seen} is known")
        if (verdict := self.promises.verdict(self._leadership.copy_id)) is not None:
            return verdict
        at_s = self._clock_s()
        if at_s >= self._renew_at_s and not self._renew(at_s):
            return GaveUp("the lease is another one's")
        if at_s - self._begun_s >= FENCING_LEASES * self._group.lease_s:
            have, needed = self.promises.have, self.promises.needed
            damaged = "".join(f", {one} is damaged" for one in sorted(self.promises.damaged))
            return GaveUp(f"{have} clean copies promised of {needed} that are needed{damaged}")
        if at_s >= self._ask_at_s:
            self._ask_at_s = at_s + self._group.lease_s / ASKS_PER_LEASE
            for route, has_promised in self._routes.items():
                if not has_promised:
                    self._send(route, Fence())
        return None

    def end(self, outcome: Outcome) -> None:
        """Those who came have joined the primary, or look who it is; a lease that is not used is
        given back, and the sockets are closed."""
        if isinstance(outcome, Lead):
            if len(outcome.by) > 1:
                log.info("epoch %d was promised by %s", self._granted.epoch, ", ".join(outcome.by))
            return
        for route in self._routes:
            self._send(route, Bye())
        to = outcome.to if isinstance(outcome, GiveWay) else ""
        why = f"{to} goes further" if isinstance(outcome, GiveWay) else outcome.why
        log.warning("%s does not lead in epoch %d: %s", self._group.me, self._granted.epoch, why)
        with suppress(HmsError):
            self._arbiter.resign(to)
        self._socket.close()
        self._leadership.gave_back(self._clock_s())

    def _renew(self, at_s: float) -> bool:
        self._renew_at_s = at_s + self._group.lease_s / RENEWALS_PER_LEASE
        try:
            if not self._arbiter.renew():
                return False
        except ArbiterUnavailable as fault:
            log.warning("the lease is not renewed: %s", fault)
        else:
            self._leadership.proved(at_s)
        return True

    def _receive(self, route: bytes, parts: list[bytes]) -> None:
        try:
            envelope, _ = decode(parts)
            if envelope.log != self._leadership.log:
                raise ReplicaFrameBad(detail=f"it is of log {envelope.log[:40]}")  # noqa: TRY301
            self._said(route, envelope)
        except ReplicaFrameBad as fault:
            self.refused += 1
            log.warning("a frame of a copy is refused: %s", fault)

    def _said(self, route: bytes, envelope: Envelope) -> None:
        name = envelope.replica
        if name not in self._group.peers or name == self._group.me:
            raise ReplicaFrameBad(detail=f"{name[:40]!r} is no other replica of this node")
        match envelope.said:
            case Join(promised=promised) if promised > self._granted.epoch:
                self._leadership.saw(promised)
            case Join():
                self._routes[route] = False
                self.came[name] = route, envelope
                self._send(route, Fence())
            case Promised() as said:
                self._promised(route, envelope, said)
            case Order() as said:
                why = f"{self._group.me} asks the other copies for their promises"
                done, data = refused(self._group.node, said.to, why, self._granted.epoch)
                self._send(route, done, data)
            case Bye():
                self._routes.pop(route, None)
                if self.came.get(name, (b"",))[0] == route:
                    del self.came[name]
            case _:
                pass  # of the time before: it is asked for its promise

    def _promised(self, route: bytes, envelope: Envelope, said: Promised) -> None:
        """One that started less often than is known went back, and may lack anything."""
        if said.epoch != self._granted.epoch or said.copy_id == self._leadership.copy_id:
            raise ReplicaFrameBad(detail=f"it promises epoch {said.epoch}")
        known = [one for one in self._granted.members if one.copy_id == said.copy_id]
        if any(one.name != envelope.replica or envelope.start < one.start for one in known):
            detail = f"copy {said.copy_id} of {envelope.replica} is another one, or went back"
            raise ReplicaFrameBad(detail=detail)
        self._routes[route] = True
        self.promises.promised(said.copy_id, End(*said.end), is_clean=said.is_clean)

    def _send(self, route: bytes, said: Said, data: bytes = b"") -> None:
        me = self._leadership
        envelope = Envelope(FORMAT, me.log, self._granted.epoch, me.me, me.start, said)
        self._socket.send(route, encode(envelope), data)
