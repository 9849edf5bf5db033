"""Room wait: a send or a commit for which there is no room yet, and what is in its way (F-C11)."""

from collections.abc import Mapping
from typing import NamedTuple

from hms.engine.effects import Effects
from hms.engine.session.session_objects import Producer, Session
from hms.errors.tree import FieldValue, HmsError

WAITING_BYTES = 512
"""What it costs beside its messages that a send waits."""
Key = tuple[str, str]
"""A queue by its name, a topic by its topic string; a session whose commits follow one another."""


class Obstacle(NamedTuple):
    """Why there is no room. late: the error of who waited; its other fields are filled in then."""

    refusal: HmsError
    may_wait: bool
    late: type[HmsError]
    fields: Mapping[str, FieldValue]

    def error_after(self, waited_ms: int, blocked: int) -> HmsError:
        """What a send is told that waited so long, and so many with it."""
        waited_s = round(waited_ms / 1000, 1)
        return self.late(**dict(self.fields) | {"waited_s": waited_s, "blocked": blocked})


class Waiting:
    """A send or a commit that waits; `session` and `producer` are those it belongs to."""

    __slots__ = (
        "correlation",
        "is_over",
        "keys",
        "producer",
        "session",
        "since_ms",
        "size",
        "until_ms",
    )

    def __init__(
        self,
        session: Session,
        producer: Producer | None,
        correlation: int,
        keys: tuple[Key, ...],
        size: int,
    ) -> None:
        self.session = session
        self.producer = producer
        self.correlation = correlation
        self.keys = keys
        self.size = size + WAITING_BYTES
        self.since_ms = 0
        self.until_ms = 0
        self.is_over = False

    def obstacle(self) -> Obstacle | None:
        """What is still in its way; an error that no waiting can cure is raised."""
        raise NotImplementedError

    def packs(self) -> list[tuple[memoryview, int]]:
        """What it would store, each pack with its count of messages."""
        raise NotImplementedError

    def charge(self, now_ms: int) -> None:
        """It went: its user's rate knows."""
        rate = self.session.connection.rate
        if rate is not None:
            for pack, count in self.packs():
                rate.charge(count, len(pack), now_ms)

    def ready_some(self, _fx: Effects) -> bool:
        """There is room: a slice of what is done before take(); whether it has to come again."""
        return False

    def unready(self) -> None:
        """There is none after all."""

    def take(self, fx: Effects) -> None:
        """There is room: do it, and answer."""
        raise NotImplementedError

    def give_up(self) -> None:
        """It is refused, or nobody asks for it any more: nothing of it was done."""
