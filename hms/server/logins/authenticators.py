"""Authenticators: who else may say whose login it is, beside the users of the security file.

They are asked in the order of `authenticators`, outside lanes, lock and the workers that check
passwords: one that hangs delays those alone who are its own to check. The first that knows the user
decides; a name of the security file is that file's, whatever a directory says.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol, TypeVar

import msgspec

from hms.errors.catalogue import NotSupported
from hms.server.logins.security_document import AuthenticatorEntry, is_name

__all__ = [
    "Authenticator",
    "AwayError",
    "Identity",
    "LoginAttempt",
    "NotMineError",
    "identified",
    "in_time",
    "load_plug_in",
    "mapped",
]

GROUP = "hms.authenticators"
CALLS_MAX = 32
"""So many calls of authenticators run at once; a hanging one keeps its place."""
_T = TypeVar("_T")
_PLACES = threading.BoundedSemaphore(CALLS_MAX)


class NotMineError(Exception):
    """The user is not known here; the next authenticator is asked."""


class AwayError(Exception):
    """It cannot be told now: no server answers."""


class LoginAttempt(msgspec.Struct, frozen=True):
    """mechanism: PASSWORD or TOKEN; response: the password or token; source: where from."""

    mechanism: str
    user: str
    response: bytes
    source: str = ""
    listener: str = ""

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"LoginAttempt({self.mechanism!r}, {self.user!r})"


class Identity(msgspec.Struct, frozen=True):
    """Who it is. roles: of the security file; expires_ms: when it ends, 0 never; key: whatever the
    authenticator needs to look again."""

    user: str
    roles: tuple[str, ...]
    expires_ms: int = 0
    key: str = ""


class Authenticator(Protocol):
    """Called in threads of its own, several at once. refresh_s: how often open logins are looked at
    again, 0 never; timeout_s: how long a call may take."""

    refresh_s: float
    timeout_s: float

    def authenticate(self, attempt: LoginAttempt) -> Identity | None:
        """Whose attempt it is; None refuses it. NotMineError, AwayError."""

    def refresh(self, identity: Identity) -> Identity | None:
        """The same as it is now; None when it is none any more. AwayError."""


def in_time(call: Callable[[], _T], timeout_s: float) -> _T:
    """What a call gives; AwayError when it is late, or too many hang. A late answer is lost."""
    if not _PLACES.acquire(blocking=False):
        raise AwayError("too many calls of authenticators hang")
    given: list[_T] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            given.append(call())
        except BaseException as fault:  # noqa: BLE001 - raised again by who waits
            failed.append(fault)
        finally:
            _PLACES.release()
            done.set()

    threading.Thread(target=run, name="hms-authenticator", daemon=True).start()
    if not done.wait(timeout_s):
        raise AwayError(f"no answer within {timeout_s:g} s")
    if failed:
        raise failed[0]
    return given[0]


def identified(found: object, prefix: str) -> Identity | None:
    """What an authenticator has answered, if it is an identity that can stand; None refuses."""
    if not isinstance(found, Identity) or not isinstance(found.user, str):
        return None
    name = prefix + found.user
    are_names = all(isinstance(role, str) for role in found.roles)
    if not is_name(name) or not are_names or not isinstance(found.expires_ms, int):
        return None
    return msgspec.structs.replace(found, user=name, roles=tuple(found.roles))


def mapped(given: Sequence[str], role_map: Mapping[str, str]) -> tuple[str, ...]:
    """The roles of groups, and that of * for everybody."""
    words = ["*", *given]
    return tuple(dict.fromkeys(role_map[word] for word in words if word in role_map))


def load_plug_in(entry: AuthenticatorEntry) -> Authenticator:
    """The plug-in that is named; NotSupported when it is not installed."""
    for found in entry_points(group=GROUP, name=entry.plug_in):
        made: Authenticator = found.load()(**entry.options)
        return made
    instead = f"Install the package that has it in the entry point group {GROUP}."
    raise NotSupported(feature=f"the authenticator {entry.plug_in!r}", instead=instead)
