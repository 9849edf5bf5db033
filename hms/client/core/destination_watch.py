"""Destination watch: whether there is a consumer at a destination (F-E11).

The node is asked once for each destination and connection, and tells every change from then on. A
durable subscription whose subscriber is away is nobody.
"""

from functools import partial

from hms.client.core.events import EventKind
from hms.client.core.link import Link
from hms.client.core.link_participants import Participant
from hms.client.core.pending_requests import OnLoss, Pending
from hms.errors.tree import HmsError
from hms.wire.structures import Watch


class DestinationWatch(Participant):
    """The destinations that a connection watches, by kind and name; the value is what was last told
    of each, None before the first answer."""

    tick_s = 0.0

    def __init__(self, link: Link) -> None:
        self._link = link
        self._told: dict[tuple[str, str], bool | None] = {}
        link.participants.append(self)
        link.on_ready = self._tell

    def add(self, kind: str, name: str) -> Pending:
        """Watch one more; what the node answers first is told too, unless it refuses."""
        self._told[kind, name] = None
        return self._ask(kind, name, OnLoss.REPEAT)

    def restore(self) -> None:
        """Ask again; what changed meanwhile is told. What was never answered is still asked."""
        for (kind, name), told in self._told.items():
            if told is not None:
                self._ask(kind, name, OnLoss.DONE)

    def lost(self, error: HmsError) -> None:
        """The next connection asks again."""

    def drain(self) -> None:
        """Nothing is held back here."""

    def leave(self) -> None:
        """The end of the connection ends it."""

    def tick(self) -> None:
        """Nothing is held back."""

    def _ask(self, kind: str, name: str, on_loss: OnLoss) -> Pending:
        pending = Pending("watch()", on_loss, then=partial(self._answered, kind, name))
        return self._link.request(Watch(kind, name), pending)

    def _answered(self, kind: str, name: str, pending: Pending) -> None:
        if pending.error is None and pending.is_answered:
            self._tell(kind, name, bool(pending.value()["is_ready"]))
        elif self._told.get((kind, name)) is None:
            self._told.pop((kind, name), None)  # refused, or given up
        elif pending.is_answered and pending.error is not None:
            del self._told[kind, name]  # a node that was booted anew does not know it any more
            self._link.report(pending.error)

    def _tell(self, kind: str, name: str, is_ready: bool) -> None:
        if self._told.get((kind, name), is_ready) is is_ready:
            return
        self._told[kind, name] = is_ready
        event = EventKind.CONSUMER_READY if is_ready else EventKind.CONSUMER_NOT_READY
        self._link.announce(event, destination=f"{kind}:{name}")
