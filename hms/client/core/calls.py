"""Calls of services, and answers to calls: what threads and asyncio have in common."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from time import monotonic, time
from typing import Any

from hms.client.core import current_transaction, tracing
from hms.client.core.arguments import NAME_CHARACTERS_MAX as NAME_MAX
from hms.client.core.arguments import check_patience, check_text
from hms.client.core.conversation_state import ConversationState, Part
from hms.client.core.link import State
from hms.client.core.operations import FOREVER, Steps, Wait
from hms.client.core.pending_requests import OnLoss, Pending, own_copy, reason_of
from hms.client.core.requests import Requests
from hms.client.core.service_data import encode_data
from hms.client.core.service_deadline import serving_until
from hms.client.core.service_reply import Reply, reply_of
from hms.errors.catalogue import (
    InvalidArgument,
    MessageTooLarge,
    NodeSilent,
    RequestTimeout,
    ServerLost,
    ServiceTimeout,
)
from hms.errors.tree import HmsError
from hms.wire.frames import Kind
from hms.wire.packed_messages import KIND_CARRAY
from hms.wire.service_codes import TPEV_SVCERR, TPEV_SVCFAIL, TPEV_SVCSUCC, TPSUCCESS
from hms.wire.structures import (
    CALLER_SPEAKS,
    SERVICE_SPEAKS,
    CallHead,
    NoticeHead,
    ResultHead,
    decode_with_body,
    encode_with_body,
    make_error,
)

GRACE_S = 0.025
"""So long behind its time a call waits for the node's own word that the service is late."""
_Then = Callable[[Pending], None]


class _PendingCall(Pending, eq=False):
    """A call: its service may have run, whatever becomes of the connection. patience_s: how long
    after a loss it may be made again."""

    patience_s: float = 0.0
    until_s: float = FOREVER

    def lost(self, error: HmsError) -> bool:
        """Whether it is made again."""
        if self.on_loss is not OnLoss.FAIL:
            if self.until_s == FOREVER:
                self.until_s = monotonic() + self.patience_s
            return super().lost(error)
        self.unanswered(error)
        return False

    def is_late(self, now: float) -> bool:
        """Whether it is not made again any more."""
        return self.until_s <= now

    def unanswered(self, error: HmsError) -> None:
        """Nobody will say whether it ran."""
        if self.on_loss is OnLoss.DONE:
            super().unanswered(error)
            return
        lost = ServerLost(service=self.what, reason=f"the connection ended ({reason_of(error)})")
        lost.__cause__ = error
        self._end(lost)


class Calls:
    """See the module. timeout_s None: as long as the service or the node says."""

    def __init__(self, requests: Requests) -> None:
        self.link = requests.link
        self._requests = requests

    def asking_service(self, service: str, data: Any, timeout_s: float | None) -> Steps[Reply]:
        """Run a service and wait for its reply; what it failed with is raised."""
        kind, encoded = encode_data(data)
        head, answer = yield from self.calling(service, encoded, kind, timeout_s)
        return reply_of(service, head, answer)

    def calling(
        self,
        service: str,
        data: bytes,
        kind: int = KIND_CARRAY,
        timeout_s: float | None = None,
        *,
        may_wait: bool = True,
    ) -> Steps[tuple[ResultHead, bytes]]:
        """Run a service and wait for its result; ServiceTimeout, ServiceNotFound, ServerLost."""
        check_call(service, timeout_s)
        timeout_s = _within_deadline(service, timeout_s)
        pending = self._begin(service, data, kind, timeout_s, None, may_wait=may_wait)
        return (yield from self.ending_call(pending, timeout_s))

    def begin_call(
        self,
        service: str,
        data: bytes,
        kind: int,
        timeout_s: float | None,
        notify: object = None,
        *,
        may_wait: bool = True,
    ) -> Pending:
        """Call a service; notify: another key to be woken by the answer."""
        timeout_s = _within_deadline(service, timeout_s)
        notified = None if notify is None else partial(self._notify, notify)
        return self._begin(service, data, kind, timeout_s, notified, may_wait=may_wait)

    def _notify(self, key: object, _pending: Pending) -> None:
        self.link.woken.append(key)

    def _begin(
        self,
        service: str,
        data: bytes,
        kind: int,
        timeout_s: float | None,
        then: _Then | None,
        *,
        may_wait: bool,
    ) -> Pending:
        self._check_size(data)
        trace, gtrid = "", b""
        if tracing.tracer is not None:
            trace, then = tracing.calling(service, then)
        transaction = current_transaction.current()
        if transaction is not None:
            gtrid, then = transaction.carry(self.link, then or _nobody)
        pending = self._pending(service, gtrid, then, timeout_s)
        timeout_ms = 0 if timeout_s is None else _ms(timeout_s)
        head = CallHead(
            service, timeout_ms, kind, may_wait=may_wait, transaction=gtrid, trace=trace
        )
        self.link.ask(Kind.CALL, encode_with_body(head, data), pending)
        return pending

    def promise(self, service: str, data: Any, timeout_s: float | None) -> "Future[Reply]":
        """Call a service whose reply goes into a future, on a thread of the library."""
        check_call(service, timeout_s)
        if self.link.state is State.ENDED:  # nobody is left who could tell the future
            raise own_copy(self.link.error)
        kind, encoded = encode_data(data)
        timeout_s = _within_deadline(service, timeout_s)
        future: Future[Reply] = Future()
        then = partial(self._keep_promise, future)
        self._begin(service, encoded, kind, timeout_s, then, may_wait=True)
        self.link.unattended += 1
        return future

    def _keep_promise(self, future: "Future[Reply]", pending: Pending) -> None:
        self.link.unattended -= 1
        self.link.calls.append(lambda: _resolve(future, pending))

    def _pending(
        self, service: str, gtrid: bytes, then: "_Then | None", timeout_s: float | None
    ) -> Pending:
        """Made again when the connection is lost, if it may run twice and no transaction has it."""
        welcome = self.link.welcome
        may_repeat = not gtrid and welcome is not None and service in welcome.idempotent
        on_loss = OnLoss.REPEAT if may_repeat else OnLoss.FAIL
        patience_s = self._requests.request_timeout_s if timeout_s is None else timeout_s
        return _PendingCall(service, on_loss, then=then, patience_s=patience_s)

    def tell_call(self, service: str, data: bytes, kind: int, timeout_s: float | None) -> None:
        """Call a service whose result nobody wants; not in a transaction."""
        if current_transaction.current() is not None:
            detail = "a call without a reply is not part of the transaction: add TPNOTRAN"
            raise InvalidArgument(what=service, detail=detail)
        self._check_size(data)
        if self.link.state is not State.UP:
            raise own_copy(self.link.error)
        head = CallHead(service, _ms(timeout_s), kind, is_reply_wanted=False)
        self.link.tell(Kind.CALL, encode_with_body(head, data))

    def ending_call(
        self, pending: Pending, timeout_s: float | None
    ) -> Steps[tuple[ResultHead, bytes]]:
        """Wait for the result of a call."""
        is_done, begun_at = False, monotonic()
        try:
            has_ended = partial(getattr, pending, "is_done")
            is_done = yield Wait(pending, has_ended, self.call_deadline(timeout_s))
            if not is_done and not self.link.has_heard_since(begun_at):
                is_done = yield Wait(pending, has_ended, monotonic() + GRACE_S)
        finally:
            if not is_done:
                self.link.abandon(pending)
                give_up(pending, f"the call of {pending.what} was given up")
        if not is_done and pending.is_repeated:
            reason = "the connection was lost, and it could not be made again in time"
            raise ServerLost(service=pending.what, reason=reason)
        if not is_done:
            raise self.call_too_late(pending.what, begun_at, timeout_s)
        return decode_with_body(pending.checked().payload, ResultHead)

    def saying(
        self, talk: ConversationState, part: Part, deadline: float, *, may_wait: bool = True
    ) -> Steps[int]:
        """Say something in a conversation; the event if it is over, else 0. MessageTooLarge,
        ConversationProtocol, RequestTimeout."""
        self._check_size(part.data)
        return (yield from talk.sending(part, deadline, may_wait=may_wait))

    def _check_size(self, data: bytes) -> None:
        """Refuse here what would end the connection, and with it its other calls."""
        limit = self.link.limits.message_bytes_max
        if len(data) > limit:
            raise MessageTooLarge(size=len(data), limit=limit)

    def call_too_late(self, service: str, begun_at: float, timeout_s: float | None) -> HmsError:
        """Why a call that began then has no answer: the connection, the node, or the service."""
        link = self.link
        if link.state is not State.UP:
            return own_copy(link.error)
        if link.has_heard_since(begun_at):
            return ServiceTimeout(service=service, timeout_s=timeout_s or 0)
        return NodeSilent(service=service, address=link.address, timeout_s=timeout_s or 0)

    def call_deadline(self, timeout_s: float | None) -> float:
        """Until when to wait for a call; without a timeout as long as the node, which knows the
        service's and its own."""
        if timeout_s is not None:
            return monotonic() + timeout_s
        is_up = self.link.state is State.UP
        return FOREVER if is_up else monotonic() + self._requests.request_timeout_s

    # ---- conversations

    def connecting(
        self, service: str, data: bytes, kind: int, *, has_control: bool, deadline: float
    ) -> Steps[ConversationState]:
        """Begin a conversation; the talk when the service has taken it up. ServiceNotFound,
        RequestTimeout."""
        if current_transaction.current() is not None:
            detail = "a conversation is not part of the transaction: begin it outside, or TPNOTRAN"
            raise InvalidArgument(what=service, detail=detail)
        self._check_size(data)
        mode = CALLER_SPEAKS if has_control else SERVICE_SPEAKS
        talk = ConversationState(self.link, 0, is_server=False, has_control=has_control)
        pending = Pending(service, OnLoss.BREAK, then=partial(self._talk_over, talk))
        payload = encode_with_body(CallHead(service, 0, kind, mode=mode), data)
        talk.number = self.link.ask(Kind.CALL, payload, pending)
        self.link.talks[True, talk.number] = talk
        try:
            is_begun = yield Wait(talk, lambda: talk.is_begun or talk.event, deadline)
        except BaseException:
            self.leave(talk)
            raise
        if not is_begun:
            self.leave(talk)
            raise RequestTimeout(what=f"tpconnect({service})", timeout_s=0)
        if pending.error is not None:
            raise own_copy(pending.error)
        return talk

    def notifying(self, head: NoticeHead, data: bytes) -> Steps[int]:
        """Have the node pass unsolicited data on; to how many clients."""
        self._check_size(data)
        pending = Pending("a notice")
        self.link.ask(Kind.NOTICE, encode_with_body(head, data), pending)
        yield from self._requests.answer_to(pending)
        return int(pending.value() or 0)

    def leave(self, talk: ConversationState) -> None:
        """End a conversation from this side, whatever state it is in."""
        talk.disconnect()
        self.link.talks.pop((not talk.is_server, talk.number), None)

    def _talk_over(self, talk: ConversationState, pending: Pending) -> None:
        """The service's result ends it."""
        self.link.talks.pop((True, talk.number), None)
        self.link.woken.append(talk)
        if pending.error is not None:
            talk.ended(TPEV_SVCERR, error=pending.error)
            return
        head, data = decode_with_body(pending.payload, ResultHead)
        if head.error_number:
            error = make_error(head.error_number, head.error_fields)
            event = TPEV_SVCFAIL if error.symbol == "TPESVCFAIL" else TPEV_SVCERR
            talk.ended(event, error=error)
        else:
            event = TPEV_SVCSUCC if head.rval == TPSUCCESS else TPEV_SVCFAIL
            talk.rcode = head.rcode
            talk.ended(event, Part(head.kind, data))


def check_call(service: str, timeout_s: float | None) -> None:
    """InvalidArgument for what cannot be called, and for a time that is none."""
    if service.__class__ is not str or not (service.isascii() and 0 < len(service) <= NAME_MAX):
        check_text("service", service, least=1)
    if timeout_s is not None:
        check_patience("timeout_s", timeout_s)


def _nobody(_pending: Pending) -> None:
    """Who waits is woken by the answer itself."""


def _resolve(future: "Future[Reply]", pending: Pending) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        head, data = decode_with_body(pending.checked().payload, ResultHead)
        future.set_result(reply_of(pending.what, head, data))
    except Exception as error:  # noqa: BLE001 - all of it is the caller's
        future.set_exception(error)


def _within_deadline(service: str, timeout_s: float | None) -> float | None:
    """Not longer than the caller of the service that runs here waits; InvalidArgument."""
    if timeout_s is not None and not timeout_s >= 0:
        raise InvalidArgument(what="timeout_s", detail=f"{timeout_s} is not 0 or more seconds")
    deadline = serving_until()
    if deadline is None:
        return timeout_s
    left_s = deadline - time()
    if left_s <= 0:
        raise ServiceTimeout(service=service, timeout_s=0)
    return left_s if timeout_s is None else min(timeout_s, left_s)


def _ms(timeout_s: float | None) -> int:
    return 0 if timeout_s is None else max(1, int(timeout_s * 1000))


def give_up(pending: Pending, reason: str) -> None:
    """Nobody waits for that answer any more; a veto when the call was part of a transaction."""
    given_up = getattr(pending.then, "given_up", None)
    if given_up is not None:
        given_up(reason)
