"""Between engine and monitor: messages go to listeners' services, results settle them."""

from collections.abc import Sequence

from hms.engine.effects import Deliver, Effects
from hms.engine.engine import Engine
from tpmon.monitor import Answer, Invoke, Monitor, Origin
from tpmon.protocol import structures as wire
from tpmon.protocol.frames import Kind, frame
from tpmon.releases import ToConnection
from tpmon.wire import delivered_rows

TPSUCCESS = 2


def drain_monitor(engine: Engine, monitor: Monitor, now_ms: int, fx: Effects) -> None:
    """Turn what the monitor wants done into effects; a listener's result is settled at once."""
    while monitor.effects:
        effects, monitor.effects = monitor.effects, []
        for effect in effects:
            if isinstance(effect, Invoke):
                payload = wire.encode_with_body(effect.head, effect.data)
                fx.out.append(ToConnection(effect.connection, frame(Kind.INVOKE, payload)))
            elif effect.origin.session:
                _settle(engine, effect, now_ms, fx)
            else:
                payload = wire.encode_with_body(effect.head, effect.data)
                answer = frame(Kind.ANSWER, payload, effect.origin.correlation)
                fx.out.append(ToConnection(effect.origin.connection, answer))


def call_listeners(engine: Engine, monitor: Monitor, delivers: Sequence[Deliver]) -> None:
    """Messages for listeners, durable now, wait for their service."""
    for deliver in delivers:
        if deliver.connection in engine.state.connections:
            (message,) = deliver.messages
            origin = Origin(deliver.connection, 0, deliver.session, deliver, deliver.consumer)
            body = message.payload[message.head_bytes :]
            monitor.listen(origin, _invocation(deliver), body)


def _invocation(deliver: Deliver) -> wire.InvokeHead:
    (message,) = deliver.messages
    (row,) = delivered_rows(deliver.messages, deliver.counts)
    return wire.InvokeHead(
        deliver.listener,
        0,
        0,
        message.kind,
        is_message=True,
        destination_kind=deliver.kind,
        destination=deliver.destination,
        delivered=row,
        head=message.payload[: message.head_bytes],
    )


def _settle(engine: Engine, answer: Answer, now_ms: int, fx: Effects) -> None:
    deliver = answer.origin.token
    assert isinstance(deliver, Deliver)
    is_done = answer.head.rval == TPSUCCESS and not answer.head.error_number
    engine.listener_done(
        deliver.connection, deliver.consumer, deliver.messages, is_done, now_ms, fx
    )
