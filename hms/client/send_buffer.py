"""Send buffer: messages of one producer, packed into frames, kept until confirmed. No socket.

A message waits in the pack while frames are in flight, so that the busier the connection is, the
fuller its frames are; with nothing in flight it leaves at once. A frame leaves when the window has
room. It is kept, as bytes, until its CONFIRM; after a reconnect the link sends the same bytes
again, and the node recognises the numbers in it (F-D9).
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import msgspec

from hms.client.core.link import Link, State
from hms.client.core.pending_requests import TURNED_AWAY, Frame, Travelling, own_copy, reason_of
from hms.client.destinations import Destination
from hms.client.message import Message
from hms.client.pending_sends import Encoded, PendingSend, SendOptions
from hms.client.receipt import Run
from hms.client.send_deadlines import Deadlines
from hms.errors.catalogue import (
    ConfirmedLost,
    HandleUnknown,
    NotAuthorized,
    RequestTimeout,
    SendInDoubt,
    TransactionRolledBack,
)
from hms.errors.tree import HmsError
from hms.wire.frames import Kind, SendHead, decode_confirm, encode_send
from hms.wire.packed_messages import message_parts
from hms.wire.structures import OpenProducer, OpenSession, decode_error

__all__ = [
    "FRAME_BYTES_MAX",
    "FRAME_MESSAGES_MAX",
    "Encoded",
    "PendingSend",
    "SendOptions",
    "Sender",
]

OTHER_LOG = "the connection was lost before they were confirmed, and only another log answers"
TEMPORARY = "HMS.TEMP."
"""How the names of temporary queues begin, which the log knows nothing of."""
RECEIPTS_KEPT = 1000
"""How many confirmed frames of a producer are compared with the log after a reconnect."""
Kept = tuple[bytes | None, int, int, int]
"""Log, first sequence number, first message id, and how many messages."""
FRAME_MESSAGES_MAX = 256
FRAME_BYTES_MAX = 256 * 1024


class FrameSize(NamedTuple):
    """The most that one frame of a producer carries; less for a destination that takes less at
    once, because a frame is taken whole or not at all."""

    messages_max: int = FRAME_MESSAGES_MAX
    bytes_max: int = FRAME_BYTES_MAX


LARGEST = FrameSize()


@dataclass(slots=True)
class Pack:
    """Messages that will be a frame."""

    is_persistent: bool
    limits: FrameSize = LARGEST
    messages: list[Encoded] = field(default_factory=list)
    sends: list[PendingSend] = field(default_factory=list)
    size_bytes: int = 0

    def fits(self, size: int, *, is_persistent: bool) -> bool:
        """Whether one more message of that size may join."""
        is_small = self.size_bytes + size <= self.limits.bytes_max
        is_alike = is_persistent == self.is_persistent
        return is_small and is_alike and len(self.messages) < self.limits.messages_max


class SendFrame(msgspec.Struct, eq=False):
    """A SEND on its way. is_repeated: a connection that is lost may have brought it before."""

    sender: "Sender"
    sends: list[PendingSend]
    first_sequence: int = 0
    is_persistent: bool = True
    handed_over_at: float = 0.0
    size_bytes: int = 0
    frame: Frame = ()
    is_bound: bool = True
    log: bytes | None = None
    is_written: bool = False
    is_repeated: bool = False
    is_done: bool = False
    is_rolled_back: bool = False

    def answered(self, kind: Kind, payload: bytes, request: str = "") -> None:
        """CONFIRM or ERROR: the sends get what it says."""
        if kind is Kind.CONFIRM:
            self.sender.confirmed(self, payload)
            return
        error = decode_error(payload, request)
        refused = self.sender.error
        if isinstance(error, SendInDoubt):
            self.doubted(reason_of(error))
        elif self.is_repeated and isinstance(error, HandleUnknown | NotAuthorized):
            self.doubted(TURNED_AWAY.format(refused or error))
        elif isinstance(error, HandleUnknown) and refused is not None:
            self.failed(own_copy(refused))
        else:
            self.failed(error)

    @property
    def is_kept(self) -> bool:
        """Its transaction, of which nothing was taken, goes on with it."""
        return self.sender.is_transacted and not self.is_rolled_back

    def is_late(self, _now: float) -> bool:
        """Its own deadlines say when it is given up: all of it was said to be in doubt (H20)."""
        return not self.sender.is_transacted and all(send.is_in_doubt for send in self.sends)

    def lost(self, error: HmsError) -> bool:
        """Sent again, unless all of its messages were said to be in doubt, or it belonged to a
        transaction: that one is gone."""
        if not self.sender.is_transacted:
            if not all(send.is_in_doubt for send in self.sends):
                self.is_repeated = self.is_repeated or self.is_written
                return True
            self.doubted(reason_of(error))
            return False
        self.failed(TransactionRolledBack(reason=f"the connection was lost ({reason_of(error)})"))
        return False

    def failed(self, error: HmsError) -> None:
        """Every send gets the error."""
        self.sender.refused(self, error)

    @property
    def outlives_epochs(self) -> bool:
        """Whether the log has its messages: of others nobody knows whether they were delivered."""
        return self.is_persistent

    def estranged(self, why: str = "") -> None:
        """The node that may have stored them does not answer, another one does."""
        self.doubted(why or OTHER_LOG)

    def unanswered(self, error: HmsError) -> None:
        """Stored or not; those of a transaction are gone with it."""
        if self.lost(error):
            self.doubted(reason_of(error))

    def doubted(self, reason: str) -> None:
        """Every send is in doubt, with a token of its own."""
        sender = self.sender
        sender.ended(
            self, [sender.in_doubt(one.count, reason, self.token(one)) for one in self.sends]
        )

    def token(self, send: PendingSend) -> str:
        """The token for asking later what became of a send's messages; "" for none."""
        sender, offset = self.sender, 0
        if not self.is_bound or sender.is_transacted:
            return ""
        for one in self.sends:
            if one is send:
                break
            offset += one.count
        sender.has_doubts = True
        is_logged = self.is_persistent and sender.is_logged
        frame = offset, send.count, self.count, is_logged
        link = sender.link
        return link.keys.token(self.log, link.hello.uid, sender.number, self.first_sequence, frame)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for its outcome."""
        return not all(send.is_given_up for send in self.sends)

    @property
    def travelling(self) -> Travelling | None:
        """Its producer; transactions end with their connection."""
        return None if self.sender.is_transacted else self.sender

    @property
    def count(self) -> int:
        """Its messages."""
        return sum(send.count for send in self.sends)


class Sender:
    """A producer's numbering and its pack; see the module.

    clock: for the elapsed time of receipts only. on_refused is told why a frame was not taken.
    opening: what opens its session and itself at a node.
    """

    def __init__(
        self,
        link: Link,
        number: int,
        destination: Destination,
        clock: Callable[[], float],
        *,
        is_transacted: bool,
        on_refused: Callable[[HmsError], None] = lambda _error: None,
        name: str = "",
        opening: tuple[OpenSession, OpenProducer] | None = None,
    ) -> None:
        self.link = link
        self.name = name
        self.opening = opening
        self._on_refused = on_refused
        self.number = number
        self.destination = destination
        self.is_transacted = is_transacted
        self.unconfirmed = 0
        self.is_granted = True
        self.kept: deque[Kept] = deque(maxlen=RECEIPTS_KEPT)
        """What was confirmed last, as the log must have it when it comes back."""
        self.has_doubts = False
        """Whether a token was given out for any of its sends."""
        self.is_logged = destination.kind == "queue" and not destination.name.startswith(TEMPORARY)
        self.frame_size = LARGEST
        self.error: HmsError | None = None
        self._clock = clock
        self._sequence = 1
        self._deadlines = Deadlines(link, self, clock)
        self.packs: deque[Pack] = deque()
        """What waits to be sent."""
        self._window: deque[SendFrame] = deque()

    @property
    def last_sequence(self) -> int:
        """The last number that was used."""
        return self._sequence - 1

    @property
    def has_room(self) -> bool:
        """Whether the window lets another frame out."""
        link = self.link
        bytes_max = link.limits.bytes_in_flight_max
        is_open = link.sends_in_flight < link.limits.frames_in_flight_max
        is_open = is_open and not 0 < bytes_max <= link.send_bytes_in_flight
        is_open = is_open or not self._window  # others may wait for room at their destinations
        return (is_open and self.is_granted) or link.state is State.ENDED

    @property
    def has_pack(self) -> bool:
        """Whether messages wait to be sent."""
        return bool(self.packs)

    @property
    def waiting_count(self) -> int:
        """How many messages wait to be sent."""
        return sum(len(pack.messages) for pack in self.packs)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self.packs and not self.unconfirmed

    def accepts(self, size: int, *, is_persistent: bool) -> bool:
        """Whether add() needs no other pack than the one that waits, if one does."""
        packs = self.packs
        return not packs or packs[-1].fits(size, is_persistent=is_persistent) or self.has_room

    def add(self, message: Encoded, send: PendingSend, *, is_persistent: bool) -> None:
        """Put a message into the last pack; one that is full leaves if there is room."""
        size = len(message[1]) + len(message[2])
        if send.future is not None:
            self._deadlines.watch(send)
        packs = self.packs
        pack = packs[-1] if packs else None
        if pack is not None and not pack.fits(size, is_persistent=is_persistent):
            self.push()
            pack = None
        if pack is None:
            pack = Pack(is_persistent, self.frame_size)
            packs.append(pack)
        pack.messages.append(message)
        pack.sends.append(send)
        pack.size_bytes += size
        self.link.on_room[self.number] = self.push

    def push(self) -> None:
        """Send what waits as far as the window has room; the rest goes as soon as there is."""
        while self.packs and self.has_room:
            pack = self.packs.popleft()
            parts, count = message_parts(pack.messages), len(pack.messages)
            self.submit(parts, count, pack.sends, is_persistent=pack.is_persistent)
        if not self.packs:
            self.link.on_room.pop(self.number, None)

    def granted(self, error: HmsError | None, batch: Sequence[int] = ()) -> None:
        """The node has opened the producer, or refused to: then what waits is refused too. batch:
        how many messages and bytes it takes at once, if that is little."""
        if batch:
            count, size = batch
            smaller = min(count, FRAME_MESSAGES_MAX), min(size, FRAME_BYTES_MAX)
            self.frame_size = FrameSize(*smaller)
        self.is_granted, self.error = True, error
        self.link.woken.append(self.link)
        if error is None:
            self.push()
            return
        self.link.on_room.pop(self.number, None)
        if self.packs:
            self._on_refused(error)
        while self.packs:
            for send in self.packs.popleft().sends:
                self._end(send, error)

    def move(self, link: Link) -> None:
        """That link carries it from now on, with what is in flight and what waits."""
        before, self.link = self.link, link
        size_bytes = sum(frame.size_bytes for frame in self._window)
        open_frames = (frame.sends for frame in self._window if not frame.is_done)
        both = chain.from_iterable(open_frames)
        unattended = sum(one.is_unattended and not one.is_done for one in both)
        for one, sign in ((before, -1), (link, 1)):
            one.sends_in_flight += sign * len(self._window)
            one.send_bytes_in_flight += sign * size_bytes
            one.unattended += sign * unattended
        before.on_room.pop(self.number, None)
        if self.packs:
            link.on_room[self.number] = self.push

    def submit(
        self, parts: Sequence[bytes], count: int, sends: list[PendingSend], *, is_persistent: bool
    ) -> None:
        """Send a pack that was made elsewhere, now; there is room, and nothing of ours waits."""
        first, size_bytes = self._sequence, sum(map(len, parts))
        head = SendHead(self.number, count, first, is_persistent)
        self._sequence += count
        frame = SendFrame(self, sends, first, is_persistent, self._clock(), size_bytes)
        self.unconfirmed += 1
        self._window.append(frame)
        self.link.sends_in_flight += 1
        self.link.send_bytes_in_flight += size_bytes
        for send in sends:
            send.is_sent = True
            if send.is_unattended:
                self.link.unattended += 1
        self.link.ask(Kind.SEND, encode_send(head, *parts), frame, count)

    def lost_of(self, log: bytes | None, last_sequence: int) -> ConfirmedLost | None:
        """What its log had confirmed, and lacks now that its last number is this one; told once."""
        kept, self.kept = self.kept, deque(maxlen=RECEIPTS_KEPT)
        lost: list[int] = []
        for one in kept:
            owner, first_sequence, first_id, count = one
            if owner != log or first_sequence + count - 1 <= last_sequence:
                self.kept.append(one)
                continue
            there = max(last_sequence - first_sequence + 1, 0)
            lost += range(first_id + there, first_id + count)
        if not lost:
            return None
        what = f"messages to {self.destination}"
        detail = f"{lost[0]:012x} to {lost[-1]:012x}"
        error = ConfirmedLost(count=len(lost), what=what, detail=detail)
        error.message_ids = tuple(f"{one:012x}" for one in lost)  # type: ignore[attr-defined]
        return error

    def in_doubt(self, count: int, reason: str = OTHER_LOG, token: str = "") -> SendInDoubt:
        """The error for `count` messages that may be stored, by default in the previous log."""
        name = str(self.destination)
        return SendInDoubt(destination=name, count=count, reason=reason, token=token)

    def give_up(self, send: PendingSend, late: HmsError) -> HmsError:
        """Nobody waits for it any longer. What has not left is taken back, and `late` says why; of
        what has left nobody knows whether it is stored, unless its transaction takes it along."""
        if self._take_back(send):
            return late
        frame = next((frame for frame in self._window if send in frame.sends), None)
        is_written = frame is not None and frame.is_written
        token = frame.token(send) if frame is not None and is_written else ""
        is_back = self.withdraw(send) and not is_written
        if not self.link.is_looking and (is_back or self.is_transacted):
            return late
        send.is_in_doubt = not self.is_transacted
        doubt = self.in_doubt_after(send.count, late, token)
        self.link.given_up()
        return doubt

    def in_doubt_after(self, count: int, late: HmsError, token: str = "") -> SendInDoubt:
        """The error for `count` messages that were sent; `late` ended the wait for their answer."""
        if self.link.is_looking:
            return self.in_doubt(count, token=token)
        reason = f"no answer within {late.fields.get('timeout_s', 0):g} s"
        if not isinstance(late, RequestTimeout):
            reason = f"the connection was lost ({reason_of(late)})"
        return self.in_doubt(count, reason, token)

    def _take_back(self, send: PendingSend) -> bool:
        """Whether it was still waiting to be sent, and will not be."""
        for pack in self.packs:
            if send in pack.sends:
                break
        else:
            return False
        at = pack.sends.index(send)
        message = pack.messages.pop(at)
        del pack.sends[at]
        pack.size_bytes -= len(message[1]) + len(message[2])
        if not pack.sends:
            self.packs.remove(pack)
        if not self.packs:
            self.link.on_room.pop(self.number, None)
        send.is_done = True
        self.link.woken.append(self.link)
        return True

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for the outcome of something that it sends."""
        return bool(self.packs) or any(frame.is_wanted for frame in self._window)

    def open_futures(self) -> Iterator[PendingSend]:
        """Those that were told nothing yet, the oldest first."""
        frames = (frame.sends for frame in self._window if not frame.is_done)
        packs = (pack.sends for pack in self.packs)
        both = chain.from_iterable(chain(frames, packs))
        return (send for send in both if send.future is not None)

    def overdue(self, send: PendingSend, patience_s: float) -> None:
        """Tell a future that its time is over, and the listener as of any that failed."""
        is_up = self.link.state is State.UP
        late = RequestTimeout(what="send()", timeout_s=patience_s) if is_up else self.link.error
        tell = send.tell_late(error := self.give_up(send, late))
        self.link.calls.append(tell)
        self._on_refused(error)
        is_reported, send.error = send.error is not None, error
        if not is_reported:
            self.link.report(send.failure(self.destination))

    def drop_packs(self, error: HmsError) -> None:
        """What waits to be sent is not sent."""
        self.link.on_room.pop(self.number, None)
        while self.packs:
            for send in self.packs.popleft().sends:
                self._end(send, error)

    def leave(self, error: HmsError) -> None:
        """It is closed while its node is not there, and is not opened again: sent again, its frames
        would be refused, though that node may have stored them."""
        self.drop_packs(error)
        for correlation, asked in list(self.link.asked.items()):
            if isinstance(asked, SendFrame) and asked.sender is self:
                del self.link.asked[correlation]
                if asked.is_written:
                    asked.unanswered(error)
                else:
                    asked.failed(error)

    def withdraw(self, send: PendingSend) -> bool:
        """Nobody waits for it any longer: while there is no connection, do not send it later,
        unless it shares its frame with others. If its outcome is bad, the listener will hear.
        Whether it will not be sent."""
        is_taken_back, send.is_given_up = False, True
        for asked in list(self.link.asked.values()):
            if isinstance(asked, SendFrame) and asked.sends == [send]:
                self.link.abandon(asked)
                is_taken_back = asked.is_done
        if not send.is_done and not send.is_unattended:
            send.is_unattended = True
            self.link.unattended += send.is_sent
        return is_taken_back

    def confirmed(self, frame: SendFrame, payload: bytes) -> None:
        """The node has the messages of this frame."""
        first, timestamp_ms, count = decode_confirm(payload)
        elapsed_s = self._clock() - frame.handed_over_at
        if frame.is_persistent and self.is_logged and not self.is_transacted:
            self.kept.append((frame.log, frame.first_sequence, first, count))
        for send in frame.sends:
            send.run = Run(first, send.count, elapsed_s)
            for place, message in send.messages:
                self._mark(message, first + place, timestamp_ms, elapsed_s, send.options)
            self._end(send, None)
            first += send.count
        self._out_of_flight(frame)

    def refused(self, frame: SendFrame, error: HmsError) -> None:
        """The node took none of the messages of this frame, or will not say."""
        self.ended(frame, [error] * len(frame.sends))

    def ended(self, frame: SendFrame, errors: Sequence[HmsError]) -> None:
        """The sends of a frame end, each with its error."""
        self._on_refused(errors[0])
        for send, error in zip(frame.sends, errors, strict=True):
            self._end(send, error)
        self._out_of_flight(frame)

    def _mark(
        self, message: Message, number: int, at_ms: int, elapsed_s: float, options: SendOptions
    ) -> None:
        message.mark_sent(
            self.destination,
            number,
            at_ms,
            ttl_ms=options.ttl_ms,
            delay_ms=options.delay_ms,
            priority=options.priority,
            is_persistent=options.is_persistent,
            elapsed_s=elapsed_s,
        )

    def _end(self, send: PendingSend, error: HmsError | None) -> None:
        send.is_done, send.error = True, error
        self.link.woken.append(send)
        if send.is_unattended:
            self.link.unattended -= send.is_sent
            if send.future is not None:
                self.link.calls.append(send.tell)
            if error is not None:
                self.link.report(send.failure(self.destination))

    def _out_of_flight(self, frame: SendFrame) -> None:
        """Its place in the window is free only when those before it are out too: the node remembers
        as many of a producer's last frames as the window has places, and no older ones."""
        self.unconfirmed -= 1
        frame.is_done = True
        link, window = self.link, self._window
        while window and window[0].is_done:
            link.send_bytes_in_flight -= window.popleft().size_bytes
            link.sends_in_flight -= 1
        link.woken.append(link)
        for push in list(link.on_room.values()):
            push()
