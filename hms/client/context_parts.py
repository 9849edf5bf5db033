"""A context (F-B9): what it does without waiting, for threads and for asyncio alike."""

from typing import Any, Generic, TypeVar

from hms.client.destinations import Destination, Queue, Topic
from hms.client.making import Making

_P = TypeVar("_P")
_C = TypeVar("_C")
_B = TypeVar("_B")

Place = tuple[str, str, str]


def place_of(destination: Destination) -> Place:
    """A destination as it was said: Topic("a", "b") reads like Topic("a/b"), but if the topic
    object a has a topic string of its own it is another one."""
    return destination.kind, destination.name, destination.string


class ContextParts(Generic[_P, _C, _B]):
    """One session with the producers and consumers that were needed so far."""

    session: Making[_P, _C, _B]

    def __init__(self) -> None:
        self._producers: dict[Place, _P] = {}
        self._consumers: dict[tuple[Place, str | None], _C] = {}

    def subscriber(self, topic: Topic | str, **options: Any) -> _C:
        """A subscriber; options as of Session.subscriber."""
        return self.session.subscriber(topic, **options)

    def browser(
        self, queue: Queue | str, selector: str | None = None, oldest_first: bool = False
    ) -> _B:
        """Look at the waiting messages of a queue without taking any."""
        return self.session.browser(queue, selector, oldest_first)
