"""Settlement: what a session says about the messages that its application has. No socket or clock.

AUTO: a message is acknowledged when the application has it; acknowledgements are held back until
256 of them, or a tick, or a receive that would block sends them together. DUPS_OK: until ten of
them, or until nothing more comes for a while. CLIENT: seen until settled. NONE: the node has
acknowledged them when it delivered them. Transacted: acknowledgements take part in the transaction,
at the latest before Commit.

Nobody waits for the answer to what AUTO and DUPS_OK say. So that it can be told what is in doubt
when the connection is lost (F-K9), the node is asked at a tick, with what is said then, whether all
that was said so far is safe; one such question is on its way at a time.
"""

from collections.abc import Iterable

from hms.client.core.link import Link, State
from hms.client.core.link_participants import Participant
from hms.client.core.listener_outcomes import Reject, Retry
from hms.client.core.listener_reasons import reason_of
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.prefetch_buffer import PrefetchBuffer
from hms.constants import AckMode
from hms.errors.catalogue import AcknowledgeLost, ListenerInterrupted
from hms.wire.frames import Action, Kind, Settlement, encode_settle

ACKNOWLEDGEMENTS_MAX = 256
"""The most acknowledgements of one consumer that are held back."""
LAZY_ACKNOWLEDGEMENTS_MAX = 10
"""The same in DUPS_OK (F-B3)."""
TICK_S = 0.005
"""How long an acknowledgement is held back for others to join it."""
LAZY_TICK_S = 1.0
"""The same in DUPS_OK, and in a transaction that its node rolls back when it is idle."""


class Settling(Participant):
    """See the module."""

    def __init__(self, link: Link, ack_mode: AckMode, *, is_transacted: bool) -> None:
        self.link = link
        self.ack_mode = ack_mode
        self.is_transacted = is_transacted
        self.prefetch_buffers: dict[int, PrefetchBuffer] = {}
        self._unsaid: dict[PrefetchBuffer, None] = {}
        """Those from which something was taken since the last word; a session may have thousands
        of consumers, and to ask each of them cost 30 us a message with 1,000."""
        self.has_work = False
        self.is_closing = False
        """Whether close() has begun: nothing new is taken then."""
        self.interruption: ListenerInterrupted | None = None
        is_lazy = ack_mode is AckMode.DUPS_OK
        self.tick_s = LAZY_TICK_S if is_lazy else TICK_S
        self._is_lazy = is_lazy
        self._is_auto = ack_mode is AckMode.AUTO and not is_transacted
        self._held_back_max = LAZY_ACKNOWLEDGEMENTS_MAX if is_lazy else ACKNOWLEDGEMENTS_MAX
        self._held_back = 0
        self.file_held: tuple[PrefetchBuffer, int] | None = None
        self._will_tick = False
        self._lost_id = 0
        self._is_unanswered = not is_transacted and ack_mode in (AckMode.AUTO, AckMode.DUPS_OK)
        self._unsure: list[Settlement] = []
        """Acknowledgements that were said since the last question whether they are safe."""
        self._asked: list[Settlement] = []
        """Those of a question that is not answered yet."""

    def consumed(self, prefetched: PrefetchBuffer, message_id: int) -> None:
        """The application has the message."""
        self._unsaid[prefetched] = None
        if self.is_transacted:
            prefetched.acknowledged.append(message_id)
            self.has_work = True
            if self.link.limits.transaction_idle_s:  # else it is said at the next receive or end
                self.tick_s = LAZY_TICK_S
                self._tick_soon()
        elif self.ack_mode is AckMode.CLIENT:
            prefetched.seen[message_id] = None
        elif self.ack_mode is not AckMode.NONE:
            prefetched.acknowledged.append(message_id)
            self._held_back += 1
            most = self._held_back_max
            if self._held_back >= most or len(prefetched.acknowledged) >= most:
                self.settle()
            if not self._will_tick:  # _tick_soon(), in place
                self._will_tick = True
                self.link.ticking.append(self)

    def handling(self, prefetched: PrefetchBuffer, message_id: int) -> None:
        """A listener begins with the message, which is acknowledged by itself when it ends: until
        then recover() gives it back as a failed attempt."""
        if self.ack_mode is not AckMode.NONE:
            self._unsaid[prefetched] = None
            prefetched.seen[message_id] = None

    def consumed_file(self, prefetched: PrefetchBuffer, message_id: int) -> None:
        """The application has a file's message: where it is acknowledged by itself, only when its
        file was saved, or the application comes for another one; in NONE too (F-B4)."""
        if self.is_transacted or self.ack_mode is AckMode.CLIENT:
            self.consumed(prefetched, message_id)
            return
        self.file_done()
        self.file_held = prefetched, message_id
        for one in self.prefetch_buffers.values():
            one.allowance = 0

    def file_saved(self, prefetched: PrefetchBuffer, message_id: int) -> None:
        """The file of a message was saved."""
        if self.file_held == (prefetched, message_id):
            self.file_done()

    def file_seen(self) -> None:
        """The message whose file was waited for was seen, and is not done with."""
        held, self.file_held = self.file_held, None
        if held is not None and held[0].number in self.prefetch_buffers:
            held[0].seen[held[1]] = None

    def file_done(self) -> None:
        """The message whose file was waited for is done with."""
        held, self.file_held = self.file_held, None
        if held is not None and held[0].number in self.prefetch_buffers:
            self._unsaid[held[0]] = None
            held[0].acknowledged.append(held[1])
            self.settle()

    def allow(self, prefetched: PrefetchBuffer) -> None:
        """Let the application take what is here without a look at anything else, until anything
        that is said, in AUTO a tick too, ends it: two thirds of the cost of a message is looking.
        """
        if self.file_held is not None or prefetched not in self._unsaid or self.is_closing:
            return
        room = prefetched.credit_left
        if self._is_auto:
            room = min(room, self._held_back_max - 1 - len(prefetched.acknowledged))
        elif not (self.is_transacted or self.ack_mode is AckMode.CLIENT):
            return
        prefetched.allowance = max(0, room)

    def say_soon(self, prefetched: PrefetchBuffer) -> None:
        """Something expired there: it is said with the next word, at the latest at a tick."""
        self._unsaid[prefetched] = None
        self._tick_soon()

    def _tick_soon(self) -> None:
        if not self._will_tick:
            self._will_tick = True
            self.link.ticking.append(self)

    def tick(self) -> None:
        """Held back long enough; a good time to ask whether what was said is safe."""
        self._will_tick = False
        items = self._held_back_items()
        self._note(items)
        if not self._unsure or self._asked or self.link.state is not State.UP:
            self._send(items)
            return
        self._asked, self._unsure = self._unsure, []
        pending = Pending("SETTLE", OnLoss.DONE, then=self._answered)
        self.link.ask(Kind.SETTLE, encode_settle(items), pending, len(items))

    def _answered(self, pending: Pending) -> None:
        if pending.is_answered:
            self._asked = []
            if self._unsure:
                self._tick_soon()

    def in_doubt(self) -> list[int]:
        """Ids of messages whose acknowledgement was said, and may have been lost; told once."""
        items, self._asked, self._unsure = [*self._asked, *self._unsure], [], []
        return _ids(items)

    def in_doubt_of(self, consumer: int) -> list[int]:
        """Those of one consumer only."""
        items = [one for one in (*self._asked, *self._unsure) if one.consumer == consumer]
        self._asked = [one for one in self._asked if one.consumer != consumer]
        self._unsure = [one for one in self._unsure if one.consumer != consumer]
        return _ids(items)

    def settle(self, buffer_with_credit: PrefetchBuffer | None = None) -> None:
        """Say what is held back; credit for the consumer for which more is wanted."""
        self.say(self._held_back_items(buffer_with_credit))

    def _held_back_items(
        self, buffer_with_credit: PrefetchBuffer | None = None
    ) -> list[Settlement]:
        self._held_back = 0
        items: list[Settlement] = []
        is_giving = False
        if buffer_with_credit is not None:
            self._unsaid[buffer_with_credit] = None
            is_giving = len(self._unsaid) > 1 and buffer_with_credit.is_credit_due
        unsaid, self._unsaid = self._unsaid, {}
        for prefetched in unsaid:
            if prefetched.number in self.prefetch_buffers:  # else it was closed meanwhile
                is_due = prefetched is buffer_with_credit or (
                    is_giving and prefetched.is_credit_near
                )
                items += prefetched.settlements(with_credit=is_due)
        return items

    def want_more(self, prefetched: PrefetchBuffer) -> None:
        """The application comes for another message: give credit; in AUTO settle the rest too."""
        if self._is_lazy:
            items = prefetched.settlements(with_credit=True, with_acknowledgements=False)
        else:
            items = self._held_back_items(prefetched)
        if items:
            self.say(items)

    def fail(
        self, prefetched: PrefetchBuffer, message_id: int, fault: Exception | None = None
    ) -> None:
        """The listener could not cope with the message; Reject and Retry say what becomes of it."""
        self._unsaid[prefetched] = None
        if isinstance(fault, Reject | Retry):
            self.judge(prefetched, message_id, fault)
        else:
            self.say(prefetched.fail(message_id, self._why(fault)))

    def judge(self, prefetched: PrefetchBuffer, message_id: int, verdict: Reject | Retry) -> None:
        """The listener says what is to become of the message."""
        self.say(prefetched.judge(message_id, verdict, self._why(verdict)))

    def _why(self, fault: Exception | None) -> tuple[str, str]:
        """Where the node takes it: what the listener raised, for the reader of a dead letter."""
        return reason_of(fault) if self.link.limits.takes_why else ("", "")

    def interrupted(self, error: ListenerInterrupted) -> None:
        """The session calls no listener any more: the exception listener is notified, or else the
        next caller that uses the session."""
        if self.link.on_error is not None:
            self.link.report(error)
        else:
            self.interruption = error

    def check_interrupted(self) -> None:
        """ListenerInterrupted, once."""
        error, self.interruption = self.interruption, None
        if error is not None:
            raise error

    def give_back(self, prefetched: PrefetchBuffer, *, is_session_open: bool = False) -> None:
        """The consumer closes. What was seen and not acknowledged comes again when the session
        closes; until then it may be acknowledged (CLIENT)."""
        if self.file_held is not None and self.file_held[0] is prefetched:
            self.file_seen()
        self.say(prefetched.say_seen())
        is_usable = self.link.state is State.UP and prefetched.error is None
        is_client = self.ack_mode is AckMode.CLIENT
        prefetched.discard(is_seen_kept=is_session_open and is_client and is_usable)

    def forget_left(self) -> None:
        """Closed consumers of which nothing is to be acknowledged any more."""
        for prefetched in [
            one for one in self.prefetch_buffers.values() if one.has_left and not one.seen
        ]:
            del self.prefetch_buffers[prefetched.number]

    def check_nothing_lost(self) -> None:
        """AcknowledgeLost, once, when consumed messages were lost before they were acknowledged:
        saying nothing would let the application believe that they are done with."""
        lost_id, self._lost_id = self._lost_id, 0
        if lost_id:
            raise AcknowledgeLost(message_id=f"{lost_id:012x}", when="before")

    def acknowledge(
        self,
        prefetch_buffers: Iterable[tuple[PrefetchBuffer, list[int]]],
        *,
        is_awaited: bool = True,
    ) -> Pending | None:
        """Acknowledge messages that were seen, answered when durable; None: there are none, or
        nobody waits: then a tick asks whether it is safe, as in AUTO.

        Lost on its way, it may have taken effect: then the messages do not come again.
        """
        items: list[Settlement] = []
        last = 0
        for prefetched, message_ids in prefetch_buffers:
            known = [one for one in message_ids if prefetched.seen.pop(one, 0) is None]
            prefetched.acknowledged += known
            items += prefetched.settlements(with_credit=False)
            last = max(known, default=last)
        self.forget_left()
        if not is_awaited:
            self._leave_unsure(items)
            return None
        unsure = [*self._asked, *self._unsure]
        if not items and not unsure:
            return None
        last = max([last, *(upto for item in unsure for _, upto in item.ranges)])
        error = AcknowledgeLost(message_id=f"{last:012x}", when="during")
        pending = Pending("ack()", OnLoss.FAIL, error_if_lost=error)
        self.link.ask(Kind.SETTLE, encode_settle(items), pending, len(items))
        return pending

    def _leave_unsure(self, items: list[Settlement]) -> None:
        """Send acknowledgements without waiting for an answer."""
        self._unsure += [item for item in items if item.action is Action.ACKNOWLEDGE]
        self._send(items)
        self._tick_soon()

    def say(self, items: list[Settlement]) -> None:
        """Send settlements, and remember the acknowledgements among them."""
        if items:
            self._note(items)
            self._send(items)

    def _note(self, items: list[Settlement]) -> None:
        if self._is_unanswered:
            for item in items:
                if item.action is Action.ACKNOWLEDGE:
                    self._unsure.append(item)

    def _send(self, items: list[Settlement]) -> None:
        if items:
            self.link.tell(Kind.SETTLE, encode_settle(items), len(items))


def _ids(items: Iterable[Settlement]) -> list[int]:
    spans = [span for item in items for span in item.ranges]
    return [one for first, last in spans for one in range(first, last + 1)]
