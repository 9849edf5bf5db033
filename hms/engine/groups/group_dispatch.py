"""Group dispatch: who gets what of a line with groups and global orders (F-C16, F-C17).

Consumers take in turn, those with the fewest groups first; who took a group that nobody owned waits
for the next turn, so new groups spread. Each takes what comes first: of what anybody may have, and
of what waits for it alone.
"""

import heapq
from collections.abc import Callable

from hms.engine.flow.bytes_in_flight import BytesInFlight
from hms.engine.groups.message_sort import Entry
from hms.engine.messages import StoredMessage
from hms.engine.queue.consumer_view import ConsumerView
from hms.engine.queue.destinations import Place

TURN_MESSAGES = 64


class HandOut:
    """One hand-out; batches: what each consumer takes. The caller delivers it. room_of: how many
    bytes a consumer may be sent."""

    def __init__(
        self,
        place: Place,
        now_ms: int,
        count_max: int,
        room_of: Callable[[ConsumerView], int],
    ) -> None:
        assert place.line.groups is not None, f"{place.name} has no groups"
        self._place, self._line, self._groups = place, place.line, place.line.groups
        self._now_ms = now_ms
        self._left, self._room_of = count_max, room_of
        self.batches: dict[ConsumerView, list[StoredMessage]] = {}
        self.expired: list[StoredMessage] = []
        self._credit: dict[ConsumerView, int] = {}
        self._room: dict[ConsumerView, int] = {}
        self._taken: dict[BytesInFlight, int] = {}

    def run(self) -> None:
        """Until nobody takes anything more, or so many have been taken."""
        for priority in self._place.priorities:
            self._among([c for c in self._place.consumers if c.priority == priority])

    def _among(self, consumers: list[ConsumerView]) -> None:
        """The same for those of one priority; the higher ones come first."""
        ready = [c for c in consumers if self._begin(c)]
        while ready and self._line.waiting_count and self._left > 0:
            share = max(1, min(TURN_MESSAGES, self._line.waiting_count // len(ready)))
            if not sum([self._turn(c, share) for c in self._in_turn(ready)]):
                break
            ready = [c for c in ready if self._has_room(c)]

    def _in_turn(self, ready: list[ConsumerView]) -> list[ConsumerView]:
        """Those of them that may find something; of a thousand that wait most do not."""
        line, groups, place = self._line, self._groups, self._place
        free_count = line.waiting_count - line.held_count
        owners = [c for c in ready if groups.has_shelf(c)]
        if not free_count:
            return owners
        place.turn += 1
        start = place.turn % len(ready)
        in_turn = ready[start:] + ready[:start]
        if free_count >= len(ready) or place.has_selectors:
            return sorted(in_turn, key=groups.owned_count)
        chosen = heapq.nsmallest(free_count, in_turn, key=groups.owned_count)
        known = set(chosen)
        return chosen + [c for c in owners if c not in known]

    def _begin(self, consumer: ConsumerView) -> bool:
        self._credit[consumer] = consumer.credit
        self._room[consumer] = self._room_of(consumer)
        return self._has_room(consumer)

    def _has_room(self, consumer: ConsumerView) -> bool:
        if self._credit[consumer] <= 0 or self._room[consumer] <= 0:
            return False
        limit = consumer.session.connection.in_flight
        return limit is None or self._taken.get(limit, 0) < limit.room_bytes

    def _turn(self, consumer: ConsumerView, share: int) -> bool:
        """Whether it took something."""
        if self._taken and not self._has_room(consumer):
            return False  # another consumer of its user may have taken all there was
        took, before = False, self._groups.owned_count(consumer)
        for _ in range(share):
            message = self._first(consumer)
            if message is None:
                break
            self._take(consumer, message)
            took = True
            if not self._has_room(consumer) or self._groups.owned_count(consumer) > before:
                break
        return took

    def _first(self, consumer: ConsumerView) -> StoredMessage | None:
        """What it would take next; what has expired leaves."""
        while self._left > 0:
            own, free = self._groups.shelf(consumer), self._place.first_for(consumer)
            entry = _smaller(own, free)
            if entry is None:
                return None
            message: StoredMessage = entry[-1]
            expired = self._expired_of(message)
            if expired is None:
                return message
            self._line.remove(expired)
            self.expired.append(expired)
            self._left -= 1
        return None

    def _expired_of(self, message: StoredMessage) -> StoredMessage | None:
        """The message itself, or one of the list that it stands for: its receiver would give all
        of that back, again and again."""
        goes = [message] if self._groups.gathering is None else self._groups.goes_with(message)
        return next((m for m in goes if 0 < m.expires_at_ms <= self._now_ms), None)

    def _take(self, consumer: ConsumerView, message: StoredMessage) -> None:
        goes = self._line.take_with(message, consumer)
        self.batches.setdefault(consumer, []).extend(goes)
        self._left -= len(goes)
        self._credit[consumer] -= 1
        size_bytes = sum([m.length for m in goes])
        self._room[consumer] -= size_bytes
        if (limit := consumer.session.connection.in_flight) is not None:
            self._taken[limit] = self._taken.get(limit, 0) + size_bytes


def _smaller(own: Entry | None, free: Entry | None) -> Entry | None:
    if own is None or free is None:
        return own or free
    return min(own, free)
