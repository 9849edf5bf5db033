"""Rate limits of failed logins, in front of all work: token buckets by address, user and node.

A pair of user and address that logged in before has a bucket of its own, so hammering a name from
elsewhere locks its user out of nothing.

An address that has used up its failures is locked for a while: its new connections are dropped
(listening_filter.py). One that somebody has logged in from is never locked, nor is the loopback
address that the machine itself comes from.
"""

from collections import OrderedDict

import msgspec

from hms.server.listening_filter import ADDRESSES_MAX

__all__ = ["Lock", "LoginLimits"]

KEYS_MAX = 100_000
TRUSTED_MS = 30 * 86_400_000
LOCKED_MS = 30_000
NEVER_LOCKED = ("127.0.0.1", "::1")
_MINUTE_MS = 60_000


class _Bucket(msgspec.Struct):
    """Failures that are used up; in a minute as many are forgotten as there may be."""

    used: float
    at_ms: int


class Lock(msgspec.Struct):
    """Of an address. attempts: those that were refused since its failures were used up."""

    since_ms: int
    until_ms: int
    attempts: int = 0


class LoginLimits:
    """Failures a minute that each may have; who has none left is refused without being
    looked at."""

    def __init__(self, per_address: int, per_user: int, per_node: int) -> None:
        self.change(per_address, per_user, per_node)
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()
        self._trusted: OrderedDict[str, int] = OrderedDict()
        self._known: OrderedDict[str, int] = OrderedDict()
        self._locked: OrderedDict[str, Lock] = OrderedDict()

    def change(self, per_address: int, per_user: int, per_node: int) -> None:
        """Other limits from now on: failures that were counted count under them, too."""
        self._most = {"address": per_address, "user": per_user, "pair": per_user, "node": per_node}
        self._most["knock"] = per_address

    def take(self, user: str, source: str, now_ms: int) -> bool:
        """Whether an attempt is looked at. It counts as failed until it has succeeded, so that many
        at once are no way around the limit."""
        keys = self._keys(user, source, now_ms)
        is_free = all(self._left(key, now_ms) >= 1 for key in keys)
        if is_free:
            self._count(keys, 1, now_ms)
        knock = "knock", source
        if keys[0][0] == "address" and self._left(knock, now_ms) >= 1:
            # Attempts are counted for the lock although another limit refused them: a flood at one
            # name from many addresses meets the limit of the user first.
            self._count([knock], 1, now_ms)
        return is_free

    def is_known(self, user: str, source: str, now_ms: int) -> bool:
        """Whether a user has logged in from there before, within 30 days."""
        return self._keys(user, source, now_ms)[0][0] == "pair"

    def failed(self, user: str, source: str, now_ms: int) -> bool:
        """An attempt was refused; whether its address is locked now. At the last failure that it
        had, not at the next attempt, whose handshake costs the node as much as all before it."""
        if self.is_known(user, source, now_ms):
            return False
        return self._left(("knock", source), now_ms) < 1 and self._lock(source, now_ms)

    def came(self, source: str, now_ms: int) -> None:
        """Somebody has logged in from there, in whatever way: it is not locked from now on."""
        self._locked.pop(source, None)
        self._known[source] = now_ms
        self._known.move_to_end(source)
        while len(self._known) > KEYS_MAX:
            self._known.popitem(last=False)

    def locked(self, now_ms: int) -> tuple[str, ...]:
        """Addresses whose new connections are to be dropped: the latest ADDRESSES_MAX."""
        while self._locked and next(iter(self._locked.values())).until_ms <= now_ms:
            self._locked.popitem(last=False)
        return tuple(self._locked)

    def locks(self, now_ms: int) -> dict[str, Lock]:
        """The same, with since when and until when."""
        self.locked(now_ms)
        return dict(self._locked)

    def release(self, source: str, now_ms: int) -> bool:
        """As if nobody had failed from there; False when it is not locked. A flood that goes on is
        locked again."""
        if source not in self.locked(now_ms):
            return False
        del self._locked[source]
        for kind in ("address", "knock"):
            self._buckets.pop((kind, source), None)
        return True

    def _lock(self, source: str, now_ms: int) -> bool:
        known_ms = self._known.get(source)
        if source in NEVER_LOCKED or (known_ms is not None and now_ms - known_ms < TRUSTED_MS):
            return False
        found = self._locked.setdefault(source, Lock(now_ms, 0))
        if found.until_ms and found.until_ms <= now_ms:  # it has ended, and nobody has looked since
            found.since_ms, found.attempts = now_ms, 0
        found.until_ms, found.attempts = now_ms + LOCKED_MS, found.attempts + 1
        self._locked.move_to_end(source)
        while len(self._locked) > ADDRESSES_MAX:
            self._locked.popitem(last=False)
        return True

    def succeeded(self, user: str, source: str, now_ms: int) -> None:
        """A user came from there; this pair is known from now on."""
        self._count(self._keys(user, source, now_ms), -1, now_ms)
        self._count([("knock", source)], -1, now_ms)
        pair = f"{user} {source}"
        self._trusted[pair] = now_ms
        self._trusted.move_to_end(pair)
        while len(self._trusted) > KEYS_MAX:
            self._trusted.popitem(last=False)

    def __len__(self) -> int:
        """Entries of its tables."""
        return max(len(self._buckets), len(self._trusted), len(self._known))

    def _count(self, keys: list[tuple[str, str]], failures: int, now_ms: int) -> None:
        for key in keys:
            used = max(0, self._used(key, now_ms) + failures)
            self._buckets[key] = _Bucket(used, now_ms)
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
        return self._most[key[0]] - self._used(key, now_ms)

    def _used(self, key: tuple[str, str], now_ms: int) -> float:
        """Never more than there may be now, so that a lower limit is over in a minute, too."""
        most, found = self._most[key[0]], self._buckets.get(key)
        if found is None:
            return 0
        forgotten = max(0, now_ms - found.at_ms) * most / _MINUTE_MS
        return max(0, min(most, found.used) - forgotten)
