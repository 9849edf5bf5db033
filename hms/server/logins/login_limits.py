"""Rate limits of failed logins, in front of all work: token buckets by address, user and node.

A pair of user and address that logged in before has a bucket of its own, so hammering a name from
elsewhere locks its user out of nothing.
"""

from collections import OrderedDict

import msgspec

__all__ = ["LoginLimits"]

KEYS_MAX = 100_000
TRUSTED_MS = 30 * 86_400_000
_MINUTE_MS = 60_000


class _Bucket(msgspec.Struct):
    """Failures that are left; as many come back in a minute as there are at most."""

    left: float
    at_ms: int


class LoginLimits:
    """Failures a minute that each may have; who has none left is refused without being
    looked at."""

    def __init__(self, per_address: int, per_user: int, per_node: int) -> None:
        self._most = {"address": per_address, "user": per_user, "pair": per_user, "node": per_node}
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()
        self._trusted: OrderedDict[str, int] = OrderedDict()

    def take(self, user: str, source: str, now_ms: int) -> bool:
        """Whether an attempt is looked at. It counts as failed until it has succeeded, so that many
        at once are no way around the limit."""
        keys = self._keys(user, source, now_ms)
        if any(self._left(key, now_ms) < 1 for key in keys):
            return False
        self._add(keys, -1, now_ms)
        return True

    def succeeded(self, user: str, source: str, now_ms: int) -> None:
        """A user came from there; this pair is known from now on."""
        self._add(self._keys(user, source, now_ms), 1, now_ms)
        pair = f"{user} {source}"
        self._trusted[pair] = now_ms
        self._trusted.move_to_end(pair)
        while len(self._trusted) > KEYS_MAX:
            self._trusted.popitem(last=False)

    def __len__(self) -> int:
        """Entries of both tables."""
        return len(self._buckets) + len(self._trusted)

    def _add(self, keys: list[tuple[str, str]], count: int, now_ms: int) -> None:
        for key in keys:
            left = min(self._most[key[0]], self._left(key, now_ms) + count)
            self._buckets[key] = _Bucket(left, now_ms)
            self._buckets.move_to_end(key)
        while len(self._buckets) > KEYS_MAX:
            self._buckets.popitem(last=False)

    def _keys(self, user: str, source: str, now_ms: int) -> list[tuple[str, str]]:
        pair = f"{user} {source}"
        since_ms = self._trusted.get(pair)
        if since_ms is not None and now_ms - since_ms < TRUSTED_MS:
            return [("pair", pair)]
        return [("address", source), ("user", user), ("node", "")]

    def _left(self, key: tuple[str, str], now_ms: int) -> float:
        most, found = self._most[key[0]], self._buckets.get(key)
        if found is None:
            return most
        back = max(0, now_ms - found.at_ms) * most / _MINUTE_MS
        return min(most, found.left + back)
