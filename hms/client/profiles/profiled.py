"""Connections with a profile: what a call does not give comes from the profile and the file."""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from hms.client.profiles.file_places import find_file
from hms.errors.catalogue import InvalidArgument

__all__ = [
    "BY_PROFILE",
    "PROFILE_VARIABLE",
    "make_connection",
    "profile_asked",
    "settings_for",
    "tool_connection",
    "with_profile",
]

PROFILE_VARIABLE = "HMS_PROFILE"
BY_PROFILE = "profile:"
"""What stands in place of an address where a command is given a profile."""
_F = TypeVar("_F", bound=Callable[..., Any])


def with_profile(connecting: _F) -> _F:
    """connect(), with `address` and `profile`. An argument that equals its built-in value is one
    that was given, so what was given is seen here."""

    @wraps(connecting)
    def made(address: Any = None, *, profile: str | None = None, **given: Any) -> Any:
        return make_connection(connecting, address, profile_asked(address, profile), given)

    return made  # type: ignore[return-value]  # the same arguments, the same value


def make_connection(
    make: Callable[..., Any],
    address: Any,
    profile: str | None,
    given: Mapping[str, Any],
    otherwise: Callable[[], Any] = lambda: None,
) -> Any:
    """What make(addresses, **options) gives; otherwise: the addresses where neither the call nor
    its profile has one. profile None: [defaults] of the file alone; "": no file."""
    settings = settings_for(profile, given)
    members, known = settings.pop("member_defaults", {}), settings.pop("addresses", None)
    where = (known or otherwise()) if address is None else address
    if where is None:
        detail = "none is given, and no profile that has one: give an address, or profile="
        raise InvalidArgument(what="address", detail=detail)
    connection = make(where, **settings)
    connection.requests.fill_in(members)
    return connection


def profile_asked(address: Any, profile: str | None) -> str | None:
    """The profile of the call, or of HMS_PROFILE where the call names neither that nor an
    address."""
    if profile is None and address is None:
        return os.environ.get(PROFILE_VARIABLE) or None
    return profile


def tool_connection(make: Callable[..., Any], address: str, **given: Any) -> Any:
    """The connection of a command, to an address or by "profile:NAME". Without a profile it reads
    no file: what a command does must not depend on where it is started."""
    if address.startswith(BY_PROFILE):
        return make_connection(make, None, address.removeprefix(BY_PROFILE), given)
    return make(address, **given)


def settings_for(profile: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a connection, `addresses` and `member_defaults` among them."""
    if profile == "" or (profile is None and find_file() is None):
        return dict(given)
    from hms.client.profiles.settings import connection_settings  # noqa: PLC0415 - only with a file

    return connection_settings(profile, given)
