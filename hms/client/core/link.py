"""The link to a node: what one connection after the other has in common. No socket, thread, clock.

State: OFF --greet--> GREETING --WELCOME--> UP, and from anywhere --lose--> OFF, for good --> ENDED.
A secured node may ask before WELCOME who this is (CHALLENGE); only then a password is sent.

Frames come in by receive() and go out by `outbox`. What was asked stays in `asked` until its answer
is here; asked while OFF it is sent as soon as the link is UP. After WELCOME the participants (the
sessions) open again what they had open, then what is still asked is sent again in its old order.
A send, a commit or an XA step that may be in the log of the node before is never repeated at
another log. For sends a side link (side_link.py) looks for their log while this one goes on at the
other; else that node is looked for until `looks_until`, then they end as in doubt. Where copies
of a log have a primary each in its epoch, one of an older epoch than was seen is turned away, and
what does not outlive an epoch is in doubt after it.
The driver of the link sends the outbox, wakes the threads that wait for what is in `woken`, and
runs `calls`, which are the application's own functions, where they may block.
"""

import enum
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import msgspec

from hms.client.core.credentials import Credentials
from hms.client.core.events import Event, EventKind
from hms.client.core.incoming_calls import IncomingCalls
from hms.client.core.link_participants import Caller, Participant, Receiver, Ticking
from hms.client.core.outcomes import KeyRing
from hms.client.core.pending_requests import Asked, Frame, OnLoss, Pending
from hms.client.core.restored_log import RestoredLog
from hms.errors.catalogue import (
    ConnectionClosed,
    ConnectionLost,
    InsecureTransport,
    ProtocolError,
)
from hms.errors.tree import HmsError
from hms.wire import frames, structures
from hms.wire.frames import Kind
from hms.wire.packed_messages import DELIVERED_ROW, unpack_delivered
from hms.wire.structures import Hello, Limits, Request, Welcome

_LOGGER = logging.getLogger("hms.client")

_FRAME_BYTES_SLACK = 1 << 20  # a DELIVER may be above frame_bytes_max by its rows
_ANSWERS = frozenset((Kind.REPLY, Kind.ERROR, Kind.CONFIRM, Kind.BROWSED, Kind.ANSWER))
_OF_SERVICES = frozenset((Kind.INVOKE, Kind.TALK, Kind.NOTICE))

_READY = {"consumer_ready": True, "consumer_not_ready": False}

NEW_EPOCH = "the connection was lost before they were confirmed, and another replica leads by now"
NO_CREDENTIALS = Credentials()
LOGS_KEPT = 64
"""Of so many logs it is known where they were found."""
NO_LIMITS = Limits(1 << 24, 1 << 24, 16, 1000, 30.0)
"""Assumed until the first WELCOME."""


class ClientKnows:
    """What all links of one client know: keys of logs, the numbers of questions, and of each log
    the highest epoch that was seen, where an arbiter grants them, and the addresses at which it has
    answered or may be found."""

    def __init__(self) -> None:
        self.keys = KeyRing()
        self.correlations = itertools.count(1)
        self.epochs: dict[bytes, int] = {}
        self.places: dict[bytes, dict[str, None]] = {}

    def found(self, log: bytes, addresses: Iterable[str]) -> None:
        """A log may be found there."""
        self.places[log] = self.places.pop(log, {}) | dict.fromkeys(addresses)
        if len(self.places) > LOGS_KEPT:
            del self.places[next(iter(self.places))]


class State(enum.Enum):
    """Of the link."""

    OFF = "not connected"
    GREETING = "waits for WELCOME"
    UP = "connected"
    ENDED = "closed, or lost for good"


class Link(IncomingCalls):
    """See the module. hello: who this client is; address: where the node was last looked for;
    beside: another link of the same client, which knows what this one knows. side: what looks for
    the log before while this one is at another; on_part: has one look for what is held for other
    logs than the one that is reached; whether it could."""

    restored: RestoredLog | None = None
    """Of a node whose store was made of a backup: which messages were in it."""

    def __init__(
        self,
        hello: Hello,
        credentials: Credentials = NO_CREDENTIALS,
        beside: "Link | None" = None,
    ) -> None:
        super().__init__()
        self.hello = hello
        self.address = ""
        self._renewed_by = ""
        """The last token that a function gave for a renewal."""
        self.next_server_key = b""
        """The key that the node will show, as it said over a connection where it had shown one."""
        self.is_private = True
        """Whether what is sent cannot be read on the way to the node."""
        self._credentials = credentials
        self.state = State.OFF
        self.error: HmsError = ConnectionLost(address="the node", reason="it is not connected yet")
        self.welcome: Welcome | None = None
        self.members: tuple[str, ...] = ()
        """Where else the cluster can be reached, as the node told last."""
        self.limits = NO_LIMITS
        self.outbox: list[Frame] = []
        self.log: bytes | None = None
        """Which log the node writes that answered last."""
        self.known: ClientKnows = ClientKnows() if beside is None else beside.known
        self.side: Link | None = None
        self.on_part: Callable[[bytes], bool] | None = None
        self.replicas: tuple[str, ...] = ()
        """Where the log may be found, as the node told last."""
        self.looks_until = 0.0
        """As long as another log is turned away, while something may be in the one before."""
        self.is_looking = self.is_closing = self.is_drained = False
        """is_closing: close() of the connection has begun; is_drained: the node moves to another
        machine, and said that it took nothing that it has not answered, and takes nothing more."""
        self.doubts: dict[Asked, None] = {}
        """What may have taken effect, and is asked about rather than repeated: commits."""
        self.keys = self.known.keys
        self.asked: dict[int, Asked] = {}
        self.receivers: dict[int, Receiver] = {}
        self.participants: list[Participant] = []
        self.ticking: list[Ticking] = []
        self.callers: list[Caller] = []
        """Listeners of sessions, while there are any."""
        self.sends_in_flight = 0
        self.send_bytes_in_flight = 0
        self.unattended = 0  # answers for which no thread waits; the background thread reads them
        self.on_room: dict[int, Callable[[], None]] = {}
        self.on_error: Callable[[HmsError], object] | None = None
        self.on_event: Callable[[Event], object] | None = None
        self.on_ready: Callable[[str, str, bool], None] | None = None
        self._correlations = self.known.correlations
        self._handles = itertools.count(1)
        self._greeting = 0
        self.sent_at = self._heard_at = self._looked_at = 0.0
        """When frames went out last, the node was heard, and the socket looked at."""
        self._node_began_ms: float | None = None

    # ---- what goes out

    def new_handle(self) -> int:
        """A number for a session, producer or consumer; never used twice."""
        return next(self._handles)

    def tell(self, kind: Kind, payload: bytes = b"", count: int = 1) -> None:
        """Send without expecting an answer; dropped while the link is not up."""
        if self.state is State.UP:
            self.outbox.append(frames.frame(kind, payload, 0, count))

    def ask(self, kind: Kind, payload: bytes, asked: Asked, count: int = 1) -> int:
        """Send, and remember it until the answer is here; its correlation, 0 when it failed."""
        if self.state is State.ENDED:
            asked.failed(self.error)
            return 0
        correlation = next(self._correlations) & 0xFFFF_FFFF or next(self._correlations)
        asked.frame = frames.frame(kind, payload, correlation, count)
        if self.state is State.UP and not self.is_drained:
            if asked.log is not None and asked.log != self.log:
                asked.estranged()
                return 0
            asked.is_written = True  # _bind(), in place
            if asked.is_bound:
                asked.log = self.log
            self.outbox.append(asked.frame)
        self.asked[correlation] = asked
        return correlation

    def adopt(self, asked: dict[int, Asked]) -> None:
        """Take over what another link of this client was asked, in front of what waits here."""
        if self.state is State.ENDED:
            for one in asked.values():
                one.failed(self.error)
        elif self.state is State.UP and not self.is_drained:
            self.asked |= asked
            for one in asked.values():
                self._bind(one)
                self.outbox.append(one.frame)
        else:
            self.asked = asked | self.asked

    def _bind(self, asked: Asked) -> None:
        """It is written to this node now, whose log may hold it from then on."""
        asked.is_written = True
        if asked.is_bound:
            asked.log = self.log

    def request(self, request: Request, pending: Pending) -> Pending:
        """Ask for something."""
        self.ask(Kind.REQUEST, structures.encode(request), pending)
        return pending

    def abandon(self, asked: Asked) -> None:
        """Its caller stopped waiting: do not send it again."""
        for correlation, waiting in self.asked.items():
            if waiting is asked:
                if self.state is not State.UP:
                    del self.asked[correlation]
                    asked.failed(self.error)
                elif isinstance(asked, Pending):
                    asked.on_loss = OnLoss.DONE
                return

    # ---- what time brings

    def beat(self, now: float) -> bool:
        """The socket was looked at: put a HEARTBEAT into the outbox when one is due; whether the
        node has to be taken for lost. After a pause of the program, which may hold the interpreter
        for long, the node seems silent: then it has half of its time to be heard."""
        beat_s = self.limits.heartbeat_s
        if now - self._looked_at > beat_s / 2:
            self._heard_at = max(self._heard_at, now - beat_s / 2)
        self._looked_at = now
        if self.state is not State.UP:
            return False
        if now - self.sent_at >= beat_s / 3:
            self.tell(Kind.HEARTBEAT)
        return now - self._heard_at >= beat_s

    def has_heard_since(self, at: float) -> bool:
        """Whether the node has said anything since then."""
        return self._heard_at >= at

    @property
    def due_at(self) -> float:
        """When beat() is to be asked again."""
        if self.state is not State.UP:
            return float("inf")
        beat_s = self.limits.heartbeat_s
        return min(self.sent_at + beat_s / 3, self._heard_at + beat_s)

    # ---- from state to state

    def greet(self, now: float) -> None:
        """A socket is there: begin with HELLO."""
        assert self.state is State.OFF
        self.state = State.GREETING
        self._greeting = next(self._correlations)
        self._heard_at = now
        hello = structures.encode(self.hello)
        self.outbox.append(frames.frame(Kind.HELLO, hello, self._greeting))

    def lose(self, error: HmsError, *, is_final: bool) -> None:
        """The connection is gone; with is_final nothing will ever come again."""
        was_up = self.state is State.UP
        if self.state is State.ENDED:
            return
        self.state = State.ENDED if is_final else State.OFF
        self.error = error
        self.outbox.clear()
        if is_final:
            if self.side is not None:
                self.side.lose(error, is_final=True)
            self._leave_unanswered(error)
        elif was_up:
            asked, self.asked = self.asked, {}
            again = {n: one for n, one in asked.items() if self._goes_on(one, error)}
            self.asked = again | self.asked  # a pack that waited for room may be asked meanwhile
        else:
            self._end_late(error)
        if was_up:
            for participant in list(self.participants):
                participant.lost(error)
            self.lose_talks(error)
        if is_final:
            for room in list(self.on_room.values()):
                room()
        self.woken.append(None)

    def _goes_on(self, asked: Asked, error: HmsError) -> bool:
        """Whether it is sent again on the next connection."""
        return (self.is_drained and asked.is_kept) or asked.lost(error)

    def _end_late(self, error: HmsError) -> None:
        """End what was to be sent again, and whose time is over."""
        now = monotonic()
        for number, one in list(self.asked.items()):
            if one.is_late(now):
                del self.asked[number]
                one.unanswered(error)  # it was written, else its time would not have begun

    def _drained(self) -> None:
        """What is not answered has had no effect, and will have none there."""
        self.is_drained = True
        for one in self.asked.values():
            one.is_written, one.log = False, None

    def _leave_unanswered(self, error: HmsError) -> None:
        """End all that waits for an answer; of what a node may have, only the node knows more."""
        lost = error
        if isinstance(error, ConnectionClosed):
            reason = "the connection was closed before the answer came"
            lost = ConnectionLost(address=self.address, reason=reason)
        both, self.asked, self.doubts = [*self.asked.values(), *self.doubts], {}, {}
        for one in both:
            if one.is_written:
                one.unanswered(lost)
            else:
                one.failed(error)

    # ---- what comes in

    def receive(self, parts: Sequence[bytes | memoryview], now: float) -> None:
        """Take a frame in; raises ProtocolError when the node speaks nonsense. A view of a payload
        is not kept."""
        limit = self.limits.frame_bytes_max + _FRAME_BYTES_SLACK
        envelope, lent = frames.decode_envelope(parts, limit), parts[1]
        kind = envelope.kind
        self._heard_at = now
        if kind is Kind.DELIVER:
            self._deliver(lent)
            return
        payload = lent if isinstance(lent, bytes) else bytes(lent)
        if kind in _ANSWERS:
            self._answer(kind, envelope.correlation, payload)
        elif kind in _OF_SERVICES:
            self.serve(kind, payload)
        elif kind is Kind.EVENT:
            self._event(structures.decode(payload, structures.Event))
        elif kind is Kind.CHALLENGE and self.state is State.GREETING:
            self._prove(structures.decode(payload, structures.Challenge))
        elif kind is Kind.WELCOME and self.state is State.GREETING:
            self._welcomed(structures.decode(payload, Welcome), now)
        elif kind is Kind.GOODBYE:
            reason = structures.decode_error(payload) if payload else None
            raise reason or ConnectionLost(address="the node", reason="the node said goodbye")
        elif kind is Kind.HELLO:  # nobody listened, and TCP connected the port to itself
            raise ConnectionLost(address="the node", reason="it was the client's own port")
        elif kind is not Kind.HEARTBEAT:
            raise ProtocolError(detail=f"a {kind.name} at the wrong time")

    def _deliver(self, payload: bytes | memoryview) -> None:
        receivers, count, rows_at = frames.decode_delivery(payload)
        delivered = unpack_delivered(payload, count, rows_at)
        size_bytes = len(payload) - rows_at - count * DELIVERED_ROW.size
        if self.restored is not None:
            delivered = self.restored.noted(delivered)
        for consumer, epoch in receivers:
            receiver = self.receivers.get(consumer)
            if receiver is not None:  # else it was closed meanwhile, and the node takes them back
                receiver.delivered(epoch, delivered, size_bytes)

    def _answer(self, kind: Kind, correlation: int, payload: bytes) -> None:
        asked = self.asked.pop(correlation, None)
        if asked is not None:
            request = ""
            if kind is Kind.ERROR and self.welcome is not None:
                request = structures.request_id(self.welcome.connection, correlation)
            asked.answered(kind, payload, request)
            self.woken.append(asked)
        elif kind is Kind.ERROR and (correlation == self._greeting or not correlation):
            raise structures.decode_error(payload)

    def _event(self, event: structures.Event) -> None:
        if event.what in _READY:
            if self.on_ready is not None:
                self.on_ready(event.kind, event.destination, _READY[event.what])
            return
        if event.what == "login_expires":
            self._renew_itself()
            return
        if event.what == "draining":
            for participant in list(self.participants):
                participant.drain()
            return
        if event.what == "drained":
            self._drained()
            return
        if event.what == "server_key":
            self.next_server_key = str(event.error_fields.get("key", "")).encode()
            return
        error = structures.make_error(event.error_number, event.error_fields)
        receiver = self.receivers.pop(event.consumer, None)
        if receiver is not None:
            receiver.taken_back(error)
            self.report(error)
        elif event.what == "connection_closed":
            raise error

    def node_ms(self, now_s: float) -> int | None:
        """The node's time, by which messages expire, at a time of receive()'s clock: behind by no
        more than a frame travels, never ahead. None when the node did not tell."""
        return None if self._node_began_ms is None else int(self._node_began_ms + now_s * 1000)

    def _prove(self, challenge: structures.Challenge) -> None:
        """The node asks who this is."""
        auth = self._credentials.answer(challenge, self.address, is_private=self.is_private)
        self.outbox.append(frames.frame(Kind.AUTH, structures.encode(auth), self._greeting))

    def _welcomed(self, welcome: Welcome, now_s: float) -> None:
        self._credentials.check_welcome(welcome, self.address)
        self._check_epoch(welcome)
        if self.side is not None:
            self.side.rejoin(welcome.log)
        if any(self.held(welcome.log)) and not (self.on_part and self.on_part(welcome.log)):
            if now_s < self.looks_until:
                self.is_looking = True
                reason = "it writes another log, and the one before may hold what is not confirmed"
                raise ConnectionLost(address=self.address, reason=reason)
            self._estrange(welcome.log)
        self._end_unlogged(welcome)
        self._end_late(self.error)  # while it is not UP: what waits behind goes after restore()
        self.is_looking, self.is_drained, self.log = False, False, welcome.log
        self.keys.learn(welcome)
        for asked in self.asked.values():
            self._bind(asked)
        self.welcome, self.restored = welcome, RestoredLog.told_by(welcome)
        self.hello = msgspec.structs.replace(self.hello, resume=welcome.resume)
        self.members, self.replicas = tuple(welcome.members), tuple(welcome.replicas)
        self.known.found(welcome.log, (self.address, *self.replicas))
        self._node_began_ms = welcome.now_ms - now_s * 1000 if welcome.now_ms else None
        self.limits = welcome.limits
        self.state = State.UP
        older = [one.frame for one in self.asked.values()]
        for one in list(self.participants):
            one.restore()
        self.outbox += older
        self.woken.append(None)

    @property
    def epoch_seen(self) -> int:
        """The highest epoch that was seen of the log that answered last; 0 where there are none."""
        return self.known.epochs.get(self.log or b"", 0)

    def _check_epoch(self, welcome: Welcome) -> None:
        """A primary that was replaced does not know it yet: it can confirm nothing, and what it
        tells of the log is not what the newer one has."""
        seen = self.known.epochs.get(welcome.log, 0)
        if welcome.epoch and welcome.epoch < seen:
            reason = f"it leads in epoch {welcome.epoch} of its log, and epoch {seen} has begun"
            raise ConnectionLost(address=self.address, reason=reason)

    def _end_unlogged(self, welcome: Welcome) -> None:
        """End what an earlier epoch of this log may have had, and the log does not keep: repeated,
        it might be there twice."""
        before = self.known.epochs.get(welcome.log, 0)
        if before and welcome.epoch > before:
            for correlation, one in list(self.asked.items()):
                if one.is_written and one.log == welcome.log and not one.outlives_epochs:
                    del self.asked[correlation]
                    one.estranged(NEW_EPOCH)
                    self.woken.append(one)
        if welcome.epoch:
            self.known.epochs[welcome.log] = welcome.epoch

    def renew(self, token: str, pending: Pending) -> None:
        """Prove anew who this is, by another token."""
        if not self.is_private:
            raise InsecureTransport(address=self.address)
        self.ask(
            Kind.AUTH, structures.encode(structures.Auth("TOKEN", "", token.encode())), pending
        )

    def _renew_itself(self) -> None:
        """By a further token, where a function gives one; else, or when that is not taken, the
        event listener is told."""
        token = ""
        if callable(self._credentials.token):
            try:
                token = self._credentials.fresh_token()
            except Exception as fault:  # noqa: BLE001 - of the application's function
                _LOGGER.warning("no further token: %s", fault)
        if not token or token == self._renewed_by:
            self.announce(EventKind.LOGIN_EXPIRES)
            return
        self._renewed_by = token

        def done(pending: Pending) -> None:
            if pending.error is None:
                self.renewed(token, pending.value())
            else:
                self.announce(EventKind.LOGIN_EXPIRES, pending.error)

        self.renew(token, Pending("renew()", OnLoss.FAIL, then=done))

    def renewed(self, token: str, answer: dict[str, Any]) -> None:
        """The node takes it; the next login brings it, too."""
        if not callable(self._credentials.token):
            self._credentials = replace(self._credentials, token=token, password="")
            self.hello = msgspec.structs.replace(
                self.hello, mechanisms=self._credentials.mechanisms
            )
        self.hello = msgspec.structs.replace(self.hello, resume=answer["resume"])

    def places(self, log: bytes) -> list[str]:
        """Where that log can be looked for; never where this link is."""
        return [one for one in self.known.places.get(log, ()) if one != self.address]

    @property
    def is_whole(self) -> bool:
        """Whether it is up, and its side link too if it has one."""
        return self.state is State.UP and (self.side is None or self.side.state is State.UP)

    @property
    def credentials(self) -> Credentials:
        """What it proves itself with."""
        return self._credentials

    def given_up(self) -> None:
        """A send was said to be in doubt."""

    def rejoin(self, log: bytes) -> None:
        """Its main link has reached that log: a side link that looks for it is needed no more."""

    def held(self, log: bytes) -> Iterator[Asked]:
        """What another log than this one may hold."""
        both = itertools.chain(self.asked.values(), self.doubts)
        return (one for one in both if one.log is not None and one.log != log)

    def _estrange(self, log: bytes) -> None:
        """End what another log than this one may hold."""
        for one in list(self.held(log)):
            self.doubts.pop(one, None)
            for correlation in [number for number, it in self.asked.items() if it is one]:
                del self.asked[correlation]
            one.estranged()
            self.woken.append(one)

    def report(self, error: HmsError) -> None:
        """Tell the exception listener."""
        if self.on_error is not None:
            listener = self.on_error
            self.calls.append(lambda: listener(error))

    def announce(
        self, kind: EventKind, reason: HmsError | None = None, destination: str = ""
    ) -> None:
        """Tell the event listener."""
        if self.on_event is not None:
            listener, event = self.on_event, Event(kind, self.address, reason, destination)
            self.calls.append(lambda: listener(event))
