"""Logins that others than the security file decide: the authenticators, asked in their order, and
looked at again while their users are connected."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from hms.errors.tree import HmsError
from hms.server.logins.authenticators import (
    Authenticator,
    AwayError,
    Identity,
    LoginAttempt,
    NotMineError,
    identified,
    in_time,
    load_plug_in,
)
from hms.server.logins.jwt_logins import JwtLogins
from hms.server.logins.ldap_logins import LdapLogins
from hms.server.logins.login_workers import LoginWorkers
from hms.server.logins.secret_references import read_secret
from hms.server.logins.security_document import AuthenticatorEntry, SecurityDocument

__all__ = ["Found", "OutsideLogins", "make_authenticators"]

log = logging.getLogger("hms.security")

WORKERS = 4
PATIENCE = 3
"""After so many times refresh_s without an answer a user's roles end."""


class Found(msgspec.Struct, frozen=True):
    """Whose login it is, and who said so; user "": nobody's. is_away: it cannot be told now."""

    authenticator: str = ""
    identity: Identity | None = None
    why: str = ""
    is_away: bool = False


class OutsideLogins:
    """authenticators: by name, in the order in which they are asked."""

    def __init__(
        self,
        authenticators: Mapping[str, tuple[Authenticator, str]],
        queue_max: int = 256,
        delay_ms: int = 500,
    ) -> None:
        self._authenticators = dict(authenticators)
        self.workers = LoginWorkers(WORKERS, queue_max, delay_ms)
        self._asked: dict[tuple[str, str], int] = {}
        self._good: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        """Whether there is anybody to ask."""
        return bool(self._authenticators)

    def replace(self, authenticators: Mapping[str, tuple[Authenticator, str]]) -> None:
        """Others hold from now on."""
        self._authenticators = dict(authenticators)

    def authenticate(self, attempt: LoginAttempt) -> Found:
        """In a worker, without the lock; nothing is raised."""
        away = ""
        for name, (one, prefix) in list(self._authenticators.items()):
            if not attempt.user.startswith(prefix):
                continue
            own = msgspec.structs.replace(attempt, user=attempt.user.removeprefix(prefix))
            try:
                given = in_time(lambda one=one, own=own: one.authenticate(own), one.timeout_s)  # type: ignore[misc]
            except NotMineError:
                continue
            except AwayError as fault:
                away = f"{name}: {fault}"
                continue
            except Exception as fault:
                log.exception("authenticator %s has failed", name)
                return Found(name, None, f"{name}: {type(fault).__name__}")
            found = identified(given, prefix)
            return Found(name, found, "" if found else f"{name} refuses it")
        return Found(why=away or "there is no such user", is_away=bool(away))

    def due(self, users: Sequence[tuple[str, str]], now_ms: int) -> list[tuple[str, str]]:
        """Of (authenticator, user) those that are to be looked at again; each is asked for once."""
        due = []
        for key in users:
            one = self._authenticators.get(key[0])
            if one is None or not one[0].refresh_s:
                continue
            self._good.setdefault(key, now_ms)
            if now_ms - self._asked.setdefault(key, now_ms) >= one[0].refresh_s * 1000:
                self._asked[key] = now_ms
                due.append(key)
        for table in (self._asked, self._good):
            for gone in table.keys() - set(users):
                del table[gone]
        return due

    def refresh(self, name: str, identity: Identity, now_ms: int) -> Identity | None:
        """The same as it is now; None when its login ends. Without an answer nothing changes at
        first, and then its roles end."""
        one, prefix = self._authenticators[name]
        key = name, identity.user
        try:
            given = in_time(lambda: one.refresh(identity), one.timeout_s)
        except Exception as fault:  # noqa: BLE001 - of a plug-in it may be any
            since_ms = self._good.get(key, now_ms)
            log.warning("authenticator %s does not answer: %s", name, fault)
            if now_ms - since_ms < PATIENCE * one.refresh_s * 1000:
                return identity
            return msgspec.structs.replace(identity, roles=())
        self._good[key] = now_ms
        if given is None:
            return None
        is_prefixed = given.user.startswith(prefix) and given.user == identity.user
        return identified(given, "" if is_prefixed else prefix)

    def vouches_for(self, name: str, identity: Identity) -> bool:
        """Whether what its login was proved by is good still; of directories and plug-ins only a
        refresh tells. Nothing waits."""
        one = self._authenticators.get(name)
        return not (one and isinstance(one[0], JwtLogins)) or one[0].vouches_for(identity)


def make_authenticators(
    document: SecurityDocument, folder: Path
) -> dict[str, tuple[Authenticator, str]]:
    """Those that the document configures; one that cannot be made refuses its logins, and the log
    says why."""
    made: dict[str, tuple[Authenticator, str]] = {}
    for name in document.authenticators or tuple(document.authenticator):
        entry = document.authenticator.get(name)
        if entry is None:  # "file", which is always asked first
            continue
        try:
            made[name] = (_made(entry, folder), entry.prefix)
        except (HmsError, OSError, ValueError) as fault:
            log.error("authenticator %s cannot be used: %s", name, fault)  # noqa: TRY400 - it says all
            made[name] = (_Unusable(str(fault)), entry.prefix)
    return made


def _made(entry: AuthenticatorEntry, folder: Path) -> Authenticator:
    if entry.kind == "ldap":
        return LdapLogins(entry, folder, _secret(entry, folder))
    if entry.kind == "jwt":
        return JwtLogins(entry, folder)
    return load_plug_in(entry)


def _secret(entry: AuthenticatorEntry, folder: Path) -> Callable[[], str]:
    reference = entry.bind_password

    def secret() -> str:
        try:
            return read_secret(reference, folder) if reference else ""
        except HmsError as fault:
            raise AwayError(str(fault)) from fault

    return secret


class _Unusable:
    """In place of one that could not be made: nobody gets past it."""

    refresh_s = 0.0
    timeout_s = 1.0

    def __init__(self, why: str) -> None:
        self._why = why

    def authenticate(self, _: LoginAttempt) -> Identity | None:
        raise AwayError(self._why)

    def refresh(self, _: Identity) -> Identity | None:
        raise AwayError(self._why)
