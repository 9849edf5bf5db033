"""The rate of a user: how much may be sent over all of its connections together, in a second.

A send above the rate waits in a line of its user's own and is confirmed later, so the sender slows
down, and nobody else behind it; what waited too long is refused. Acknowledgements have no rate.
"""

from hms.errors.catalogue import UserLimit

__all__ = ["BURST_MS", "UserRate"]

BURST_MS = 1000
"""Who was silent for so long may send as much at once as the rate gives in that time."""


class UserRate:
    """limit 0: none. A batch is let through when the time has come that those before it have used
    up, so that one may be larger than what is left."""

    __slots__ = ("_bytes_at", "_bytes_max", "_messages_at", "_messages_max", "key")

    def __init__(self, user: str) -> None:
        self.key = "user", user
        self._messages_max = self._bytes_max = 0
        self._messages_at = self._bytes_at = 0.0

    def limit(self, messages_per_s: int, bytes_per_s: int) -> None:
        """What holds from now on."""
        self._messages_max, self._bytes_max = messages_per_s, bytes_per_s

    @property
    def free_at_ms(self) -> int:
        """When the next batch may go."""
        messages_at = self._messages_at if self._messages_max else 0
        return int(max(messages_at, self._bytes_at if self._bytes_max else 0)) + 1

    def refusal(self, now_ms: int) -> UserLimit | None:
        """What is in the way of a batch now."""
        what, limit = "messages_per_s", self._messages_max
        if not limit or self._messages_at <= now_ms:
            what, limit = "bytes_per_s", self._bytes_max
            if not limit or self._bytes_at <= now_ms:
                return None
        return UserLimit(user=self.key[1], what=what, limit=limit)

    def charge(self, count: int, size: int, now_ms: int) -> None:
        """A batch went."""
        least = now_ms - BURST_MS
        if self._messages_max:
            self._messages_at = max(self._messages_at, least) + count * 1000 / self._messages_max
        if self._bytes_max:
            self._bytes_at = max(self._bytes_at, least) + size * 1000 / self._bytes_max
