"""A context (F-B9): what it does without waiting, for threads and for asyncio alike."""

from typing import Any, Generic, TypeVar

from hms.client.destinations import Place, Queue, Topic
from hms.client.producer_steps import ProducerSteps
from hms.client.session_members import SessionMembers
from hms.constants import AckMode

_P = TypeVar("_P", bound=ProducerSteps)
_C = TypeVar("_C")
_B = TypeVar("_B")


def session_kind(ack: AckMode | None, transacted: bool) -> dict[str, Any]:
    """The arguments of session(); without ack its default holds, which a profile may say."""
    said: dict[str, Any] = {"transacted": transacted}
    return said if ack is None else {**said, "ack": ack}


class Sharing:
    """How many contexts use one connection."""

    def __init__(self) -> None:
        self.count = 1

    def joined(self) -> "Sharing":
        """One more."""
        self.count += 1
        return self


class ContextParts(Generic[_P, _C, _B]):
    """One session with the producers and consumers that were needed so far."""

    session: SessionMembers[_P, _C, _B]

    def __init__(self, sharing: Sharing | None) -> None:
        self._sharing = sharing or Sharing()
        self._has_left = False
        self._consumers: dict[tuple[Place, str | None], _C] = {}

    def _is_last(self) -> bool:
        """Whether the connection has to be closed with it; asked once more, it is not."""
        if not self._has_left:
            self._has_left = True
            self._sharing.count -= 1
            return not self._sharing.count
        return False

    def subscriber(self, topic: Topic | str, **options: Any) -> _C:
        """A subscriber; options as of Session.subscriber."""
        return self.session.subscriber(topic, **options)

    def browser(
        self,
        queue: Queue | str,
        selector: str | None = None,
        oldest_first: bool = False,
        *,
        in_flight: bool = False,
    ) -> _B:
        """Look at the waiting messages of a queue without taking any; see Session.browser()."""
        return self.session.browser(queue, selector, oldest_first, in_flight=in_flight)
