"""An operator of the simulation: pauses, resumes and alters queues at random, and puts all back."""

from hms.client.core.pending_requests import OnLoss, Pending
from hms.errors.tree import HmsError
from hms.wire.structures import Administer
from tests.sim.apps import pause
from tests.sim.client import Client
from tests.sim.unit import Steps

PAUSES = ("PRODUCTION", "CONSUMPTION", "BOTH")


def operator(client: Client, *queues: str) -> Steps:
    """Until the end; then nothing is paused any more, whatever an operator before it has done."""
    world, rng = client.world, client.world.rng
    while not world.is_ending:
        name = rng.choice(queues)
        yield from _order(client, "pause", name, what=rng.choice(PAUSES))
        yield pause(client, 0.05)
        yield from _order(client, "resume", name, what=rng.choice(PAUSES))
        if rng.random() < 0.3:
            yield from _order(client, "alter", name, max_messages=rng.choice((3, 20, None)))
        yield pause(client, 0.05)
    for name in queues:
        yield from _order(client, "resume", name, what="BOTH")


def _order(client: Client, verb: str, name: str, **arguments: object) -> Steps:
    """Asked again when the connection is lost: each of them may be done twice."""
    pending = Pending(verb, OnLoss.REPEAT)
    request = Administer(f"queue.{verb}", {"name": name, **arguments})
    client.link.request(request, pending)
    yield lambda: pending.is_done
    if isinstance(pending.error, HmsError):
        raise pending.error
