"""Window: the bytes that a consumer's node has sent and its application has not taken yet.

The node counts every message that it sends against `limit` and stops at it; one message is always
allowed, whatever its size. What the application took is given back by half windows. It is counted
by frames, not by messages: that costs nothing for each message, and a frame is no more than 1 MiB
beyond its last one. An empty buffer means that every frame was taken, so a consumer that waits has
given back enough for the node to go on.
"""

from collections import deque

__all__ = ["Window"]


class Window:
    """limit 0: the node does not count bytes."""

    __slots__ = ("_arrived", "_count", "_size_bytes", "limit", "taken_bytes")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken_bytes = 0
        """What the application took since bytes were given back."""
        self._arrived: deque[tuple[int, int]] = deque()
        """Of each frame that is not taken whole: how many messages it brought, and its bytes."""
        self._count = self._size_bytes = 0
        """The sums of the same."""

    def arrived(self, count: int, size_bytes: int) -> bool:
        """A frame came; whether half of the window is in use, so that bytes may soon be due."""
        if not self.limit:
            return False
        self._arrived.append((count, size_bytes))
        self._count += count
        self._size_bytes += size_bytes
        return 2 * (self._size_bytes + self.taken_bytes) >= self.limit

    def taken(self, left: int) -> bool:
        """`left` messages remain in the buffer; whether half of the window can be returned."""
        arrived = self._arrived
        while arrived and self._count - arrived[0][0] >= left:
            count, size_bytes = arrived.popleft()
            self._count -= count
            self._size_bytes -= size_bytes
            self.taken_bytes += size_bytes
        return 2 * self.taken_bytes >= self.limit > 0

    def until_due(self, count: int, left: int) -> int:
        """How many of the next `count` messages may be taken before bytes are due."""
        if not self.limit or 2 * (self._size_bytes + self.taken_bytes) < self.limit:
            return count
        size_bytes, messages = self.taken_bytes, left - self._count
        for arrived, size in self._arrived:
            messages += arrived
            size_bytes += size
            if messages >= count or 2 * size_bytes >= self.limit:
                return min(messages, count)
        return count

    def give_back(self) -> int:
        """The bytes that the node may send again."""
        taken, self.taken_bytes = self.taken_bytes, 0
        return taken

    def clear(self) -> None:
        """The node sends everything anew."""
        self._arrived.clear()
        self._count = self._size_bytes = self.taken_bytes = 0
