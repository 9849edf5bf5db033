"""What a session does, for threads and for asyncio alike (F-B1 to F-B8)."""

from collections.abc import Callable
from functools import partial
from time import monotonic

from hms.client import message_tracing
from hms.client.core import listener_reasons, tracing
from hms.client.core.arguments import check_flag, check_text, check_word
from hms.client.core.listener_outcomes import Reject, Retry
from hms.client.core.operations import Steps, Wait
from hms.client.core.pending_requests import OnLoss, Pending, own_copy, reason_of
from hms.client.core.requests import LEAVE_S, Requests
from hms.client.destinations import Topic, topic_of
from hms.client.prefetch_buffer import PrefetchBuffer
from hms.client.send_buffer import Sender
from hms.client.session_state import OTHER_LOG, SessionState
from hms.client.xa_steps import Code, xa_ending, xa_rolled_back, xa_starting
from hms.constants import AckMode
from hms.errors.catalogue import (
    AcknowledgeLost,
    ConnectionClosed,
    IllegalState,
    InvalidArgument,
    RequestTimeout,
    SubscriptionNotFound,
    TransactionRolledBack,
)
from hms.errors.tree import HmsError
from hms.wire.structures import Unsubscribe

SCHEMES = ("TOPIC", "CHARACTER")
"""How wildcards are read."""


class SessionSteps:
    """The operations of a session. One transaction at a time: a session is for one thread or task,
    but several may receive in it."""

    def __init__(self, requests: Requests, state: SessionState, *, is_asynchronous: bool) -> None:
        self.requests = requests
        self.state = state
        self.is_asynchronous = is_asynchronous

    @property
    def transacted(self) -> bool:
        """Whether its work takes effect at commit() only."""
        return self.state.is_transacted and not self.state.is_xa

    @property
    def ack_mode(self) -> AckMode:
        """How received messages are acknowledged."""
        return self.state.ack_mode

    def check_open(self) -> None:
        """ConnectionClosed when it is not, or what the node refused it with."""
        if self.state.is_closed:
            raise ConnectionClosed(what="session")
        self.check_staying()
        if self.state.error is not None:
            raise own_copy(self.state.error)

    def is_leaving(self, me: object) -> bool:
        """Whether its close() or its connection's has begun, for that thread or task: a running
        listener is waited for, and what it does until it ends is part of that."""
        is_closing = self.state.is_closing
        if not (is_closing or self.requests.link.is_closing):
            return False
        caller = self.requests.caller_of(me)
        return caller is None or (is_closing and not caller.serves(self))

    def check_staying(self) -> None:
        """ConnectionClosed when it takes nothing new."""
        state, link = self.state, self.requests.link
        if (state.is_closing or link.is_closing) and self.is_leaving(self.requests.driver.me()):
            raise ConnectionClosed(what="session" if state.is_closing else "connection")

    # ---- transactions

    def committing(self) -> Steps[None]:
        """Make the transaction's sends and receipts final; TransactionRolledBack if it is lost, or
        if one of its sends failed."""
        state = self.state
        self.check_open()
        self.state.check_interrupted()
        state.must_be_transacted("commit()")
        yield from self.sends_settled()
        if state.is_closed:
            raise TransactionRolledBack(reason="the session was closed before the commit")
        if state.is_doomed:
            yield from self._roll_back()
            raise TransactionRolledBack(reason="the connection was lost while it was open")
        if (failed := state.failed_send) is not None:
            yield from self._roll_back()
            raise TransactionRolledBack(reason=f"a send in it failed: {failed}") from failed
        pending = state.commit()
        if pending is None:
            return
        try:
            yield from self.requests.answer_to(pending)
        except HmsError as late:
            if pending.is_done or not pending.is_written:
                raise
            raise pending.in_doubt(self._why_late(late)) from None
        finally:
            state.forget_commit()

    def _why_late(self, late: HmsError) -> str:
        """Why the answer to what was sent is not waited for any longer."""
        if self.requests.link.is_looking:
            return OTHER_LOG
        if isinstance(late, RequestTimeout):
            return f"no answer within {self.requests.request_timeout_s:g} s"
        return f"its answer was lost ({reason_of(late)})"

    def rolling_back(self, why: str = "") -> Steps[None]:
        """Drop the transaction's sends and give back what it received; always completes. why: what
        its listener raised."""
        self.check_open()
        self.state.must_be_transacted("rollback()")
        yield from self._roll_back(why)

    def rolling_back_for(self, why: Exception | None) -> Steps[None]:
        """The same for an application, which may say what it met."""
        if why is not None and not isinstance(why, Exception):
            detail = f"it takes an exception, not {type(why).__name__}"
            raise InvalidArgument(what="rollback()", detail=detail)
        self.check_open()
        self.state.must_be_transacted("rollback()")
        self._judge(why)
        yield from self._roll_back(listener_reasons.reason_of(why)[1])

    def _judge(self, why: BaseException | None) -> None:
        if isinstance(why, Reject | Retry):
            self.state.judge_only(why)

    def _roll_back(self, why: str = "") -> Steps[None]:
        yield from self.sends_settled(is_enough=lambda: not self.requests.is_connected)
        pending = None if self.state.is_closed else self.state.rollback(why)
        if pending is not None:
            yield from self.requests.answer_to(pending)

    # ---- distributed transactions

    def xa_starting(self, xid: bytes, flags: int, timeout_ms: int) -> Steps[Code]:
        """xa_start, in an XA session."""
        return xa_starting(self, xid, flags, timeout_ms)

    def xa_ending(self, xid: bytes, flags: int) -> Steps[Code]:
        """xa_end."""
        return xa_ending(self, xid, flags)

    def xa_rolled_back(self, xid: bytes) -> Steps[None]:
        """Have what was received in a branch delivered again in order."""
        return xa_rolled_back(self, xid)

    # ---- acknowledgement

    def recovering(self) -> Steps[None]:
        """Have all that was not acknowledged delivered again, from the oldest on (F-B8)."""
        self.check_open()
        self.state.check_interrupted()
        self.state.must_be_transacted("recover()", wanted=False)
        pending = self.state.recover()
        if pending is not None:
            yield from self.requests.answer_to(pending)

    def acknowledging_all(self, *, wait: bool) -> Steps[None]:
        """CLIENT: acknowledge all that this session has consumed so far; see Session.ack()."""
        self.check_open()
        check_flag("wait", wait)
        self.state.check_interrupted()
        if self.state.ack_mode is not AckMode.CLIENT:
            raise IllegalState(what="ack()", detail="the session acknowledges by itself")
        self.state.check_nothing_lost()
        prefetch_buffers = self.state.prefetch_buffers.values()
        seen = [
            (prefetched, list(prefetched.seen))
            for prefetched in prefetch_buffers
            if prefetched.seen
        ]
        steps = self._acknowledging(seen, wait=wait)
        if tracing.tracer is not None:
            steps = message_tracing.settling(seen, self.state, steps)
        yield from steps

    def acknowledging(
        self, prefetched: PrefetchBuffer, message_id: int, *, is_upthrough: bool
    ) -> Steps[None]:
        """CLIENT: acknowledge this message, or all of its consumer that were consumed up to it."""
        seen = list(prefetched.seen) if is_upthrough else [message_id]
        upto = seen.index(message_id) + 1 if message_id in seen else 0
        settled = [(prefetched, seen[:upto])]
        steps = self._acknowledging(settled)
        if tracing.tracer is not None:
            steps = message_tracing.settling(settled, self.state, steps)
        yield from steps

    def _acknowledging(
        self, seen: list[tuple[PrefetchBuffer, list[int]]], *, wait: bool = True
    ) -> Steps[None]:
        before = [(prefetched, prefetched.stamp.incarnation, ids) for prefetched, ids in seen]
        pending = self.state.acknowledge(seen, is_awaited=wait)
        if pending is None:
            return
        yield from self.requests.answer_to(pending)
        for prefetched, incarnation, ids in before:
            if prefetched.error is not None and prefetched.stamp.incarnation != incarnation and ids:
                raise AcknowledgeLost(message_id=f"{ids[-1]:012x}", when="during")

    # ---- subscriptions

    def unsubscribing(self, topic: Topic | str, name: str, scheme: str = "TOPIC") -> Steps[None]:
        """End a durable subscription; SubscriptionNotFound."""
        said = topic if isinstance(topic, Topic) else topic_of(topic)
        check_text("name", name, least=1)
        check_word("scheme", scheme, SCHEMES)
        self.check_open()
        pending = Pending("Unsubscribe", OnLoss.REPEAT)
        self.requests.link.request(Unsubscribe(said.name, name, said.string, scheme), pending)
        try:
            yield from self.requests.answer_to(pending)
        except SubscriptionNotFound:
            if not pending.is_repeated:  # else the first one, whose reply was lost, ended it
                raise

    # ---- its end

    def closing(self, *, left_by: BaseException | None = None) -> Steps[None]:
        """Wait for confirmations, settle what was received, close; a transaction rolls back.
        left_by: what has left its block, so the node has LEAVE_S for each. An Exception is a failed
        attempt for what the transaction received; the end of a program or task is none."""
        requests, state, is_hasty = self.requests, self.state, left_by is not None
        if state.is_closed:
            return
        state.begin_close()
        try:
            is_ended = partial(getattr, requests, "is_ended")
            yield from self.sends_settled(is_ended, closes=True, is_hasty=is_hasty)
        finally:
            if self.transacted and isinstance(left_by, Exception) and not state.is_closed:
                self._judge(left_by)
                state.rollback(listener_reasons.reason_of(left_by)[1])
            pending = None if state.is_closed else state.close()  # another one may have meanwhile
            state.leave_sends()
        if pending is not None and is_hasty:
            yield Wait(pending, lambda: pending.is_done, monotonic() + LEAVE_S)
        elif pending is not None:
            yield from requests.answer_to(pending)

    def sends_settled(
        self,
        is_enough: Callable[[], bool] = bool,
        only: Sender | None = None,
        *,
        closes: bool = False,
        is_hasty: bool = False,
    ) -> Steps[None]:
        """Wait until all of its sends, or those of one producer, have their outcome, and the
        futures and callbacks of those that were sent with send_async() have heard it. closes: no
        longer than a close waits, see Asking.settled()."""
        requests = self.requests
        senders = [only] if only is not None else self.state.all_senders
        for sender in senders:
            sender.push()

        def is_settled() -> bool:
            return is_enough() or all(sender.is_idle for sender in senders)

        def is_held() -> bool:
            return any(sender.is_wanted for sender in senders)

        if closes:
            is_over = yield from requests.settled(is_settled, is_held, is_hasty=is_hasty)
        else:
            deadline = monotonic() + requests.request_timeout_s
            is_over = yield Wait(requests.link, is_settled, deadline)
        if not is_over:
            raise requests.too_late("send", requests.request_timeout_s)
        if self.state.has_futures:
            self.state.has_futures = False
            yield from requests.telling()
            if not closes:  # what their callbacks have sent is a part of it
                yield from self.sends_settled(is_enough, only)
