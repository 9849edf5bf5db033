"""Between engine and monitor: messages go to listeners' services, results settle them."""

from collections.abc import Sequence
from functools import partial

from hms.engine.effects import Deliver, Effects
from hms.engine.engine import Engine
from hms.engine.queue.settlement import Return, Said
from hms.server.doors.door import Words
from hms.server.doors.native_door import delivered_rows
from hms.server.effect_release import ToConnection
from hms.server.service_monitor import Answer, Invoke, Kill, Origin, Say, ServiceMonitor, Verdict
from hms.wire import structures as wire
from hms.wire.frames import Kind
from hms.wire.packed_messages import KIND_MASK
from hms.wire.service_codes import TPSUCCESS

DELAY_MS_MAX = 1 << 40


def drain_monitor(engine: Engine, monitor: ServiceMonitor, now_ms: int, fx: Effects) -> list[str]:
    """Turn what the monitor wants done into effects; a listener's result is settled at once, and
    listeners are given what there are free servers for. The server processes to be ended."""
    hung: list[str] = []
    grant = partial(_grant, engine, now_ms, fx)
    while monitor.effects or monitor.changed:
        if monitor.changed:
            monitor.release_orphans()
        effects = monitor.effects.copy()
        monitor.effects.clear()
        for effect in effects:
            if isinstance(effect, Kill):
                hung.append(effect.name)
            elif isinstance(effect, Answer) and effect.origin.session:
                _settle(engine, effect, now_ms, fx)
                monitor.settled(effect.origin.connection, effect.origin.consumer)
            else:
                fx.out.append(_words_of(effect))
        if monitor.changed:
            monitor.feed(grant)
    return hung


def _words_of(effect: Invoke | Answer | Say) -> ToConnection:
    head, data = effect.head, effect.data
    if isinstance(effect, Invoke):
        return ToConnection(effect.connection, Words(Kind.INVOKE, head, data=data))
    if isinstance(effect, Say):
        return ToConnection(effect.connection, Words(Kind.TALK, head, data=data))
    origin = effect.origin
    words = Words(Kind.ANSWER, head, origin.correlation, data)
    return ToConnection(origin.connection, words)


def _grant(
    engine: Engine, now_ms: int, fx: Effects, connection: int, consumer: int, credit: int
) -> int | None:
    return engine.listener_credit(connection, consumer, credit, now_ms, fx)


def call_listeners(
    engine: Engine, monitor: ServiceMonitor, calls: Sequence[tuple[Deliver, bytes]], now_ms: int
) -> None:
    """Messages for listeners, durable now, each with head and body, wait for their service; those
    that were taken back meanwhile are out no more."""
    monitor.times.now_ms = max(monitor.times.now_ms, now_ms)
    for deliver, payload in calls:
        owner = engine.state.connections.get(deliver.connection)
        consumer = owner.consumers.get(deliver.consumer) if owner is not None else None
        if consumer is not None and consumer.epoch == deliver.epoch:
            (message,) = deliver.messages
            origin = Origin(deliver.connection, 0, deliver.session, deliver, deliver.consumer)
            body = payload[message.head_bytes :]
            monitor.listen(origin, _invocation(deliver), body, message.expires_at_ms)


def tell_running(
    engine: Engine, monitor: ServiceMonitor, connection: int, session: int = 0, consumer: int = 0
) -> None:
    """Which messages services have of a connection's, a session's or a consumer's, that are about
    to come back: they were seen, those that wait for their turn were not."""
    for deliver in monitor.running_of(connection, session, consumer):
        assert isinstance(deliver, Deliver)
        spans = [(message.id, message.id) for message in deliver.messages]
        engine.seen(connection, deliver.consumer, deliver.epoch, spans)


def _invocation(deliver: Deliver) -> wire.InvokeHead:
    (message,) = deliver.messages
    (row,) = delivered_rows(deliver.messages, deliver.counts, fencing_token=deliver.fencing_token)
    return wire.InvokeHead(
        deliver.listener,
        0,
        0,
        message.kind & KIND_MASK,
        is_message=True,
        destination_kind=deliver.kind,
        destination=deliver.destination,
        delivered=row,
        head=message.payload[: message.head_bytes],
    )


def _settle(engine: Engine, answer: Answer, now_ms: int, fx: Effects) -> None:
    deliver, head = answer.origin.token, answer.head
    assert isinstance(deliver, Deliver)
    how: Return | None = Return.FAILED
    if head.verdict == Verdict.REJECTED:
        how = Return.REJECTED
    elif head.verdict == Verdict.RELEASED:
        how = Return.RELEASED
    elif head.rval == TPSUCCESS and not head.error_number:
        how = None
    delay_ms = min(head.delay_ms, DELAY_MS_MAX) if head.verdict == Verdict.RETRY else None
    said = Said(head.reason, str(head.error_fields.get("detail", "")) if how else "")
    engine.listener_done(
        deliver.connection, deliver.consumer, deliver.messages, how, delay_ms, now_ms, fx, said
    )
