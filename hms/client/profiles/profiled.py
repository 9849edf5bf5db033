"""with_profile(): connect() takes what it is not given from its profile and from the file."""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from hms.client.profiles.file_places import find_file
from hms.errors.catalogue import InvalidArgument

__all__ = ["PROFILE_VARIABLE", "profile_asked", "settings_for", "with_profile"]

PROFILE_VARIABLE = "HMS_PROFILE"
_F = TypeVar("_F", bound=Callable[..., Any])


def with_profile(connecting: _F) -> _F:
    """An argument that equals its built-in value is one that was given, so it is seen here what
    was."""

    @wraps(connecting)
    def made(address: Any = None, *, profile: str | None = None, **given: Any) -> Any:
        settings = settings_for(profile_asked(address, profile), given)
        addresses = settings.pop("addresses", None) if address is None else address
        settings.pop("addresses", None)
        if addresses is None:
            detail = "none is given, and no profile that has one: give an address, or profile="
            raise InvalidArgument(what="address", detail=detail)
        members = settings.pop("member_defaults", {})
        connection = connecting(addresses, **settings)
        connection.requests.fill_in(members)
        return connection

    return made  # type: ignore[return-value]  # the same arguments, the same value


def profile_asked(address: Any, profile: str | None) -> str | None:
    """The profile of the call, or of HMS_PROFILE where the call names neither that nor an
    address."""
    if profile is None and address is None:
        return os.environ.get(PROFILE_VARIABLE) or None
    return profile


def settings_for(profile: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a connection, `addresses` and `member_defaults` among them. profile None:
    [defaults] of the file, if there is one; "": no file at all."""
    if profile == "" or (profile is None and find_file() is None):
        return dict(given)
    from hms.client.profiles.settings import connection_settings  # noqa: PLC0415 - only with a file

    return connection_settings(profile, given)
