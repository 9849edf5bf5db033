"""Listeners: a session whose messages go to a service, and servers that fail at times."""

from functools import partial

from hms.client.core.pending_requests import OnLoss, Pending
from hms.errors.tree import HmsError
from hms.wire.frames import Kind
from hms.wire.packed_messages import DELIVERED_ROW, DeliveredRow
from hms.wire.structures import (
    Advertise,
    InvokeHead,
    ResultHead,
    encode_with_body,
)
from tests.sim.apps import pause
from tests.sim.client import Client
from tests.sim.entries import Arrival, Receipt
from tests.sim.unit import Steps, Unit

SERVICE = "WORK"
TPFAIL, TPSUCCESS = 1, 2


def listener(client: Client) -> Steps:
    """An asynchronous session that listens at the queue jobs; it has nothing more to do."""
    unit, world, rng = Unit(client, is_asynchronous=True), client.world, client.world.rng
    yield from unit.open()
    while not world.is_ending:
        make = partial(unit.session.consumer, "queue:jobs", listener=SERVICE)
        yield from unit.consumer("queue:jobs", make)
        until = world.now_ms + rng.randint(100, 3_000)
        yield lambda until=until: world.is_ending or world.now_ms >= until
        yield from unit.inbounds[0].close()
    yield from unit.close()


class Advertised:
    """A participant of the link: offers the service again on every new connection."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def restore(self) -> None:
        self.client.link.request(Advertise(SERVICE), Pending("Advertise", OnLoss.DONE))

    def lost(self, error: HmsError) -> None:
        pass

    def tick(self) -> None:
        pass


def server(client: Client) -> Steps:
    """Runs one call at a time, and answers on the connection that brought it, if at all."""
    link, world, rng = client.link, client.world, client.world.rng
    calls: list[tuple[InvokeHead, bytes, object]] = []
    link.on_invoke = lambda head, data: calls.append((head, data, link.welcome))
    link.participants.append(Advertised(client))
    while not world.is_ending:
        yield lambda: bool(calls) or world.is_ending
        if not calls:
            break
        head, data, login = calls.pop(0)
        receipt = world.books.received(_arrival(head, data))
        yield pause(client, 0.5)
        if login is link.welcome and client.is_up:
            _answer(client, head, receipt, is_good=rng.random() < 0.7)


def _arrival(head: InvokeHead, data: bytes) -> Arrival:
    row = DeliveredRow._make(DELIVERED_ROW.unpack(head.delivered))
    place = f"{head.destination_kind}:{head.destination}"
    return Arrival(place, row.message_id, row.delivery_count, data)


def _answer(client: Client, head: InvokeHead, receipt: Receipt, *, is_good: bool) -> None:
    if is_good:
        client.world.books.acknowledging(receipt)
    else:
        receipt.failures += 1
    result = ResultHead(head.call, TPSUCCESS if is_good else TPFAIL)
    client.link.tell(Kind.RESULT, encode_with_body(result, b""))
