"""What a producer does, for threads and for asyncio alike."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import Any
from uuid import uuid4

from hms.client import message_tracing
from hms.client.core import tracing
from hms.client.core.link import State
from hms.client.core.operations import Outside, Steps, Wait
from hms.client.core.pending_requests import TURNED_AWAY, OnLoss, Pending, own_copy
from hms.client.destinations import Destination
from hms.client.file_transfers import uploading
from hms.client.global_order import check_order_name, in_order
from hms.client.message import Message
from hms.client.opening_steps import close_sender, node_now_ms
from hms.client.pack_building import Body, Cut, as_message, frames_of
from hms.client.pending_sends import Encoded, Outcome, PendingSend, SendOptions
from hms.client.receipt import UNKNOWN, Receipt, Receipts, Run
from hms.client.schedules import Recurrence, Schedule, schedule_head, schedule_of
from hms.client.send_buffer import Sender
from hms.client.send_options import SendHow, header_of, how_of, options_of
from hms.client.session_steps import SessionSteps
from hms.constants import AckMode
from hms.errors.catalogue import (
    ConnectionClosed,
    FileUnknown,
    HandleUnknown,
    InvalidArgument,
    MessageTooLarge,
    NotAuthorized,
    RequestTimeout,
    SendInDoubt,
    TpConnectionClosed,
)
from hms.errors.tree import HmsError
from hms.wire.frames import Kind
from hms.wire.packed_messages import FLAG_RETAIN, message_parts, pack_messages
from hms.wire.structures import encode_with_body

UPLOADS_MAX = 3
"""Of a file whose message the node refused as it has no such file."""


class ProducerSteps:
    """The operations of a producer."""

    def __init__(self, session: SessionSteps, sender: Sender, options: SendOptions) -> None:
        self._session = session
        self._requests = session.requests
        self._sender = sender
        self._options = options
        self._global_order = ""
        self._is_closed = False
        self._schedule_handle = self._schedules_count = 0
        self._is_waiting = session.state.ack_mode is not AckMode.NONE
        self._is_in_transaction = session.transacted

    @property
    def destination(self) -> Destination:
        """Where it sends to."""
        return self._sender.destination

    @property
    def name(self) -> str:
        """The name that it was given."""
        return self._sender.name

    @property
    def persistent(self) -> bool:
        """Whether the node keeps its messages over a crash, unless a send says otherwise."""
        return self._options.is_persistent

    @property
    def ttl_s(self) -> float:
        """How many seconds its messages live; 0: they do not expire."""
        return self._options.ttl_ms / 1000

    @property
    def priority(self) -> int:
        """0 (last) to 9 (first)."""
        return self._options.priority

    @property
    def delay_s(self) -> float:
        """How many seconds its messages are held before they are delivered."""
        return self._options.delay_ms / 1000

    @property
    def retain(self) -> bool:
        """Whether the topic keeps the last of its messages."""
        return bool(self._options.flags & FLAG_RETAIN)

    @property
    def compress(self) -> str:
        """How its bodies are compressed, "" when they are not."""
        return self._options.codec

    @property
    def is_over(self) -> bool:
        """Whether it is closed, or the node has refused it."""
        return self._is_closed or self._sender.error is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it waits to be sent or confirmed."""
        return self._sender.is_idle

    @property
    def global_order(self) -> str:
        """The global order in which it sends, "" for none."""
        return self._global_order

    def start_global_order(self, name: str | None = None) -> str:
        """Have what is sent from now on handed out strictly one after the other, over all consumers
        (F-C16); the order's name, which other producers may use too. None: a name of its own."""
        self._global_order = check_order_name(uuid4().hex if name is None else name)
        return self._global_order

    def end_global_order(self) -> None:
        """What is sent from now on is in no global order."""
        self._global_order = ""

    # ---- one by one

    def prepared(
        self,
        body: Body,
        properties: Mapping[str, Any] | None,
        how: SendHow,
        future: Outcome | None = None,
    ) -> tuple[Encoded, PendingSend]:
        """A message, encoded, and its pending send. MessageTooLarge, InvalidArgument."""
        options = self._with(how) if how else self._options
        span = None
        if tracing.tracer is not None:
            body, properties, span = message_tracing.sending(
                self.destination, body, properties, in_transaction=self._session.state.is_transacted
            )
        own: list[tuple[int, Message]] = []
        try:
            if body.__class__ is bytes and properties is None and not (how or options.codec):
                encoded: Encoded = options.bare_row(len(body)), b"", body
            else:
                message = as_message(body, properties, header_of(how) if how else None)
                _, ttl_ms, priority, flags, delay_ms, codec = options
                encoded = message.encode(ttl_ms, delay_ms, priority, flags, codec)
                if message is body:
                    own.append((0, message))
            if self._global_order:
                encoded = in_order(encoded, self._global_order)
        except BaseException as error:
            if span is not None:
                span.end(error)
            raise
        size = len(encoded[1]) + len(encoded[2])
        limit = self._requests.link.limits.message_bytes_max
        if size > limit:
            too_large = MessageTooLarge(size=size, limit=limit)
            if span is not None:
                span.end(too_large)
            raise too_large
        is_unattended = future is not None or not self._is_waiting
        send = PendingSend(1, own, options, future, is_unattended, span=span)
        return encoded, send

    def _with(self, how: SendHow) -> SendOptions:
        now_ms = partial(node_now_ms, self._requests.link)
        return options_of(self._options, how_of(how), self.destination, now_ms)

    def sending(self, encoded: Encoded, send: PendingSend) -> Steps[Receipt]:
        """Send and wait until the node has it."""
        try:
            if not self.added(encoded, send):
                yield from self._adding_later(encoded, send)
            if not send.is_sent:
                self._sender.push()
        except BaseException as error:
            send.refused(error)
            raise
        if not self._is_waiting:
            send.ended()
            return UNKNOWN
        is_done, patience_s = False, self._requests.request_timeout_s
        try:  # _outcome(), in place: two calls less for a message alone
            deadline = (send.begun_at or monotonic()) + patience_s
            is_done = yield Wait(send, partial(getattr, send, "is_done"), deadline)
        finally:
            if not is_done:
                self._give_up(send)
                send.ended()
        if send.span is not None:
            send.ended()
        return send.receipt()

    def confirmed(self, send: PendingSend) -> Steps[Receipt]:
        """Wait until the node has what was sent before."""
        yield from self._outcome(send)
        return send.receipt()

    def sending_in_transaction(self, encoded: Encoded, send: PendingSend) -> Steps[None]:
        """Send without waiting; raises what an earlier send of the transaction failed with. A lost
        connection is told by commit(), as it is when all had been confirmed before."""
        state = self._session.state
        if isinstance(state.failed_send, HmsError) and not state.is_doomed:
            raise own_copy(state.failed_send)
        yield from self.adding(encoded, send)
        send.ended()

    def adding(self, encoded: Encoded, send: PendingSend) -> Steps[None]:
        """Into the pack, as soon as there is room."""
        try:
            if not self.added(encoded, send):
                yield from self._adding_later(encoded, send)
        except BaseException as error:
            send.refused(error)
            raise

    def _adding_later(self, encoded: Encoded, send: PendingSend) -> Steps[None]:
        size = len(encoded[1]) + len(encoded[2])
        is_persistent = send.options.is_persistent
        accepts = partial(self._sender.accepts, size, is_persistent=is_persistent)
        send.begun_at = monotonic()  # the wait for room is part of the send's time
        yield from self._room(accepts)
        self.added(encoded, send, needs_room=False)

    def added(self, encoded: Encoded, send: PendingSend, *, needs_room: bool = True) -> bool:
        """Put it into the pack if that needs no waiting; it leaves at once when nothing is on its
        way. Without the steps it costs 4 us less. needs_room False: in any case, though the window
        may have no room for it yet."""
        self.check_open()
        if needs_room and self._sender.packs:  # else there is room in one of its own
            size = len(encoded[1]) + len(encoded[2])
            if not self._sender.accepts(size, is_persistent=send.options.is_persistent):
                return False
        self._session.state.has_work = True
        if send.future is not None:
            self._session.state.has_futures = True
        sender, is_persistent = self._sender, send.options.is_persistent
        if sender.link.sends_in_flight:
            sender.add(encoded, send, is_persistent=is_persistent)
        elif send.future is None and not sender.packs and sender.is_granted:  # so there is room
            sender.submit(encoded, 1, [send], is_persistent=is_persistent)
        else:
            sender.add(encoded, send, is_persistent=is_persistent)
            sender.push()
        return True

    def check_open(self) -> None:
        """ConnectionClosed, what the node refused it with, or what the connection ended with."""
        if self._is_closed or self._session.state.is_closed:
            raise ConnectionClosed(what="producer" if self._is_closed else "session")
        if self._sender.error is not None:
            raise own_copy(self._sender.error)
        link = self._requests.link
        if link.state is State.ENDED:
            raise own_copy(link.error)
        if link.is_closing or self._session.state.is_closing:
            self._session.check_staying()

    def _room(self, may_send: Callable[[], bool]) -> Steps[None]:
        """Until the window is open; RequestTimeout, ConnectionLost, ConnectionClosed."""
        self.check_open()
        if may_send():
            return
        requests, session, me = self._requests, self._session, self._requests.driver.me()
        deadline = monotonic() + requests.request_timeout_s
        if not (yield Wait(requests.link, lambda: may_send() or session.is_leaving(me), deadline)):
            raise requests.too_late("send", requests.request_timeout_s)
        self.check_open()

    def _outcome(self, send: PendingSend) -> Steps[None]:
        """Until its outcome is known. A send that is cancelled here may have been stored; what
        becomes of it is not lost on the books of the link."""
        is_done = False
        try:
            deadline = (send.begun_at or monotonic()) + self._requests.request_timeout_s
            is_done = yield Wait(send, partial(getattr, send, "is_done"), deadline)
        finally:
            if not is_done:
                self._give_up(send)

    def _give_up(self, send: PendingSend) -> None:
        late = self._requests.too_late("send", self._requests.request_timeout_s)
        send.error = self._sender.give_up(send, late)
        self._session.state.send_failed(send.error)

    # ---- many

    def sending_many(self, bodies: Iterable[Body]) -> Steps[Receipts]:
        """Send all, pipelined, and wait until the node has them.

        The first error is raised after the rest of what is on its way is settled; its attribute
        `receipts` then has a Receipt or None for each message that was sent.
        """
        if tracing.tracer is not None:
            bodies, span = message_tracing.sending_many(
                self.destination, bodies, in_transaction=self._session.state.is_transacted
            )
            with tracing.running(span):
                return (yield from self._sending_many(bodies))
        return (yield from self._sending_many(bodies))

    def _sending_many(self, bodies: Iterable[Body]) -> Steps[Receipts]:
        sends: list[PendingSend] = []
        try:
            yield from self._submitting(bodies, sends)
        except HmsError as error:
            self._sent_in_part(sends, error)
            yield from self._outcomes(sends)
            doubt = next((one.error for one in sends if isinstance(one.error, SendInDoubt)), None)
            if doubt is not None and isinstance(error, (RequestTimeout, TpConnectionClosed)):
                raise _add_receipts(own_copy(doubt), sends) from error
            _add_receipts(error, sends)
            raise
        except Exception as error:
            self._sent_in_part(sends, error)
            yield from self._outcomes(sends)
            raise
        if not self._is_waiting:
            return Receipts([Run(0, send.count, 0.0) for send in sends])
        yield from self._outcomes(sends)
        first = next((send.error for send in sends if send.error), None)
        if first is not None:
            raise _add_receipts(own_copy(first), sends)
        return Receipts([send.run for send in sends if send.run is not None])

    def _sent_in_part(self, sends: list[PendingSend], error: Exception) -> None:
        """What is on its way already is not all that was to be sent."""
        if sends:
            self._session.state.send_failed(error)

    def submitting_packs(self, packs: Iterable[tuple[bytes, int]]) -> Steps[list[PendingSend]]:
        """Submit packs that were made elsewhere, given with their counts, each as a frame."""
        sender, sends = self._sender, list[PendingSend]()
        for pack, count in packs:
            yield from self._room(lambda: sender.has_room and not sender.has_pack)
            self._session.state.has_work = True
            sends.append(PendingSend(count, [], self._options))
            persistent = self._options.is_persistent
            sender.submit([pack], count, sends[-1:], is_persistent=persistent)
        return sends

    def settling(self, sends: list[PendingSend]) -> Steps[None]:
        """Wait until the node has what was submitted; the first error that it had."""
        yield from self._outcomes(sends)
        first = next((send.error for send in sends if send.error), None)
        if first is not None:
            raise own_copy(first)

    def _submitting(self, bodies: Iterable[Body], sends: list[PendingSend]) -> Steps[None]:
        """Frame after frame; the application's iterable may itself use the connection."""
        limit = self._requests.link.limits.message_bytes_max
        sender = self._sender
        size = sender.frame_size
        frames = frames_of(bodies, self._options, limit, size, self._global_order)
        while not (sends and sends[0].error):
            cut: Cut | None = yield Outside(partial(next, frames, None))
            if cut is None:
                return
            messages, marked = cut
            count = len(messages)
            send = PendingSend(count, marked, self._options, None, not self._is_waiting)
            sender.push()
            yield from self._room(lambda: sender.has_room and not sender.has_pack)
            self._session.state.has_work = True
            sends.append(send)
            is_persistent = self._options.is_persistent
            sender.submit(message_parts(messages), count, [send], is_persistent=is_persistent)

    def _outcomes(self, sends: list[PendingSend]) -> Steps[None]:
        if not self._is_waiting:
            return
        try:
            for send in sends:
                yield from self._outcome(send)
        except BaseException:
            for send in sends:
                self._sender.withdraw(send)
            raise

    # ---- files and schedules

    def sending_file(
        self, message: Message, properties: Mapping[str, Any] | None, how: SendHow
    ) -> Steps[Receipt]:
        """Send the file, then its message, which is persistent in any case. A node that has taken
        over may lack a file whose message had not arrived: it says so, and gets both again."""
        self.check_open()
        upload = message.upload
        left = UPLOADS_MAX if upload is not None and not self._is_in_transaction else 1
        while True:
            left -= 1
            if upload is not None:
                message.uploaded((yield from uploading(self._requests, upload)))
            encoded, send = self.prepared(message, properties, how | {"persistent": True})
            try:
                return (yield from self.sending(encoded, send))
            except FileUnknown:
                if not left:
                    raise

    def _next_request(self) -> tuple[int, int]:
        """A number for a schedule, so that the node knows it again after a lost connection."""
        if not self._schedule_handle:
            self._schedule_handle = self._requests.link.new_handle()
        self._schedules_count += 1
        return self._schedule_handle, self._schedules_count

    def scheduling(
        self,
        name: str,
        body: Body,
        properties: Mapping[str, Any] | None,
        how: SendHow,
        recurrence: Recurrence,
    ) -> Steps[Schedule]:
        """Have the node send a message again and again; asked twice, it is the same schedule. What
        nobody answered may be there: SendInDoubt."""
        self.check_open()
        options = self._with(how) if how else self._options
        if options.delay_ms:
            detail = "a schedule says itself when its messages are due"
            raise InvalidArgument(what="delay_s", detail=detail)
        message = as_message(body, properties)
        _, ttl_ms, priority, flags, _, codec = options
        encoded = message.encode(ttl_ms, 0, priority, flags, codec)
        link = self._requests.link
        now_ms, number = node_now_ms(link), self._sender.number
        head = schedule_head(number, name, recurrence, options, now_ms, self._next_request())
        pending = Pending(
            "Schedule", OnLoss.REPEAT, error_if_strange=self._sender.in_doubt(1), is_bound=True
        )
        link.ask(Kind.SCHEDULE, encode_with_body(head, pack_messages([encoded])), pending)
        try:
            yield from self._requests.answer_to(pending)
        except (RequestTimeout, TpConnectionClosed) as late:
            if pending.is_answered or not pending.is_written:
                raise
            raise self._sender.in_doubt_after(1, late) from None
        except (HandleUnknown, NotAuthorized) as error:
            if not pending.is_repeated:
                raise
            raise self._sender.in_doubt(1, TURNED_AWAY.format(error)) from None
        return schedule_of(pending.value())

    # ---- its end

    def closing(self, *, is_hasty: bool = False) -> Steps[None]:
        """Wait for the confirmation of what was sent, and close; see SessionSteps.closing()."""
        if self._is_closed:
            return
        self._is_closed = True
        requests, state = self._requests, self._session.state
        is_ended = partial(getattr, requests, "is_ended")
        yield from self._session.sends_settled(
            is_ended, self._sender, closes=True, is_hasty=is_hasty
        )
        if not state.is_closed:
            yield from close_sender(requests, state, self._sender)


def _add_receipts(error: HmsError, sends: list[PendingSend]) -> HmsError:
    """The error, with what became of each message."""
    receipts: list[Receipt | None] = []
    for send in sends:
        receipts += send.receipts or [None] * send.count
    error.receipts = receipts  # type: ignore[attr-defined]
    return error
