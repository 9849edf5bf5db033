"""Who takes part in a run: roles, drawn by the seed; and new clients in the place of those that
vanished."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hms.constants import AckMode
from tests.sim.apps import (
    browser,
    consumer,
    parts_producer,
    passing,
    producer,
    subscriber,
    transfer,
)
from tests.sim.branching import mover, recoverer
from tests.sim.client import Client
from tests.sim.operating import operator
from tests.sim.services import listener, server
from tests.sim.ticks import clock

if TYPE_CHECKING:
    from tests.sim.world import World

Role = Callable[[Client], None]


def _both(client: Client) -> None:
    client.run(producer(client, "queue:ledger", "queue:jobs", "topic:news"))
    client.run(consumer(client, "queue:copy", AckMode.AUTO))


def _team(client: Client) -> None:
    for _ in range(2):
        client.run(subscriber(client, "news", "team", is_shared=True))


def _audit(client: Client) -> None:
    client.run(subscriber(client, "news", "audit", is_transacted=True))


def _notes(client: Client) -> None:
    client.run(producer(client, "topic:notes/a", "topic:notes/b/c"))
    client.run(passing(client, "notes/+"))


def _parts(client: Client) -> None:
    client.run(parts_producer(client, "queue:parts"))
    client.run(consumer(client, "queue:parts", AckMode.AUTO))


ROLES: dict[str, Role] = {
    "orders": lambda c: c.run(producer(c, "queue:orders", "queue:scratch")),
    "many": _both,
    "press": lambda c: c.run(producer(c, "topic:news", "topic:flash")),
    "gauge": lambda c: c.run(producer(c, "queue:gauge")),
    "reader": lambda c: c.run(consumer(c, "queue:gauge")),
    "operator": lambda c: c.run(operator(c, "orders", "ledger", "gauge")),
    "client": lambda c: c.run(consumer(c, "queue:orders")),
    "auto": lambda c: c.run(consumer(c, "queue:orders", AckMode.AUTO)),
    "ledger": lambda c: c.run(consumer(c, "queue:ledger")),
    "scratch": lambda c: c.run(consumer(c, "queue:scratch")),
    "transfer": lambda c: c.run(transfer(c, "queue:orders", "queue:copy", "topic:news")),
    "spread": lambda c: c.run(transfer(c, "queue:copy", "queue:ledger", "queue:jobs")),
    "mover": lambda c: c.run(mover(c, "queue:orders", "queue:copy", "topic:news")),
    "recoverer": lambda c: c.run(recoverer(c)),
    "letters": lambda c: c.run(transfer(c, "queue:HMS.DLQ")),
    "billing": lambda c: c.run(subscriber(c, "news", "billing")),
    "audit": _audit,
    "team": _team,
    "wire": lambda c: c.run(producer(c, "topic:news/eu", "topic:news/us/ny", "topic:news")),
    "wide": lambda c: c.run(subscriber(c, "news/#", "wide")),
    "notes": _notes,
    "latest": lambda c: c.run(passing(c, "notes/#")),
    "glance": lambda c: c.run(passing(c, "news/+/#")),
    "flash": lambda c: c.run(subscriber(c, "flash", "flash")),
    "passing": lambda c: c.run(passing(c, "news")),
    "parts": _parts,
    "lists": lambda c: c.run(consumer(c, "queue:parts")),
    "clock": lambda c: c.run(clock(c)),
    "ticks": lambda c: c.run(consumer(c, "queue:ticks")),
    "browser": lambda c: c.run(browser(c, "queue:orders", "queue:ledger", "queue:copy")),
    "listener": lambda c: c.run(listener(c)),
    "server": lambda c: c.run(server(c)),
}
ALONE = ("ledger", "billing", "audit", "flash", "wide")
"""Roles of which there is one at a time, because their place has one consumer."""
SOURCES = ("orders", "many", "press", "wire")


def draw(world: "World") -> list[str]:
    """The roles of a run: some that send, some that receive."""
    rng = world.rng
    chosen = [rng.choice(SOURCES)]
    others = [role for role in ROLES if role not in chosen]
    chosen += rng.sample(others, rng.randint(3, 7))
    if "listener" in chosen or "server" in chosen:
        chosen += ["listener", "server", "many"]
    return list(dict.fromkeys(chosen))


def join(world: "World", role: str) -> Client:
    """A new client in that role."""
    number = len(world.everybody) + 1
    client = Client(
        world,
        f"{role}{number}",
        world.rng.getrandbits(48) << 8 | number,
        is_server=role == "server",
    )
    client.role = role
    ROLES[role](client)
    world.everybody.append(client)
    return client
