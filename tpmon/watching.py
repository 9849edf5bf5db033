"""Watching: whether there is a consumer at a destination (F-E11).

The node tells it only when asked, so it is looked at once a second. A durable subscription whose
subscriber is away is nobody.
"""

from functools import partial
from typing import Any

from field_buffer.errors import HmsError
from tpmon.asked import OnLoss, Pending
from tpmon.events import EventKind
from tpmon.link import Link, State
from tpmon.participants import Participant
from tpmon.protocol.structures import QUEUE, Administer

LOOK_S = 1.0


class Watching(Participant):
    """The destinations of one connection that are watched, by kind and name; the value is what was
    last told of each."""

    tick_s = LOOK_S

    def __init__(self, link: Link) -> None:
        self._link = link
        self._told: dict[tuple[str, str], bool | None] = {}
        link.participants.append(self)

    def add(self, kind: str, name: str) -> Pending:
        """Watch one more; what the node answers first is told too, unless it refuses."""
        if not self._told:
            self._link.ticking.append(self)
        self._told[kind, name] = None
        return self._ask(kind, name, OnLoss.REPEAT)

    def remove(self, kind: str, name: str) -> None:
        """Watch it no longer."""
        self._told.pop((kind, name), None)

    def restore(self) -> None:
        """The next look will tell."""

    def lost(self, error: HmsError) -> None:
        """The next look will tell."""

    def leave(self) -> None:
        """Nothing is held at the node."""

    def tick(self) -> None:
        """Look at all of them."""
        if not self._told:
            return
        if self._link.state is State.UP:
            for kind, name in self._told:
                self._ask(kind, name, OnLoss.DONE)
        self._link.ticking.append(self)

    def _ask(self, kind: str, name: str, on_loss: OnLoss) -> Pending:
        is_queue = kind == QUEUE
        verb = "queue.show" if is_queue else "subscription.list"
        request = Administer(verb, {"name": name} if is_queue else {})
        pending = Pending("watch()", on_loss, then=partial(self._answered, kind, name))
        return self._link.request(request, pending)

    def _answered(self, kind: str, name: str, pending: Pending) -> None:
        key = kind, name
        if pending.error is not None or not pending.is_answered or key not in self._told:
            if pending.is_answered and self._told.get(key) is None:
                self.remove(kind, name)  # refused
            return
        is_ready = _has_consumers(kind, name, pending.value())
        if is_ready is not self._told[key]:
            self._told[key] = is_ready
            event = EventKind.CONSUMER_READY if is_ready else EventKind.CONSUMER_NOT_READY
            self._link.announce(event, destination=f"{kind}:{name}")


def _has_consumers(kind: str, name: str, answer: Any) -> bool:
    if kind == QUEUE:
        return bool(answer["consumers"])
    return any(one["is_active"] for one in answer if one["topic"] == name)
