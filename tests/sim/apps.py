"""What applications do: each is one thread of a program that uses the library, to the end.

An application looks at world.is_ending between its steps; it then finishes what it has begun and
closes. What the node refuses, it tries again later, as a program would.
"""

import contextlib
import struct
from functools import partial

from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.destinations import Topic
from hms.constants import AckMode
from hms.errors.catalogue import DurableNameInUse, SubscriptionNotFound
from hms.wire.frames import DELIVER_HEAD, decode_deliver
from hms.wire.packed_messages import unpack_delivered
from hms.wire.structures import Browse
from tests.sim.client import Client, Condition
from tests.sim.inbound import Inbound
from tests.sim.ordering import PARTS, part
from tests.sim.unit import Steps, Unit

_POSITION = struct.Struct("<Q")


def producer(client: Client, *places: str) -> Steps:
    """Sends bursts; waits now and then until all is confirmed."""
    unit, world, rng = Unit(client), client.world, client.world.rng
    yield from unit.open()
    for place in places:
        yield from unit.producer(place)
    while not world.is_ending:
        outbound = rng.choice(unit.outbounds)
        for _ in range(rng.randint(1, 6)):
            yield from outbound.send()
        outbound.look()
        roll = rng.random()
        if roll < 0.2:
            yield from unit.wait_for_sends()
        elif roll < 0.25:
            yield from unit.close_producer(outbound)
            yield from unit.producer(outbound.place)
        yield pause(client)
    yield from unit.close()


def parts_producer(client: Client, place: str) -> Steps:
    """Sends lists part by part, in any order; some never become whole."""
    unit, world, rng = Unit(client), client.world, client.world.rng
    yield from unit.open()
    yield from unit.producer(place)
    count = 0
    while not world.is_ending:
        (outbound,) = unit.outbounds
        count += 1
        numbers = rng.sample(range(1, PARTS + 1), PARTS if rng.random() < 0.9 else PARTS - 1)
        for number in numbers:
            yield from outbound.send(part(f"{client.name}.{count}", number))
        outbound.look()
        yield pause(client)
    yield from unit.close()


def consumer(client: Client, place: str, ack: AckMode = AckMode.CLIENT) -> Steps:
    """Takes, acknowledges some, recovers, closes half way and comes back."""
    unit, world, rng = Unit(client, ack), client.world, client.world.rng
    yield from unit.open()
    yield from open_queue(unit, place, is_picky=True)
    while not world.is_ending:
        (inbound,) = unit.inbounds
        if rng.random() < 0.1 and inbound.prefetched.error is None:
            yield from inbound.wait()
        else:
            yield news(inbound)
        roll = rng.random()
        if inbound.prefetched.error is not None or roll < 0.04:
            yield from inbound.close()
            yield from open_queue(unit, place, is_picky=True)
        elif roll < 0.6 or not inbound.seen:
            receipt = yield from inbound.take()
            if receipt is not None and receipt.sending.is_poison and ack is AckMode.CLIENT:
                yield from unit.recover()
        elif roll < 0.9:
            yield from inbound.acknowledge(rng.randint(1, 5))
        elif roll < 0.95:
            yield from unit.recover()
        yield pause(client)
    yield from unit.close()


def transfer(client: Client, source: str, *targets: str) -> Steps:
    """Takes from one place and sends to others in one transaction."""
    unit, world, rng = Unit(client, is_transacted=True), client.world, client.world.rng
    yield from unit.open()
    yield from open_queue(unit, source)
    for target in targets:
        yield from unit.producer(target)
    while not world.is_ending:
        (inbound,) = unit.inbounds
        for _ in range(rng.randint(0, 3)):
            if inbound.has_news and inbound.prefetched.error is None:
                yield from inbound.take()
        if unit.outbounds:
            for _ in range(rng.randint(0, 3)):
                yield from rng.choice(unit.outbounds).send()
        if rng.random() < 0.05 or inbound.prefetched.error is not None:
            yield from inbound.close()
            yield from open_queue(unit, source)
        yield pause(client)
        is_failing = rng.random() < 0.15 or unit.has_poison
        yield from (unit.rollback() if is_failing else unit.commit())
    yield from unit.close()


def subscriber(
    client: Client, topic: str, name: str, *, is_transacted: bool = False, is_shared: bool = False
) -> Steps:
    """A durable subscriber, which changes its selector and unsubscribes at times."""
    mode = AckMode.AUTO if is_transacted else AckMode.CLIENT
    unit, world, rng = (
        Unit(client, mode, is_transacted=is_transacted),
        client.world,
        client.world.rng,
    )
    yield from unit.open()
    colors = ("",) if is_shared else ("", "red", "blue")
    color = rng.choice(colors)
    while not world.is_ending:
        yield from open_durable(unit, topic, name, color, is_shared=is_shared)
        if not unit.inbounds:
            if is_transacted:  # it may itself hold what the subscription waits for
                yield from unit.rollback()
            continue
        yield from _attend(unit, unit.inbounds[0])
        if unit.inbounds[0].prefetched.error is None and rng.random() < 0.3:
            yield from _end_subscription(unit, topic, name)
            color = rng.choice(colors)
        else:
            yield from unit.inbounds[0].close()
        if is_transacted:
            yield from (unit.rollback() if rng.random() < 0.3 else unit.commit())
    yield from unit.close()


def _attend(unit: Unit, inbound: Inbound) -> Steps:
    world, rng = unit.world, unit.rng
    for _ in range(rng.randint(1, 25)):
        yield lambda: inbound.has_news or world.is_ending or rng.random() < 0.02
        if inbound.prefetched.error is not None or world.is_ending:
            return
        yield from inbound.take()
        roll = rng.random()
        if unit.state.is_transacted:
            if roll < 0.3:
                yield from (unit.rollback() if roll < 0.1 else unit.commit())
        elif roll < 0.4:
            yield from inbound.acknowledge(rng.randint(1, 5))
        elif roll < 0.45:
            yield from unit.recover()


def _end_subscription(unit: Unit, topic: str, name: str) -> Steps:
    """Also while a transaction still holds what it delivered."""
    yield from unit.inbounds[0].close()
    unit.books.unsubscribe(f"sub:{name}")
    # a repeated one, or the consumer of a connection that the node has not missed yet
    with contextlib.suppress(SubscriptionNotFound, DurableNameInUse):
        yield from unit.shell.drive(unit.session.unsubscribing(topic, name))


def passing(client: Client, topic: str) -> Steps:
    """A subscriber that is not durable."""
    unit, world, rng = Unit(client), client.world, client.world.rng
    yield from unit.open()
    while not world.is_ending:
        color = rng.choice(("", "red"))
        selector = f"color = '{color}'" if color else None
        credit = rng.choice((1, 3, 20))
        make = partial(unit.session.consumer, Topic(topic), selector=selector, prefetch=credit)
        yield from unit.consumer(f"passing:{client.name}", make)
        for _ in range(rng.randint(1, 40)):
            (inbound,) = unit.inbounds
            yield news(inbound)
            if inbound.prefetched.error is not None or world.is_ending:
                break
            yield from inbound.take()
        yield from inbound.close()
    yield from unit.close()


def browser(client: Client, *queues: str) -> Steps:
    """Looks; what it sees was sent, and was not acknowledged before it looked."""
    world, rng = client.world, client.world.rng
    while not world.is_ending:
        queue = rng.choice(queues)
        settled = {k for (p, k), r in world.books.receipts.items() if p == queue and r.is_settled}
        name = queue.removeprefix("queue:")
        pending = Pending("Browse", OnLoss.REPEAT)
        client.link.request(Browse(name, "", rng.random() < 0.5, 0, rng.choice((3, 100))), pending)
        yield lambda pending=pending: pending.is_done
        _, _, count = decode_deliver(pending.checked().payload)
        for _, _, body in unpack_delivered(
            pending.payload, count, DELIVER_HEAD.size + _POSITION.size
        ):
            key = body.split(b" ", 1)[0].decode()
            if key in settled or key not in world.books.sendings:
                world.books.faults.append(f"unexpected: {key} was seen in {queue}")
        yield pause(client, 0.01)


# ---- steps that several of them take


def pause(client: Client, chance: float = 0.3) -> Condition:
    """A condition that holds some time later."""
    rng, world = client.world.rng, client.world
    return lambda: world.is_ending or rng.random() < chance


def news(inbound: Inbound) -> Condition:
    """Something came, or the end is near."""
    return lambda: inbound.has_news or inbound.unit.world.is_ending


def open_queue(unit: Unit, place: str, *, is_picky: bool = False) -> Steps:
    """A consumer of a queue; a picky one may want red messages alone."""
    credit = unit.rng.choice((1, 4, 20, 60))
    selector = "color = 'red'" if is_picky and unit.rng.random() < 0.2 else None
    make = partial(unit.session.consumer, place, selector=selector, prefetch=credit)
    yield from unit.consumer(place, make)


def open_durable(
    unit: Unit, topic: str, name: str, color: str, *, is_shared: bool = False
) -> Steps:
    """A durable subscriber; none when the node refuses it for now."""
    place = f"sub:{name}"
    selector = f"color = '{color}'" if color else None
    known = unit.world.selectors.get(name)
    if known != color:
        unit.books.unsubscribe(place)  # another selector ends the subscription there was
    unit.world.selectors[name] = color
    make = partial(
        unit.session.subscriber,
        Topic(topic),
        durable=name,
        shared=is_shared,
        selector=selector,
        prefetch=unit.rng.choice((1, 5, 30)),
    )
    try:
        yield from unit.consumer(place, make)
    except DurableNameInUse:
        yield pause(unit.client)
        return
    unit.books.subscribe(place, f"topic:{topic}", color)
