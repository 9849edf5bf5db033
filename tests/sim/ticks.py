"""Schedules in the simulation: every occurrence is a sending of its own in the books.

All occurrences of a schedule have one body; its number, which the node says in the head, makes them
different. They end by themselves, so that a drained node has none left.
"""

from typing import TYPE_CHECKING

from hms.constants import AckMode
from hms.errors.tree import HmsError
from tests.sim.entries import FAIL, INFO, OK, Sending
from tests.sim.unit import Steps, Unit

if TYPE_CHECKING:
    from tests.sim.client import Client

PLACE = "queue:ticks"
EVERY_MS = (100, 150, 400)


def clock(client: "Client") -> Steps:
    """Makes schedules now and then."""
    unit, world, rng = Unit(client, AckMode.AUTO), client.world, client.world.rng
    yield from unit.open()
    yield from unit.producer(PLACE)
    made = 0
    while not world.is_ending:
        made += 1
        name = f"tick.{client.name}.{made}"
        sendings, recurrence = _planned(unit, name)
        steps = unit.outbounds[0].producer.scheduling(name, name.encode(), None, {}, recurrence)
        try:
            yield from unit.shell.drive(steps)
        except HmsError:
            _outcome(unit, sendings, FAIL)
        else:
            _outcome(unit, sendings, OK)
        until_ms = world.now_ms + rng.choice((20, 200, 600))
        yield lambda until_ms=until_ms: world.now_ms >= until_ms or world.is_ending
    yield from unit.close()


def _planned(unit: Unit, name: str) -> tuple[list[Sending], dict[str, object]]:
    """What is about to be asked for, in the books already."""
    world, rng = unit.world, unit.rng
    every_ms, count = rng.choice(EVERY_MS), rng.randint(1, 5)
    start_ms = world.now_ms + rng.choice((0, 30, 300))
    sendings = []
    for number in range(1, count + 1):
        key, due_ms = f"{name}#{number}", start_ms + (number - 1) * every_ms
        stream = (f"tick {key}", PLACE, 4, True)
        body = f"{key} ".encode()
        sending = Sending(
            *(key, PLACE, stream, number, body, True, 0, "none", world.boots), due_ms=due_ms
        )
        unit.books.invoke(sending)
        sending.outcome = INFO
        sendings.append(sending)
    recurrence = {"every_s": every_ms / 1000, "start": start_ms / 1000, "count": count}
    return sendings, recurrence | {"missed": "ALL"}


def _outcome(unit: Unit, sendings: list[Sending], outcome: str) -> None:
    for sending in sendings:
        unit.books.sent(sending, outcome)
