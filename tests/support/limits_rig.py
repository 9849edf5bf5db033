"""What tests of destinations and their limits do with an engine."""

from hms.engine.effects import Confirm, Refusal
from hms.engine.settings import DestinationSettings
from hms.wire.packed_messages import ROW, pack_messages
from tests.support.engine_rig import EngineRig

OTHERS = (("queue", "orders"), ("queue", "slow"), ("topic", "news"))


def limited_rig(behavior="REJECT_NEWEST", subscriptions=(), is_topic=False, node=None, **limits):
    """An engine whose queue orders, or topic news, has limits."""
    kind, name = ("topic", "news") if is_topic else ("queue", "orders")
    limited = DestinationSettings(kind, name, limit_behavior=behavior, **limits)
    plain = [DestinationSettings(k, n) for k, n in OTHERS if (k, n) != (kind, name)]
    return EngineRig(subscriptions, destinations=(limited, *plain), **(node or {}))


def send_with_priorities(rig, priorities):
    """One message of each priority, each a batch of its own."""
    for priority in priorities:
        rig.sequence += 1
        row, sequence, is_persistent = ROW.pack(0, 1, 0, 0, priority, 0, 0, 0), rig.sequence, True
        pack = memoryview(pack_messages([(row, b"", b"x")]))
        batch = 1, sequence, 1, is_persistent, pack
        rig.run(lambda fx, batch=batch: rig.engine.send(1, 5, *batch, rig.now_ms, fx))


def waiting(rig, name="orders"):
    """What waits in a queue, in order."""
    return list(rig.engine.state.queues[name].line.in_order())


def retry(rig):
    """What the broker does after every change."""
    return rig.run(lambda fx: rig.engine.retry_blocked(rig.now_ms, fx))


def tick(rig, after_ms=0):
    """Time passes."""
    rig.now_ms += after_ms
    return rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))


def outcomes(fx):
    """What senders are told."""
    return [effect for effect in fx.out if isinstance(effect, Confirm | Refusal)]


def order(rig, verb, **arguments):
    """An operator's command and its answer."""
    answers = []
    rig.run(lambda fx: answers.append(rig.engine.administer(verb, arguments, rig.now_ms, fx)))
    return answers[0]


def shown(rig, name, kind="queue"):
    """What an operator sees of a destination."""
    return order(rig, f"{kind}.show", name=name)


def open_producer(rig, handle, destination, kind="queue"):
    """A producer in session 1."""
    rig.run(lambda fx: rig.engine.open_producer(1, handle, 1, kind, destination, "", fx))


def close_consumer(rig, handle):
    """Close a consumer in order."""
    return rig.run(lambda fx: rig.engine.close_consumer(1, handle, rig.now_ms, fx))
