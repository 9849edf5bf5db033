"""Request handlers: from what a client asks on the wire to the engine's and the monitor's
commands."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from hms.engine.admin.operation_slices import SLICED
from hms.engine.effects import Effects, PromptReply, Reply
from hms.engine.engine import ConsumerRequest, Engine, Said
from hms.engine.queue.destinations import Queue
from hms.engine.schedule.schedule_plans import Plan
from hms.errors.catalogue import InvalidArgument, NotSupported
from hms.errors.tree import HmsError
from hms.records import by_order
from hms.records.audit import CUT_OFF, NO_DETAILS, UNKNOWN, AuditDetails
from hms.server.branch_handlers import BranchHandlers
from hms.server.client_operations import CLIENT_OPERATIONS, CLOSING, ClientOperations
from hms.server.listener_services import tell_running
from hms.server.node_operations import (
    NODE_OPERATIONS,
    UNFORESEEN,
    Ended,
    Later,
    NodeOperations,
)
from hms.server.resource_managers import RESOURCE_OPERATIONS, ResourceManagers
from hms.server.segment_roll import SEALS, SEGMENT_OPERATIONS, SegmentOperations
from hms.server.service_monitor import Listener, ServiceMonitor
from hms.server.service_operations import SERVICE_OPERATIONS, operate
from hms.server.supervision import Supervisor
from hms.wire import structures as wire
from hms.wire.commands import Order
from hms.wire.operations import CreateBackup
from hms.wire.packed_messages import unpack_rows


class Ordered(Protocol):
    """Audits an order."""

    def __call__(
        self, number: int, order: Order, error: int, now_ms: int, fx: Effects, what: AuditDetails, /
    ) -> None:
        """See Entrance.ordered()."""


class _Begun(NamedTuple):
    """An order of which slices are done. number: of its record in the audit."""

    number: int
    ended: Ended


PROMPT = frozenset(("status", "alert.list"))
"""What an operator is told also while the log waits for the disk, or for another copy."""


class RequestHandlers:
    """Applies one request at a time; the caller holds the engine's lock."""

    def __init__(
        self,
        engine: Engine,
        monitor: ServiceMonitor,
        status: Callable[[], dict[str, Any]],
        servers: Callable[[], Supervisor],
        resources: Callable[[], ResourceManagers],
        shown: Callable[[int, Order, Any], Any],
        ordered: Ordered,
        own: NodeOperations | None,
        audit_number: Callable[[Order], int],
        metrics: Callable[[], dict[str, Any]],
        segments: SegmentOperations,
        clients: ClientOperations,
        ended: Callable[[int, Order, int], Ended],
    ) -> None:
        self._engine = engine
        self._monitor = monitor
        self._status = status
        self._servers = servers
        self._resources = resources
        self._shown = shown
        self._ordered = ordered
        self._audit_number = audit_number
        self._ended = ended
        self.segments = segments
        self.backed_up_ms = 0
        """When a backup was begun last; 0: not since the boot."""
        self.shipped_ms = 0
        """The same of one that `hms backup ship` made."""
        self._clients = clients
        self._begun: dict[int, _Begun] = {}
        """By connection."""
        self._own = own
        self._metrics = metrics
        branches = BranchHandlers(engine.branches, monitor)
        self._handlers: dict[type, Callable[..., None]] = {
            wire.OpenSession: self._open_session,
            wire.CloseSession: self._close_session,
            wire.OpenProducer: self._open_producer,
            wire.CloseProducer: self._close_producer,
            wire.CreateTemporary: self._create_temporary,
            wire.DeleteTemporary: self._delete_temporary,
            wire.OpenConsumer: self._open_consumer,
            wire.RequestRetained: self._request_retained,
            wire.Poll: self._poll,
            wire.CloseConsumer: self._close_consumer,
            wire.Unsubscribe: self._unsubscribe,
            wire.Commit: self._commit,
            wire.Rollback: self._rollback,
            wire.Recover: self._recover,
            wire.Browse: self._browse,
            wire.Advertise: self._advertise,
            wire.Unadvertise: self._unadvertise,
            wire.Watch: self._watch,
            Order: self._operate,
            **branches.handlers,
        }
        self._slices: dict[type, Callable[[int, Any, int, Effects], bool]] = {
            wire.CloseSession: self._end_some,
            wire.CloseConsumer: self._shut_some,
            wire.OpenConsumer: self._open_some,
            wire.Commit: self._commit_some,
            wire.Rollback: self._roll_back_some,
            wire.Recover: self._recover_some,
            wire.RequestRetained: self._request_some,
            wire.Unsubscribe: self._unsubscribe_some,
            wire.Poll: self._poll_some,
            Order: self._operate_some,
            **branches.slices,
        }
        """What of a request is done under holds of the lock before its own."""

    def add(self, handlers: Mapping[type, Callable[..., None]]) -> None:
        """Requests that somebody else applies."""
        self._handlers.update(handlers)

    def apply(
        self, connection: int, correlation: int, request: wire.Request, now_ms: int, fx: Effects
    ) -> bool:
        """Apply a request; its reply is among the effects, a refusal is raised. False: a slice of
        it is done, and it is to be applied again when others had their turn."""
        kind = type(request)
        if kind in self._slices and self._slices[kind](connection, request, now_ms, fx):
            return False
        self._handlers[kind](connection, correlation, request, now_ms, fx)
        return True

    def _operate_some(self, connection: int, request: Order, now_ms: int, fx: Effects) -> bool:
        """A refusal is the command's own, which is told to the audit."""
        verb, before = request.command.name, len(fx.records)
        try:
            if verb in CLOSING:
                is_sliced = has_begun = self._clients.close_some(
                    connection, request.arguments, now_ms, fx
                )
            else:
                is_sliced = verb in SLICED and self._engine.operate_some(
                    connection, request, now_ms, fx
                )
                done = self._engine.done_so_far(connection)
                has_begun = bool(done) or len(fx.records) > before
            if has_begun:
                self._begin(connection, request, before, now_ms, fx)
        except HmsError:
            return False
        if verb not in CLOSING:
            fx.must_wait = fx.must_wait or is_sliced
        return is_sliced

    def _begin(
        self, connection: int, request: Order, before: int, now_ms: int, fx: Effects
    ) -> None:
        """A slice has changed something: that it was ordered is audited from here on, so that its
        number is known to the slices that follow. How it ended is another record: done, failed, or
        cut off with its connection."""
        begun = self._begun.get(connection)
        if begun is None:
            number = self._audit_number(request)
            if not number:
                return
            begun = _Begun(number, self._ended(connection, request, number))
            self._begun[connection] = begun
            self._audit(connection, request, UNKNOWN, before, now_ms, fx)
            before += 1
        _number(fx, before, begun.number, now_ms)

    def cut_off(self, connection: int, now_ms: int, fx: Effects, error: int = CUT_OFF) -> None:
        """What an order of a connection has begun is not gone on with."""
        begun = self._begun.pop(connection, None)
        count = self._engine.done_so_far(connection) + self._clients.closed_for(connection)
        self._engine.give_up(connection)
        if begun is not None:
            begun.ended(error, now_ms, fx, count)

    def _audit(
        self,
        connection: int,
        request: Order,
        error: int,
        before: int,
        now_ms: int,
        fx: Effects,
        what: AuditDetails = NO_DETAILS,
    ) -> None:
        """Its record stands before what it did: were the log torn between them, the number would
        be that of another order otherwise."""
        count = len(fx.records)
        self._ordered(connection, request, error, now_ms, fx, what)
        fx.records[before:] = [*fx.records[count:], *fx.records[before:count]]

    def _open_some(
        self, connection: int, request: wire.OpenConsumer, now_ms: int, fx: Effects
    ) -> bool:
        return self._engine.open_some(connection, _consumer(request), now_ms, fx)

    def _request_some(
        self, connection: int, request: wire.RequestRetained, now_ms: int, fx: Effects
    ) -> bool:
        return self._engine.request_some(connection, request.consumer, now_ms, fx)

    def _end_some(
        self, connection: int, request: wire.CloseSession, now_ms: int, fx: Effects
    ) -> bool:
        tell_running(self._engine, self._monitor, connection, session=request.session)
        return self._engine.end_some(connection, request.session, now_ms, fx)

    def _shut_some(
        self, connection: int, request: wire.CloseConsumer, now_ms: int, fx: Effects
    ) -> bool:
        tell_running(self._engine, self._monitor, connection, consumer=request.consumer)
        return self._engine.shut_some(connection, request.consumer, now_ms, fx)

    def _commit_some(self, connection: int, request: wire.Commit, now_ms: int, fx: Effects) -> bool:
        return self._engine.commit_some(connection, request.session, now_ms, fx)

    def _roll_back_some(
        self, connection: int, request: wire.Rollback, now_ms: int, fx: Effects
    ) -> bool:
        return self._engine.roll_back_some(connection, request.session, now_ms, fx)

    def _recover_some(
        self, connection: int, request: wire.Recover, now_ms: int, fx: Effects
    ) -> bool:
        tell_running(self._engine, self._monitor, connection, session=request.session)
        return self._engine.recover_some(connection, request.session, now_ms, fx)

    def _unsubscribe_some(
        self, connection: int, request: wire.Unsubscribe, now_ms: int, fx: Effects
    ) -> bool:
        asked = request.destination, request.name, request.topic, request.scheme
        return self._engine.unsubscribe_some(connection, asked, now_ms, fx)

    def _poll_some(self, connection: int, request: wire.Poll, now_ms: int, fx: Effects) -> bool:
        return self._engine.poll_some(connection, request.consumer, now_ms, fx)

    def _open_session(
        self, connection: int, correlation: int, request: wire.OpenSession, _: int, fx: Effects
    ) -> None:
        kind = _kind_of(request)
        last = self._engine.open_session(
            connection, request.session, request.ack_mode, kind, request.xid
        )
        fx.must_wait = fx.must_wait or bool(last)
        said: dict[str, Any] = {"last_commit": last}
        if not self._engine.is_remembered(connection, request.session):
            said["forgotten"] = True
        fx.out.append(Reply(connection, correlation, said))

    def _close_session(
        self,
        connection: int,
        correlation: int,
        request: wire.CloseSession,
        now_ms: int,
        fx: Effects,
    ) -> None:
        self._engine.close_session(
            connection, request.session, now_ms, fx, is_doubtful=request.is_doubtful
        )
        fx.must_wait = True  # what was acknowledged before is safe then
        self._monitor.closed(connection, request.session)
        fx.out.append(Reply(connection, correlation))

    def _open_producer(
        self, connection: int, correlation: int, request: wire.OpenProducer, _: int, fx: Effects
    ) -> None:
        last, topic, is_forgotten = self._engine.open_producer(
            connection,
            request.producer,
            request.session,
            request.kind,
            request.destination,
            request.topic,
            fx,
            request.sent_before,
        )
        said: dict[str, Any] = {"topic": topic} if topic else {}
        if is_forgotten:
            said["forgotten"] = True
        batch = self._engine.batch_max(connection, request.producer)
        if batch is not None:
            said["batch"] = batch
        fx.out.append(Reply(connection, correlation, {"last_sequence": last, **said}))

    def _close_producer(
        self, connection: int, correlation: int, request: wire.CloseProducer, _: int, fx: Effects
    ) -> None:
        self._engine.close_producer(
            connection, request.producer, fx, is_doubtful=request.is_doubtful
        )
        fx.out.append(Reply(connection, correlation))

    def _create_temporary(
        self,
        connection: int,
        correlation: int,
        request: wire.CreateTemporary,
        now_ms: int,
        fx: Effects,
    ) -> None:
        self._engine.state.at(now_ms)
        name = self._engine.create_temporary(connection, request.kind, fx)
        fx.out.append(Reply(connection, correlation, {"name": name}))

    def _delete_temporary(
        self,
        connection: int,
        correlation: int,
        request: wire.DeleteTemporary,
        now_ms: int,
        fx: Effects,
    ) -> None:
        self._engine.state.at(now_ms)
        self._engine.delete_temporary(connection, request.kind, request.name, fx)
        fx.out.append(Reply(connection, correlation))

    def _open_consumer(
        self,
        connection: int,
        correlation: int,
        request: wire.OpenConsumer,
        now_ms: int,
        fx: Effects,
    ) -> None:
        _check_kind(request.kind)
        self._engine.open_consumer(connection, _consumer(request), correlation, now_ms, fx)
        if request.listener:
            place = f"{request.kind}:{request.destination}"
            self._monitor.listen_at(
                Listener(connection, request.consumer, request.session, request.listener, place)
            )

    def _close_consumer(
        self,
        connection: int,
        correlation: int,
        request: wire.CloseConsumer,
        now_ms: int,
        fx: Effects,
    ) -> None:
        self._engine.close_consumer(connection, request.consumer, now_ms, fx)
        fx.must_wait = True  # as above
        self._monitor.closed(connection, consumer=request.consumer)
        fx.out.append(Reply(connection, correlation))

    def _unsubscribe(
        self, connection: int, correlation: int, request: wire.Unsubscribe, now_ms: int, fx: Effects
    ) -> None:
        self._engine.unsubscribe(
            request.destination, request.name, now_ms, fx, request.topic, request.scheme
        )
        fx.out.append(Reply(connection, correlation))

    def _request_retained(
        self,
        connection: int,
        correlation: int,
        request: wire.RequestRetained,
        now_ms: int,
        fx: Effects,
    ) -> None:
        count = self._engine.request_retained(connection, request.consumer, now_ms, fx)
        fx.out.append(Reply(connection, correlation, {"count": count}))

    def _poll(
        self, connection: int, correlation: int, request: wire.Poll, now_ms: int, fx: Effects
    ) -> None:
        self._engine.poll(connection, request.consumer, correlation, now_ms, fx)

    def _commit(
        self, connection: int, correlation: int, request: wire.Commit, now_ms: int, fx: Effects
    ) -> None:
        self._engine.commit(connection, request.session, correlation, request.number, now_ms, fx)

    def _rollback(
        self, connection: int, correlation: int, request: wire.Rollback, now_ms: int, fx: Effects
    ) -> None:
        why = Said(text=request.why)
        self._engine.rollback(connection, request.session, correlation, now_ms, fx, why)

    def _recover(
        self, connection: int, correlation: int, request: wire.Recover, now_ms: int, fx: Effects
    ) -> None:
        self._engine.recover(connection, request.session, correlation, now_ms, fx)
        self._monitor.recovered(connection, request.session)

    def _browse(
        self, connection: int, correlation: int, request: wire.Browse, now_ms: int, fx: Effects
    ) -> None:
        if request.place:
            self._engine.browse_place(
                *(connection, correlation, request.place, request.selector),
                *(request.after, request.count_max, now_ms, fx),
            )
            return
        self._engine.browse(
            connection,
            correlation,
            request.destination,
            request.selector,
            request.is_oldest_first,
            request.after,
            request.count_max,
            fx,
            with_in_flight=request.is_in_flight,
        )

    def _advertise(
        self, connection: int, correlation: int, request: wire.Advertise, _: int, fx: Effects
    ) -> None:
        self._monitor.advertise(connection, request.service, request.signature, request.places)
        fx.out.append(Reply(connection, correlation))

    def _unadvertise(
        self, connection: int, correlation: int, request: wire.Unadvertise, _: int, fx: Effects
    ) -> None:
        monitor = self._monitor
        is_back = request.is_leaving and self._servers().comes_back(monitor.group_of(connection))
        monitor.unadvertise(connection, request.service, is_expected=is_back)
        fx.out.append(Reply(connection, correlation))

    def _watch(
        self, connection: int, correlation: int, request: wire.Watch, _: int, fx: Effects
    ) -> None:
        _check_kind(request.kind)
        is_ready = self._engine.watch(connection, request.kind, request.destination)
        fx.out.append(Reply(connection, correlation, {"is_ready": is_ready}))

    def schedule(
        self,
        connection: int,
        correlation: int,
        head: wire.ScheduleHead,
        pack: memoryview,
        refused: str | None,
        now_ms: int,
        fx: Effects,
    ) -> None:
        """A SCHEDULE frame; refused: why the log takes no new messages now."""
        by = self._engine.state.producer(self._engine.state.connection(connection), head.producer)
        is_queue = isinstance(by.destination, Queue)
        row = unpack_rows(pack, 1)[0]
        plan = Plan(
            head.name,
            "queue" if is_queue else "topic",
            by.destination.name if is_queue else "",
            by.topic,
            head.every_ms,
            head.cron,
            head.time_zone,
            head.first_ms,
            head.until_ms,
            head.count_max,
            head.missed,
            head.is_persistent,
            row.ttl_ms,
            row.flags,
        )
        self._engine.schedule(
            connection,
            correlation,
            head.producer,
            plan,
            pack,
            now_ms,
            fx,
            may_replace=head.may_replace,
            request=(head.request, head.sequence),
            refused=refused,
        )

    def _operate(
        self, connection: int, correlation: int, request: Order, now_ms: int, fx: Effects
    ) -> None:
        """What an operator orders is audited, also when it fails."""
        if isinstance(request.arguments, CreateBackup) and self._is_idle(request.arguments):
            self._note_backup(request.arguments, now_ms)
            fx.out.append(Reply(connection, correlation, {"offset": request.arguments.since}))
            return
        state, result, before = self._engine.state, 0, len(fx.records)
        begun = self._begun.pop(connection, None)
        state.operation = number = self._audit_number(request) if begun is None else begun.number
        old = self._engine.described(request) if number else {}
        value = None
        try:
            value = self._done(connection, request, now_ms, fx)
            result = UNKNOWN if isinstance(value, Later) else 0
        except HmsError as fault:
            result = fault.number or UNFORESEEN
            raise
        finally:
            if number:
                _number(fx, before, number, now_ms)
            state.operation = 0
            if begun is not None:
                begun.ended(result, now_ms, fx, _affected(value))
            else:
                new = self._engine.described(request) if number else {}
                what = _changes(old, new, _affected(value))
                self._audit(connection, request, result, before, now_ms, fx, what)
            if request.command.name in SEALS:
                self.segments.asked(fx.records[before:], is_sealed=not result)
        if isinstance(value, Later):  # its end is audited when it is known
            ended = self._ended(connection, request, number)
            value.asked.append((connection, correlation, ended))
            return
        shown = self._shown(connection, request, value)
        if request.command.name in PROMPT:
            fx.out.append(PromptReply(connection, correlation, shown))
            return
        fx.must_wait = True
        fx.out.append(Reply(connection, correlation, shown))

    def _is_idle(self, shipped: CreateBackup) -> bool:
        return shipped.is_shipped and not self.segments.has_news(shipped)

    def _note_backup(self, asked: CreateBackup, now_ms: int) -> None:
        self.backed_up_ms = now_ms
        self.shipped_ms = now_ms if asked.is_shipped else self.shipped_ms

    def _done(self, connection: int, request: Order, now_ms: int, fx: Effects) -> Any:
        verb, arguments = request.command.name, request.arguments
        value: Any
        if verb in SERVICE_OPERATIONS:
            value = operate(self._monitor, self._servers(), verb, arguments)
        elif verb in SEGMENT_OPERATIONS:
            value = self.segments.operate(arguments, fx)
            if isinstance(arguments, CreateBackup):
                self._note_backup(arguments, now_ms)
        elif verb in CLIENT_OPERATIONS:
            value = self._clients.operate(connection, verb, arguments, now_ms, fx)
        elif verb in NODE_OPERATIONS and self._own is not None:
            value = self._own.operate(arguments)
        elif verb in RESOURCE_OPERATIONS:
            value = self._resources().operate(verb, arguments)
        else:
            value = self._engine.operate(request, now_ms, fx, connection)
        if verb == "status":
            value |= self._status()
        elif verb == "metrics.show":
            value |= self._metrics()
        return value


def _affected(value: Any) -> int | None:
    """Of an answer, how many messages, publications or clients it is about."""
    for word in ("count", "closed"):
        value = value.get(word, value) if isinstance(value, dict) else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _changes(old: dict[str, Any], new: dict[str, Any], affected: int | None) -> AuditDetails:
    """What was changed, before and after."""
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    before = {name: old[name] for name in names if name in old}
    after = {name: new[name] for name in names if name in new}
    return AuditDetails(affected=affected, before=before, after=after)


def _number(fx: Effects, since: int, audit_number: int, now_ms: int) -> None:
    """What an order has done says which one it was."""
    fx.records[since:] = [by_order(one, audit_number, now_ms) for one in fx.records[since:]]


def _kind_of(request: wire.OpenSession) -> str:
    """The one kind that a session is of."""
    kinds = [
        kind
        for kind, is_it in (
            ("transacted", request.is_transacted),
            ("asynchronous", request.is_asynchronous),
            ("xa", request.is_xa),
        )
        if is_it
    ]
    if len(kinds) > 1:
        feature = f"a session both {' and '.join(kinds)}"
        raise NotSupported(feature=feature, instead="Use two sessions.")
    return kinds[0] if kinds else ""


def _check_kind(kind: str) -> None:
    if kind not in (wire.QUEUE, wire.TOPIC):
        raise InvalidArgument(what="kind", detail=f"{kind!r} is neither queue nor topic")


def _consumer(request: wire.OpenConsumer) -> ConsumerRequest:
    return ConsumerRequest(
        request.consumer,
        request.session,
        request.kind,
        request.destination,
        request.credit,
        request.name,
        request.selector,
        request.durable,
        request.is_no_local,
        request.listener,
        request.is_shared,
        request.redelivery_delay_ms,
        request.topic,
        request.scheme,
        request.retained,
        request.life_ms,
        request.queue,
        request.correlation_id,
        request.credit_bytes,
        request.priority,
    )
