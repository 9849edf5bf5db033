"""What a consumer does, for threads and for asyncio alike."""

import os
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, BinaryIO, TypeVar

from hms.client import message_tracing
from hms.client.core import tracing
from hms.client.core.arguments import check_function, check_number, check_patience
from hms.client.core.link import State
from hms.client.core.listener_outcomes import Reject, Retry
from hms.client.core.listener_reasons import reason_of
from hms.client.core.operations import FOREVER, Outside, Steps, Wait
from hms.client.core.pending_requests import OnLoss, Pending, own_copy
from hms.client.destinations import Destination
from hms.client.file_bodies import FileInfo
from hms.client.file_transfers import saving
from hms.client.message import Message
from hms.client.message_lists import Delivered, list_message
from hms.client.opening_steps import close_prefetch_buffer
from hms.client.prefetch_buffer import PrefetchBuffer, Stamp
from hms.client.session_steps import SessionSteps
from hms.constants import AckMode
from hms.errors.catalogue import (
    AcknowledgeLost,
    ConnectionClosed,
    IllegalState,
    ListenerInterrupted,
)
from hms.errors.tree import HmsError
from hms.wire.packed_messages import FLAG_PART, FLAG_PERSISTENT, KIND_FILE
from hms.wire.structures import Poll, RequestRetained

_COUNT_MAX = 1 << 32
POLL_S = 1.0
"""How long receive(0) waits for the node's answer whether it has a message, and how long before
its deadline another receive asks at the earliest."""
GRACE_S = 0.025
"""How long after its deadline a receive still waits for the answer."""
Listener = Callable[[Message], object]
_Found = TypeVar("_Found")


def check_count(count: int) -> None:
    """InvalidArgument for a number of messages that cannot be received."""
    check_number("count", count, 1, _COUNT_MAX)


def _called(listener: Listener, message: Message, destination: Destination) -> object:
    """Call a listener; what is to end its thread must not end it silently."""
    try:
        outcome = listener(message)
    except Exception:
        raise
    except BaseException as fault:
        raise _interruption(destination, fault) from fault
    return _awaited(outcome, destination) if hasattr(outcome, "__await__") else outcome


async def _awaited(outcome: Any, destination: Destination) -> object:
    """The same for one of asyncio; its cancellation is the event loop's."""
    try:
        return await outcome
    except (SystemExit, KeyboardInterrupt) as fault:
        raise _interruption(destination, fault) from fault


def _interruption(destination: Destination, fault: BaseException) -> ListenerInterrupted:
    said = f"{type(fault).__name__}({fault})"
    return ListenerInterrupted(destination=str(destination), fault=said)


class Acknowledge:
    """What ack() of a received message does; in asyncio its result is to be awaited."""

    __slots__ = ("_consumer", "_stamp")

    def __init__(self, consumer: "ConsumerSteps", stamp: Stamp) -> None:
        self._consumer = consumer
        self._stamp = stamp

    def __call__(self, message: Message) -> Any:
        """This message alone."""
        return self._consumer.acknowledge(self._stamp, message, is_upthrough=False)

    def save(
        self, message: Message, info: FileInfo, target: "str | os.PathLike[str] | BinaryIO"
    ) -> Any:
        """Read its file."""
        return self._consumer.save(message, info, target)

    def upthrough(self, message: Message) -> Any:
        """This message and all that its consumer saw before it."""
        return self._consumer.acknowledge(self._stamp, message, is_upthrough=True)


class ConsumerSteps:
    """The operations of a consumer."""

    def __init__(self, session: SessionSteps, prefetched: PrefetchBuffer) -> None:
        self._session = session
        self._requests = session.requests
        self._state = session.state
        self._prefetched = prefetched
        self._is_closed = False
        self._listener: Listener | None = None
        self._is_client = session.state.ack_mode is AckMode.CLIENT
        self._acknowledge, self._stamp = Acknowledge(self, prefetched.stamp), prefetched.stamp

    @property
    def destination(self) -> Destination:
        """Where it receives from."""
        return self._prefetched.destination

    @property
    def selector(self) -> str:
        """Its selector, empty for none."""
        return self._prefetched.opening.selector

    @property
    def name(self) -> str:
        """The name that it was given."""
        return self._prefetched.opening.name

    @property
    def prefetch(self) -> int:
        """How many messages may be on their way to it."""
        return self._prefetched.opening.credit

    @property
    def durable(self) -> str:
        """The name of its durable subscription, "" for none."""
        return self._prefetched.opening.durable

    @property
    def shared(self) -> bool:
        """Whether others may share its subscription."""
        return self._prefetched.opening.is_shared

    @property
    def no_local(self) -> bool:
        """Whether it gets nothing that its own connection publishes."""
        return self._prefetched.opening.is_no_local

    @property
    def ordered(self) -> bool:
        """Whether what failed in listen() comes again before what was prefetched behind it."""
        return self._prefetched.is_ordered

    @property
    def redelivery_delay_s(self) -> float:
        """How long what failed here waits before it comes again."""
        return self._prefetched.opening.redelivery_delay_ms / 1000

    @property
    def priority(self) -> int:
        """Its priority among the consumers of its queue or subscription."""
        return self._prefetched.opening.priority

    @property
    def is_over(self) -> bool:
        """Whether it or its session is closed."""
        return self._is_closed or self._state.is_closed

    @property
    def _is_in_listener(self) -> bool:
        """Whether a listener of its session asks."""
        raise NotImplementedError

    # ---- receiving

    def receiving(self, timeout_s: float | None) -> Steps[Message | None]:
        """The next message; None when the time is over and the node, which is asked then, has none
        for it either. A receive that is cancelled while it waits has taken nothing."""
        message = (self._prefetched.buffer and self.at_hand()) or self.taken()
        if message is not None:
            return message
        patience_s = check_patience("timeout_s", timeout_s)
        now = monotonic()
        deadline = FOREVER if patience_s is None else now + patience_s
        asks_at = deadline if patience_s is None else deadline - min(patience_s / 2, POLL_S)
        asked: Pending | None = None
        requests, link, prefetched = self._requests, self._requests.link, self._prefetched
        while True:
            self._state.want_more(prefetched)
            if link.outbox:
                requests.driver.flush()  # where the loss of the connection may show
            patience = requests.driver.loop.lost_at + requests.request_timeout_s
            me = link.callers and requests.driver.me()  # asked only where somebody runs a listener
            may_go_on = partial(self._has_news, link.state, me)
            is_due = yield Wait(prefetched, may_go_on, min(asks_at, patience))
            delivered = self._take()  # credit is not due: nothing was taken since it was given
            if delivered is not None:
                break
            self._check_receiving()
            if not is_due and patience <= asks_at and not requests.is_connected:
                raise own_copy(link.error)
            now = monotonic()
            if now >= deadline:
                is_timed = patience_s is not None and patience_s > 0
                delivered = yield from self._polled(asked, is_timed=is_timed)
                break
            if now >= asks_at:
                asked, asks_at = self._ask(), deadline
        if delivered is None:
            return None
        self._note(delivered)
        return self._message(delivered, prefetched.stamp)

    def receiving_many(self, count: int, timeout_s: float | None) -> Steps[list[Message]]:
        """The next message, and those behind it that are here already, up to `count` in all."""
        first = yield from self.receiving(timeout_s)
        return [] if first is None else self.with_more(first, count)

    def with_more(self, first: Message, count: int) -> list[Message]:
        """It and those behind it that are here, up to a file or a list; to come for more behind a
        file would be to say that it is done with, and nobody can have saved it yet."""
        found, buffer = [first], self._prefetched.buffer
        while len(found) < count and buffer and self._state.file_held is None:
            run = self._run(count - len(found)) or self._one_more()
            if not run:
                break
            found += run
        return found

    def _one_more(self) -> list[Message]:
        """The next one, where something has to be looked at. What forbids it is told to who comes
        for the next message: those of this batch were taken, and must reach the application."""
        if self._prefetched.skip_expired():
            self._state.say_soon(self._prefetched)
        buffer = self._prefetched.buffer
        if not buffer or buffer[0][0].kind == KIND_FILE or buffer[0][0].flags & FLAG_PART:
            return []
        try:
            one = self.taken()
        except HmsError:
            return []
        return [] if one is None else [one]

    def _run(self, count: int) -> list[Message]:
        """The same as at_hand(), for up to `count` messages at once."""
        prefetched = self._prefetched
        buffer, room = prefetched.buffer, min(prefetched.allowance, count)
        taken: list[Delivered] = []
        while len(taken) < room and buffer:
            row = buffer[0][0]
            if row.expires_at_ms or row.flags > FLAG_PERSISTENT or row.kind == KIND_FILE:
                break
            taken.append(buffer.popleft())
        prefetched.allowance -= len(taken)
        prefetched.taken_count += len(taken)
        ids = [row.message_id for row, _, _ in taken]
        if self._is_client:
            prefetched.seen.update(dict.fromkeys(ids))
        else:
            prefetched.acknowledged += ids
        return self._messages(taken)

    def at_hand(self) -> Message | None:
        """The next message if it is here and nothing has to be looked at or said for it (see
        Settling.allow). Written out, as each call within it is 5 % of what a receive costs."""
        prefetched = self._prefetched
        if prefetched.allowance and prefetched.buffer:
            delivered = prefetched.buffer[0]
            row = delivered[0]
            is_usual = (
                not row.expires_at_ms and row.flags <= FLAG_PERSISTENT and row.kind != KIND_FILE
            )
            if is_usual:  # nothing to be looked at
                prefetched.buffer.popleft()
                prefetched.allowance -= 1
                prefetched.taken_count += 1
                if self._is_client:
                    prefetched.seen[row.message_id] = None
                else:
                    prefetched.acknowledged.append(row.message_id)
                return self._message(delivered, prefetched.stamp)
        return None

    def taken(self) -> Message | None:
        """The next message if one is here; what has to be said for it is in the outbox."""
        prefetched, state = self._prefetched, self._state
        if state.interruption is not None:
            state.check_interrupted()
        is_ending = self._is_closed or state.is_closing or self._requests.link.is_closing
        if is_ending or self._listener is not None or not prefetched.buffer:
            self._check_receiving()
        if state.file_held is not None:
            state.file_done()
        if not prefetched.buffer:
            return None
        if prefetched.is_credit_due:
            state.want_more(prefetched)
        taken = self._take()
        if taken is None:
            return None
        self._note(taken)
        if self._listener is None:
            state.allow(prefetched)
        return self._message(taken, prefetched.stamp)

    def _note(self, delivered: Delivered) -> None:
        """The application has it; a file's message is acknowledged only when that was saved."""
        row = delivered[0]
        if row.kind == KIND_FILE:
            self._state.consumed_file(self._prefetched, row.message_id)
        else:
            self._state.consumed(self._prefetched, row.message_id)

    def saving(
        self, message: Message, info: FileInfo, target: "str | os.PathLike[str] | BinaryIO"
    ) -> Steps[None]:
        """Read the file of a message; then the message is done with, where that goes by itself."""
        yield from saving(self._requests, info, target)
        self._state.file_saved(self._prefetched, message.delivered_id)

    def save(
        self, message: Message, info: FileInfo, target: "str | os.PathLike[str] | BinaryIO"
    ) -> Any:
        """Drive saving()."""
        raise NotImplementedError

    def _next(self) -> Delivered | None:
        """The next one of the buffer; gives credit back before, so that the node keeps up."""
        prefetched = self._prefetched
        if prefetched.is_credit_due:
            self._state.want_more(prefetched)
        delivered = prefetched.take()
        if prefetched.released:
            self._state.say_soon(prefetched)
        return delivered

    def _take(self) -> Delivered | None:
        """The next one of the buffer; what expired before it is said soon, whatever follows."""
        delivered = self._prefetched.take()
        if self._prefetched.released:
            self._state.say_soon(self._prefetched)
        return delivered

    def _ask(self) -> Pending | None:
        """Ask the node: what it has for this consumer comes before its answer. While the connection
        is lost there is nobody to be asked; a node that knows no windows of bytes knows no Poll."""
        link = self._requests.link
        if link.state is not State.UP or not link.limits.prefetch_bytes_max:
            return None
        pending = Pending("Poll", OnLoss.DONE)
        link.request(Poll(self._prefetched.number), pending)
        return pending

    def _polled(self, asked: Pending | None, *, is_timed: bool) -> Steps[Delivered | None]:
        """The time is over and nothing is here, but a message that was confirmed to anybody may
        still be on its way. A node that was asked before and has not answered yet is not asked
        again. One that is silent is not waited for: what comes after all is there for the next
        receive. is_timed: a time was given, which is kept."""
        requests, link = self._requests, self._requests.link
        pending = self._ask() if asked is None or asked.is_done else asked
        if pending is None:
            return None
        patience_s = GRACE_S if is_timed else POLL_S
        deadline = monotonic() + min(patience_s, requests.request_timeout_s)
        try:
            yield Wait(pending, lambda: pending.is_done, deadline)
        finally:
            if not pending.is_done:
                link.abandon(pending)
        if pending.error is not None:
            self._check_receiving()  # it was closed meanwhile, and says so itself
            raise own_copy(pending.error)
        delivered = self._next()
        if delivered is None:
            self._check_receiving()
        return delivered

    def _has_news(self, state: State, me: object) -> bool:
        """Whether there is something to do but to wait while the link is in that state."""
        prefetched, own, link = self._prefetched, self._state, self._requests.link
        if prefetched.buffer or prefetched.error is not None or self._is_closed or own.is_closed:
            return True
        is_leaving = (own.is_closing or link.is_closing) and self._session.is_leaving(me)
        return is_leaving or link.state is not state

    def _check_receiving(self) -> None:
        state, link = self._state, self._requests.link
        if self._is_closed or state.is_closed:
            raise ConnectionClosed(what="consumer" if self._is_closed else "session")
        if (state.is_closing or link.is_closing) and link.state is not State.ENDED:
            self._session.check_staying()
        if self._prefetched.buffer and self._listener is None:
            return
        if self._prefetched.error is not None:
            raise own_copy(self._prefetched.error)
        if link.state is State.ENDED:
            raise own_copy(link.error)
        if self._session.is_asynchronous:
            detail = "its messages go to the listener service"
            raise IllegalState(what="receive()", detail=detail)
        if self._listener is not None and not self._is_in_listener:
            raise IllegalState(what="receive()", detail="its messages go to its listener")

    def traced(self, steps: Steps[_Found]) -> Steps[_Found]:
        """A receive, as the tracer sees it."""
        place = message_tracing.place_of(self._prefetched, self._state)
        return message_tracing.receiving(place, steps)

    def _message(self, delivered: Delivered, stamp: Stamp) -> Message:
        row, head, body = delivered
        if stamp is not self._stamp:
            self._acknowledge, self._stamp = Acknowledge(self, stamp), stamp
        destination = self._prefetched.destination
        if row.flags & FLAG_PART:
            message = list_message(delivered, destination, self._acknowledge)
        else:
            message = Message.received(row, head, body, destination, self._acknowledge)
        return message

    def _messages(self, delivered: list[Delivered]) -> list[Message]:
        """The same for usual ones that were delivered just now."""
        if self._prefetched.stamp is not self._stamp:
            self._stamp = self._prefetched.stamp
            self._acknowledge = Acknowledge(self, self._stamp)
        destination = self._prefetched.destination
        return Message.received_many(delivered, destination, self._acknowledge)

    def requesting_retained(self) -> Steps[int]:
        """Ask the node for what is retained on its topic; how many messages come."""
        if self.is_over:
            raise ConnectionClosed(what="consumer" if self._is_closed else "session")
        pending = Pending("RequestRetained", OnLoss.REPEAT)
        self._requests.link.request(RequestRetained(self._prefetched.number), pending)
        yield from self._requests.answer_to(pending)
        return int(pending.value()["count"])

    # ---- acknowledging

    def acknowledge(self, stamp: Stamp, message: Message, *, is_upthrough: bool) -> Any:
        """Drive acknowledging()."""
        raise NotImplementedError

    def acknowledging(self, stamp: Stamp, message: Message, *, is_upthrough: bool) -> Steps[None]:
        """Acknowledge a message that was delivered at that time, or all that were seen up to it."""
        if not self._is_client:
            raise IllegalState(what="message.ack()", detail="the session acknowledges by itself")
        message_id, now = message.delivered_id, self._prefetched.stamp
        if stamp.incarnation != now.incarnation:
            raise AcknowledgeLost(message_id=f"{message_id:012x}", when="before")
        if stamp != now:
            raise IllegalState(what="message.ack()", detail="recover() has given it back")
        if self._state.is_closed:
            detail = "its session is closed; what it had not acknowledged comes again"
            raise IllegalState(what="message.ack()", detail=detail)
        session = self._session
        yield from session.acknowledging(self._prefetched, message_id, is_upthrough=is_upthrough)

    # ---- a listener in this process

    def set_listener(self, listener: Listener | None) -> None:
        """Have this one called from now on; None: none."""
        if check_function("listener", listener) is not None:
            if self._listener is None:
                self._check_receiving()
            self._state.interruption = None  # a new listener is the answer to it
            if self._state.is_xa:  # F-B6
                detail = "only synchronous receives take part in its transactions: receive()"
                raise IllegalState(what="a listener in an XA session", detail=detail)
        self._prefetched.allowance = 0
        self._listener = listener

    @property
    def has_messages(self) -> bool:
        """Whether messages wait here, or it has to be said that more may come."""
        prefetched = self._prefetched
        return bool(prefetched.buffer) or (prefetched.is_credit_due and not self.is_over)

    def take_for_listener(self) -> Delivered | None:
        """The next message for the listener; credit is given back when it comes for more."""
        return self._next()

    def handling(self, delivered: Delivered, listener: Listener) -> Steps[None]:
        """Call the listener, and settle by how it ends; what it raises goes on to the caller."""
        stamp, prefetched, message_id = self._prefetched.stamp, self._prefetched, delivered[0][0]
        is_before = self._is_client or self._state.is_transacted
        if is_before:
            self._state.consumed(prefetched, message_id)
        else:
            self._state.handling(prefetched, message_id)
        message = self._message(delivered, stamp)
        try:
            if tracing.tracer is not None:
                place = message_tracing.place_of(prefetched, self._state)
                listener = message_tracing.processed(place, listener)
            yield Outside(partial(_called, listener, message, prefetched.destination))
        except Exception as fault:
            yield from self._failed(stamp, message_id, fault)
            raise
        except BaseException:  # nobody can wait any more
            self._fail(stamp, message_id)
            raise
        if stamp == prefetched.stamp and not is_before:
            prefetched.seen.pop(message_id, None)
            self._note(delivered)
            self._state.file_saved(prefetched, message_id)
        elif stamp.incarnation != prefetched.stamp.incarnation and not self._state.is_transacted:
            lost = AcknowledgeLost(message_id=f"{message_id:012x}", when="before")
            self._requests.link.report(lost)

    def _failed(self, stamp: Stamp, message_id: int, fault: Exception) -> Steps[None]:
        """It could not cope with the message, or says what is to become of it (Reject, Retry)."""
        is_current, state = stamp == self._prefetched.stamp, self._state
        if not state.is_transacted:
            if is_current:
                state.fail(self._prefetched, message_id, fault)
            return
        if is_current and isinstance(fault, Reject | Retry):
            state.judge(self._prefetched, message_id, fault)
        if not state.is_closed:
            yield from self._session.rolling_back(reason_of(fault)[1])

    def _fail(self, stamp: Stamp, message_id: int) -> None:
        if self._state.is_transacted:
            self._state.rollback()
        elif stamp == self._prefetched.stamp:
            self._state.fail(self._prefetched, message_id)

    # ---- its end

    def closing(self) -> Steps[None]:
        """Close; what was seen can be acknowledged until the session closes, and comes again then,
        which is no failed attempt."""
        if not self._state.is_closed:
            yield from close_prefetch_buffer(self._requests, self._state, self._prefetched)
