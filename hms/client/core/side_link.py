"""The side link: it looks for the log that may hold what was sent, while its main link goes on at
another log. No socket, thread or clock.

Only producers with frames that may be in that log come over, with all that they send behind those,
so their order holds; the others stay. A producer goes back as soon as nothing of it may be in that
log, and the side link ends with the last one. It is never dialled where the main link is: one
client has one connection to a node. What it closes is not said in order, as the node would forget
what it knows of this client's sends.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import structs

from hms.client.core.link import Link, State
from hms.client.core.pending_requests import TURNED_AWAY, Asked, OnLoss, Pending, Travelling
from hms.errors.catalogue import ConnectionLost
from hms.errors.tree import HmsError
from hms.wire.structures import Request, Welcome

__all__ = ["SideLink"]


class SideLink(Link):
    """See the module. addresses: where the log may be found; on_over: told that nothing is left to
    do."""

    def __init__(self, main: Link, log: bytes, addresses: Sequence[str]) -> None:
        super().__init__(structs.replace(main.hello, client_id=""), main.credentials, main)
        self.main, self.log, self.addresses = main, log, addresses
        self.welcome, self.limits, self.error = main.welcome, main.limits, main.error
        self.on_error, self.next_server_key = main.on_error, main.next_server_key
        self.on_over: Callable[[], None] | None = None
        self._wanted = log
        self._travelling: list[Travelling] = []
        self.participants.append(self)

    @classmethod
    def beside(cls, main: Link, reached: bytes) -> "SideLink | None":
        """For what is held for another log than the main link has reached; None where that is more
        than sends to one log."""
        held = list(main.held(reached))
        senders = dict.fromkeys(one.travelling for one in held)
        logs = {one.log for one in held}
        are_sends = all(one is not None and one.opening for one in senders)
        log = logs.pop() or b""
        addresses = main.places(log)
        if logs or not are_sends or not addresses:
            return None
        side = cls(main, log, addresses)
        side._take(senders)
        return side

    def _take(self, senders: dict[Travelling | None, None]) -> None:
        main = self.main
        own = {n: one for n, one in main.asked.items() if one.travelling in senders}
        self.asked = own
        main.asked = {n: one for n, one in main.asked.items() if n not in own}
        for one in senders:
            if one is not None:
                one.move(self)
                self._travelling.append(one)
                one.push()
        for push in list(main.on_room.values()):  # their places in its window are free
            push()

    def rejoin(self, log: bytes) -> None:
        """All of it is the main link's again."""
        if log != self._wanted:
            return
        self._send_home(self._travelling)
        self._end()

    def given_up(self) -> None:
        """What is in doubt is sent no more, and what waits behind it need not wait."""
        if self.state is not State.UP:
            self._end_late(self.error)
            self._settle()

    # ---- as of any link

    def receive(self, parts: Sequence[bytes | memoryview], now: float) -> None:
        """Take a frame in; who has all answers goes back."""
        super().receive(parts, now)
        self._settle()

    def lose(self, error: HmsError, *, is_final: bool) -> None:
        """The connection is gone. For good: what is in flight is in doubt, the rest goes back."""
        if self.state is State.ENDED:
            return
        unwritten: dict[int, Asked] = {}
        if is_final:
            self.on_room.clear()
            unwritten = {n: one for n, one in self.asked.items() if self._is_unwritten(one)}
            self.asked = {n: one for n, one in self.asked.items() if n not in unwritten}
        super().lose(error, is_final=is_final)
        if is_final:
            self._send_home(self._travelling, unwritten)
        self._settle()

    @staticmethod
    def _is_unwritten(one: Asked) -> bool:
        return one.travelling is not None and not one.is_written

    def _welcomed(self, welcome: Welcome, now_s: float) -> None:
        if welcome.log != self._wanted:
            reason = "it writes another log than the one that is looked for"
            raise ConnectionLost(address=self.address, reason=reason)
        super()._welcomed(welcome, now_s)
        self.members = ()  # they write other logs

    # ---- as a participant of itself

    tick_s = 0.0

    def restore(self) -> None:
        """Open there what is looked after here."""
        openings = [one.opening for one in self._travelling if one.opening is not None]
        for session in {opening[0].session: opening[0] for opening in openings}.values():
            self._open(session)
        for one in self._travelling:
            if one.opening is not None:
                again = structs.replace(one.opening[1], sent_before=one.last_sequence)
                self._open(again, partial(self._opened, one))

    def _open(self, request: Request, then: Callable[[Pending], None] | None = None) -> None:
        self.request(request, Pending(type(request).__name__, OnLoss.DONE, then=then))

    def _opened(self, one: Travelling, pending: Pending) -> None:
        if pending.error is not None:
            self._refused(one, pending.error)
        if pending.error is not None or not pending.payload:
            return
        said = pending.value()
        if "last_sequence" in said and not said.get("forgotten"):
            lost = one.lost_of(self.log, int(said["last_sequence"]))
            if lost is not None:
                self.report(lost)

    def _refused(self, one: Travelling, error: HmsError) -> None:
        """The node of that log takes nothing of a producer any more: what it may have is in doubt,
        what it cannot have goes back."""
        for number, asked in list(self.asked.items()):
            if asked.travelling is one and asked.is_repeated:
                del self.asked[number]
                asked.estranged(TURNED_AWAY.format(error))
        for asked in self.asked.values():
            if asked.travelling is one:
                asked.is_written, asked.log = False, None
        self._send_home([one])

    def lost(self, error: HmsError) -> None:
        """Nothing but what is asked."""

    def drain(self) -> None:
        """Nothing is held back."""

    def tick(self) -> None:
        """Nothing is due."""

    def leave(self) -> Pending | None:
        """Nothing is said."""
        return None

    # ---- the way back

    def _settle(self) -> None:
        held = {one.travelling for one in self.asked.values() if one.is_written}
        is_up = self.state is State.UP  # then what waits goes where the frames before it went
        self._send_home(
            [one for one in self._travelling if one.is_idle or not (is_up or one in held)]
        )
        if not self._travelling:
            self._end()

    def _send_home(self, senders: list[Travelling], more: dict[int, Asked] | None = None) -> None:
        """With their frames, and with more of them."""
        own = {n: one for n, one in self.asked.items() if one.travelling in senders}
        self.asked = {n: one for n, one in self.asked.items() if n not in own}
        self._travelling = [one for one in self._travelling if one not in senders]
        for one in senders:
            one.move(self.main)
        self.main.adopt(own | (more or {}))
        for one in senders:
            one.push()

    def _end(self) -> None:
        self.main.side = None
        on_over, self.on_over = self.on_over, None
        if on_over is not None:
            on_over()
