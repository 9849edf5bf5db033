"""Expiry index: which waiting messages of a line expire, and when."""

import heapq

from hms.engine.messages import StoredMessage

_STALE_MAX = 64


class ExpiryIndex:
    """Messages that wait and have a time to live; every step costs O(log n)."""

    __slots__ = ("_heap", "messages")

    def __init__(self) -> None:
        self.messages: dict[int, StoredMessage] = {}
        self._heap: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self.messages)

    def add(self, message: StoredMessage) -> None:
        """It waits, or waits again."""
        self.messages[message.id] = message
        heapq.heappush(self._heap, (message.expires_at_ms, message.id))
        if len(self._heap) > 2 * len(self.messages) + _STALE_MAX:
            self._heap = [(m.expires_at_ms, m.id) for m in self.messages.values()]
            heapq.heapify(self._heap)

    def remove(self, message: StoredMessage) -> None:
        """It waits no more."""
        self.messages.pop(message.id, None)

    def pop_due(self, now_ms: int, count_max: int) -> list[StoredMessage]:
        """Those whose time is over, so many at once."""
        due: list[StoredMessage] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < count_max:
            # Popped: a message that came back stands in the heap once more for every return.
            message = self.messages.pop(heapq.heappop(self._heap)[1], None)
            if message is not None:
                due.append(message)
        return due
