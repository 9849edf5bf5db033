"""Logins by JWT (RFC 7519, best practice RFC 8725): who issued it, for whom, until when.

joserfc, of the extra `jwt`, checks signatures. Keys come from a JWK set, by their kid; what a token
says of its own keys (jwk, jku, x5u, x5c) is not looked at.
"""

import base64
import binascii
import json
import logging
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hms.errors.catalogue import NotSupported
from hms.server.logins.authenticators import (
    AwayError,
    Identity,
    LoginAttempt,
    NotMineError,
    mapped,
)
from hms.server.logins.security_document import AuthenticatorEntry

__all__ = ["JwtLogins"]

log = logging.getLogger("hms.security")

TOKEN_BYTES_MAX = 8192
KEYS_BYTES_MAX = 1 << 20
UNKNOWN_KID_S = 60.0
"""So seldom the keys are fetched anew for a kid that is not known."""
_PARTS = 3


class JwtLogins:
    """One [authenticator.NAME] of kind jwt. now_s: seconds since 1970; clock: for how often.

    The keys of a file are looked at each second, those of an address each refresh_s while somebody
    is connected: a token whose key was taken out holds no longer.
    """

    def __init__(
        self,
        entry: AuthenticatorEntry,
        folder: Path,
        now_s: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jose, self._entry, self._folder = _jose(), entry, folder
        self._now_s, self._clock = now_s, clock
        self.timeout_s = entry.timeout_s
        self.refresh_s = 0.0 if entry.jwks_file else min(entry.refresh_s, entry.jwks_refresh_s)
        self._lock = threading.Lock()
        self._keys: dict[str, Any] = {}
        self._read_at = self._asked_at = -1e9
        self._file = folder / entry.jwks_file if entry.jwks_file else None
        self._seen: tuple[int, ...] = ()
        if self._file is not None:
            self._seen = _stamp(self._file)
            self._keys = self._keys_of(self._file.read_bytes())

    def authenticate(self, attempt: LoginAttempt) -> Identity | None:
        """Whose token it is."""
        header = _header_of(attempt.response) if attempt.mechanism == "TOKEN" else None
        if header is None:
            raise NotMineError
        algorithm, entry = header.get("alg"), self._entry
        if algorithm not in entry.algorithms or "crit" in header:
            return None
        key = self._key(header.get("kid"))
        if key is None:
            return None
        claims = self._claims(attempt.response.decode("ascii"), key, algorithm)
        if claims is None:
            return None
        user = claims.get(entry.user_claim)
        if not isinstance(user, str) or attempt.user not in ("", user):
            return None
        roles = _roles_of(claims, entry.roles_claim)
        if roles is None:
            return None
        ends_ms = int(claims["exp"] + entry.leeway_s) * 1000
        return Identity(user, mapped(roles, entry.role_map), ends_ms, _named(key))

    def refresh(self, identity: Identity) -> Identity | None:
        """The same; the keys are fetched again (vouches_for)."""
        with self._lock:
            if self._file is None and self._clock() - self._read_at >= self.refresh_s:
                self._look(is_known=False)
        return identity

    def vouches_for(self, identity: Identity) -> bool:
        """Whether the key that signed its token is one of the set still, as far as it is known;
        nothing is fetched."""
        with self._lock:
            if self._file is not None:
                self._read_again(self._file)
            known = list(self._keys.values())
        return not (identity.key and known) or identity.key in map(_named, known)

    def _claims(self, token: str, key: Any, algorithm: str) -> Mapping[str, Any] | None:
        jose, entry = self._jose, self._entry
        try:
            claims: dict[str, Any] = jose.jwt.decode(token, key, algorithms=[algorithm]).claims
            needed: dict[str, Any] = {one: {"essential": True} for one in entry.required_claims}
            needed |= {"exp": {"essential": True}}
            needed["iss"] = {"essential": True, "value": entry.issuer}
            needed["aud"] = {"essential": True, "value": entry.audience}
            now = int(self._now_s())
            jose.jwt.JWTClaimsRegistry(now=now, leeway=int(entry.leeway_s), **needed).validate(
                claims
            )
        except (jose.errors.JoseError, ValueError, TypeError, KeyError, RecursionError):
            return None
        ends = claims["exp"]
        is_number = isinstance(ends, int | float) and not isinstance(ends, bool)
        return claims if is_number and 0 < ends < 1 << 40 else None

    def _key(self, kid: object) -> Any:
        """The key of that name; of a token that names none, the only one; or None."""
        with self._lock:
            if self._file is None:
                self._look(is_known=kid is None or kid in self._keys)
            else:
                self._read_again(self._file)
            if kid is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            return self._keys.get(kid) if isinstance(kid, str) else None

    def _read_again(self, file: Path) -> None:
        """Another file holds from now on; one with a fault leaves what holds."""
        if (stamp := _stamp(file)) == self._seen:
            return
        self._seen = stamp
        try:
            self._keys = self._keys_of(file.read_bytes())
        except (OSError, ValueError) as fault:
            log.error("the keys of %s stay: %s", file, fault)  # noqa: TRY400 - it says all

    def _look(self, *, is_known: bool) -> None:
        now = self._clock()
        is_old = now - self._read_at >= self._entry.jwks_refresh_s
        if not (is_old or not is_known) or now - self._asked_at < UNKNOWN_KID_S:
            if not self._keys:
                raise AwayError("the keys could not be fetched")
            return
        self._asked_at = now
        ca_file = str(self._folder / self._entry.ca_file) if self._entry.ca_file else None
        context = ssl.create_default_context(cafile=ca_file)
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _NoRedirect()
        )
        try:
            with opener.open(self._entry.jwks_url, timeout=self._entry.timeout_s) as answer:
                self._keys = self._keys_of(answer.read(KEYS_BYTES_MAX))
                self._read_at = now
        except (OSError, ValueError) as fault:
            if not self._keys:
                raise AwayError(f"{self._entry.jwks_url}: {fault}") from fault

    def _keys_of(self, data: bytes) -> dict[str, Any]:
        """Public keys by their kid; an HMAC secret in the set is none."""
        jose = self._jose
        try:
            every = jose.jwk.KeySet.import_key_set(json.loads(data)).keys
        except (jose.errors.JoseError, ValueError, TypeError, KeyError) as fault:
            raise ValueError(f"it is no JWK set: {fault}") from fault
        allowed = [one for one in every if one.key_type in ("RSA", "EC", "OKP")]
        return {one.kid or str(number): one for number, one in enumerate(allowed)}


def _named(key: Any) -> str:
    """What a key is, whatever its kid (RFC 7638)."""
    name: str = key.thumbprint()
    return name


def _stamp(file: Path) -> tuple[int, ...]:
    """Other when the file was changed; nothing of one that is not there."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _header_of(token: bytes) -> dict[str, Any] | None:
    """What a token says of itself; None for what is no JWT."""
    if len(token) > TOKEN_BYTES_MAX or token.count(b".") != _PARTS - 1:
        return None
    first = token.partition(b".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(first + b"=" * (-len(first) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return header if isinstance(header, dict) else None


def _roles_of(claims: Mapping[str, Any], path: str) -> list[str] | None:
    """The list of texts at a dotted path; none of an absent claim; None of anything else."""
    found: Any = claims
    for word in path.split(".") if path else ():
        if not isinstance(found, dict):
            return None
        found = found.get(word)
        if found is None:
            return []
    if not path:
        return []
    is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if is_list else None


def _jose() -> Any:
    try:
        import joserfc  # noqa: PLC0415 - the extra is needed for these logins only
        import joserfc.errors  # noqa: PLC0415
        import joserfc.jwk  # noqa: PLC0415
        import joserfc.jwt  # noqa: PLC0415
    except ImportError as fault:
        instead = "Install hybrid-messaging[jwt]."
        raise NotSupported(feature="logins by JWT without joserfc", instead=instead) from fault
    return joserfc
