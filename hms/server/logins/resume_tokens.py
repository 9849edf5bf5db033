"""Resume tokens: a signed proof of an earlier login, which takes microseconds to check.

A token holds for one user of one generation, one client (uid), one way in (its key or the uid of
its process) and one time. Its keys are drawn when the node boots unless they are given.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Sequence

import msgspec

from hms.server.logins.callers import Caller

__all__ = ["ResumeTokens", "Resumed"]

_MAC_BYTES = 32
_TOKEN_BYTES_MAX = 8192
KEY_BYTES = 32


class Resumed(msgspec.Struct, frozen=True, array_like=True):
    """What a token says; its signature covers it and who presents it."""

    user: str
    generation: int
    mechanism: str
    issued_ms: int
    expires_ms: int
    narrowed: tuple[str, ...] | None
    nonce: bytes
    authenticator: str = ""
    roles: tuple[str, ...] = ()
    login_ends_ms: int = 0
    key: str = ""


class ResumeTokens:
    """keys: the newest first; tokens of each of them count."""

    def __init__(
        self, keys: Sequence[bytes], life_s: int, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._keys = list(keys)
        self.life_s = life_s
        """Of those that are made from now on."""
        self._random = random

    def sign_with(self, keys: Sequence[bytes]) -> None:
        """Other keys, from now on."""
        self._keys = list(keys)

    def issue(
        self,
        user: str,
        generation: int,
        mechanism: str,
        uid: int,
        caller: Caller,
        now_ms: int,
        expires_ms: int = 0,
        narrowed: tuple[str, ...] | None = None,
        authenticator: str = "",
        roles: tuple[str, ...] = (),
        key: str = "",
    ) -> tuple[bytes, int]:
        """(token, when it expires); never beyond the login itself."""
        ends_ms = now_ms + self.life_s * 1000
        ends_ms = min(ends_ms, expires_ms) if expires_ms else ends_ms
        said = Resumed(
            user,
            generation,
            mechanism,
            now_ms,
            ends_ms,
            narrowed,
            self._random(KEY_BYTES),
            authenticator,
            roles,
            expires_ms,
            key,
        )
        body = msgspec.msgpack.encode(said)
        return _mac(self._keys[0], body, uid, caller) + body, ends_ms

    def check(self, token: bytes, uid: int, caller: Caller, now_ms: int) -> Resumed | None:
        """What a token says, if it is ours, of this client and this way in, and not over."""
        if not _MAC_BYTES < len(token) <= _TOKEN_BYTES_MAX:
            return None
        mac, body = token[:_MAC_BYTES], token[_MAC_BYTES:]
        if not any(hmac.compare_digest(mac, _mac(key, body, uid, caller)) for key in self._keys):
            return None
        said = msgspec.msgpack.decode(body, type=Resumed)
        return said if said.issued_ms <= now_ms < said.expires_ms else None


def _mac(key: bytes, body: bytes, uid: int, caller: Caller) -> bytes:
    bound = msgspec.msgpack.encode((uid, caller.listener, caller.key, caller.uid))
    return hmac.new(key, bound + body, hashlib.sha256).digest()
