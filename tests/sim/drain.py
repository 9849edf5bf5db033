"""The drain: when all applications have ended, one more client takes whatever is left anywhere."""

from functools import partial
from typing import TYPE_CHECKING

from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.destinations import Queue, Topic
from hms.constants import AckMode
from hms.wire.frames import Kind
from hms.wire.structures import Administer
from tests.sim.branching import finish_in_doubt
from tests.sim.client import Client
from tests.sim.node import Node
from tests.sim.unit import Steps, Unit

if TYPE_CHECKING:
    from tests.sim.world import World


def drain(world: "World") -> None:
    """Everybody leaves, then all places are emptied; what stays in the engine is a leftover."""
    for client in list(world.clients):
        _leave(client)
    world.until(lambda: _is_alone(world), "connections")
    client = Client(world, "drain", 1)
    world.clients.append(client)
    client.run(_take_all(client))
    world.until(lambda: not client.apps, "the drain")
    _leave(client)
    world.until(lambda: _is_alone(world), "the last connection")
    if world.node is not None:
        world._faults += [f"leftover: {said}" for said in _left(world.node)]


def _leave(client: Client) -> None:
    client.link.tell(Kind.GOODBYE)
    client.flush()
    client.world.vanish(client)


def _is_alone(world: "World") -> bool:
    return world.node is not None and not world.node.engine.state.connections


def _take_all(client: Client) -> Steps:
    unit = Unit(client, AckMode.CLIENT)
    yield from unit.open()
    yield from finish_in_doubt(unit, only_left=False)
    node = client.world.node
    assert node is not None
    pending = Pending("Administer", OnLoss.REPEAT)
    client.link.request(Administer("topic.clear_retained", {"pattern": "#"}), pending)
    yield lambda: pending.is_done
    for name in sorted(node.engine.state.queues):
        make = partial(unit.session.consumer, Queue(name), prefetch=60)
        yield from unit.consumer(f"queue:{name}", make)
    for topic in sorted(node.engine.state.topics.values(), key=lambda t: t.name):
        for one in sorted(topic.subscriptions, key=lambda s: s.name):
            selector, make = one.definition.selector, unit.session.subscriber
            make = partial(make, Topic(one.pattern.text), durable=one.name, selector=selector)
            make = partial(make, prefetch=60, shared=one.is_shared)
            yield from unit.consumer(f"sub:{one.name}", make)
    while _has_any(node):
        client.world.now_ms += 50
        for inbound in unit.inbounds:
            while inbound.has_news:
                yield from inbound.take()
            yield from inbound.acknowledge(1000)
        node.tick()
        yield lambda: True
    yield from unit.close()


def _has_any(node: Node) -> bool:
    """Something is at a place, or waits for its body to become a dead letter."""
    places = node.engine.state.places.values()
    return any(place.line.size_bytes for place in places) or node.engine.live_bytes() > 0


def _left(node: Node) -> list[str]:
    state = node.engine.state
    said = [
        f"{name} is {value}"
        for name, value in (
            ("waiting_bytes", state.waiting_bytes),
            ("sessions_open", state.sessions_open),
            ("connections", len(state.connections)),
            ("branches", len(state.branches.by_xid)),
            ("held_bytes", state.branches.held_bytes),
            ("due", len([1 for _, _, place in state.due if place.line.delayed_count])),
        )
        if value
    ]
    for place in state.places.values():
        line = place.line
        if line.waiting_count or line.out_count or line.size_bytes or line.history:
            said.append(f"{place.name} has {line.waiting_count} + {line.out_count}")
        if place.consumers:
            said.append(f"{place.name} has consumers")
    return said
