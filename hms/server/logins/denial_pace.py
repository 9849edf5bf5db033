"""The pace of denials: a user that is refused again and again waits before its next commands.

A refused command costs the node as much as one that is applied. So a user has a bucket of denials;
the connections that go beyond it wait, as senders above their rate do, and what they send meanwhile
waits in their lanes, which are bounded. The user's other connections are not held up. One that
floods by ever new connections has no new ones until its bucket has emptied a little.
"""

from collections import OrderedDict

import msgspec

__all__ = ["DENIALS_AT_ONCE", "DENIALS_PER_S", "DenialPace"]

DENIALS_PER_S = 100
DENIALS_AT_ONCE = 200
WAIT_MS_MAX = 10_000
EXHAUSTED_MS = 9_000
"""As long a wait no single connection comes to: it has 256 denials at once, then it waits."""
USERS_MAX = 10_000


class _Bucket(msgspec.Struct):
    """Denials that are used up; DENIALS_PER_S of them are forgotten each second."""

    used: float
    at_ms: int


class DenialPace:
    """Under the engine's lock."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def denied(self, user: str, now_ms: int) -> int:
        """One more; how many milliseconds the connection waits before its next command."""
        bucket = self._buckets.setdefault(user, _Bucket(0, now_ms))
        self._buckets.move_to_end(user)
        if len(self._buckets) > USERS_MAX:
            self._buckets.popitem(last=False)
        bucket.used, bucket.at_ms = self._used(bucket, now_ms) + 1, now_ms
        wait_ms = _wait_ms(bucket.used)
        if wait_ms > WAIT_MS_MAX:
            bucket.used, wait_ms = bucket.used - 1, WAIT_MS_MAX
        return wait_ms

    def is_exhausted(self, user: str, now_ms: int) -> bool:
        """Whether a user may not have another connection yet."""
        bucket = self._buckets.get(user)
        return bucket is not None and _wait_ms(self._used(bucket, now_ms)) >= EXHAUSTED_MS

    @staticmethod
    def _used(bucket: _Bucket, now_ms: int) -> float:
        forgotten = max(0, now_ms - bucket.at_ms) * DENIALS_PER_S / 1000
        return max(0.0, bucket.used - forgotten)


def _wait_ms(used: float) -> int:
    return max(0, int((used - DENIALS_AT_ONCE) * 1000 / DENIALS_PER_S))
