"""The kinds of values of hms.conf that speak of a database store."""

import re
from typing import Any
from urllib.parse import urlsplit

from hms.boot.kinds import Refused, shown

POSTGRESQL = ("postgresql://", "postgres://")
SQLITE = "sqlite:"
MARIADB = "mariadb://"

_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,30}")
_SECRET = re.compile(r"(env:[A-Za-z_]\w*|file:[^\0]+)")


def database(value: Any) -> str:
    """An address without a password."""
    if isinstance(value, str) and value.startswith(SQLITE) and value != SQLITE:
        return value
    if not isinstance(value, str) or not value.startswith(POSTGRESQL):
        given = _without_password(value)
        raise Refused(f'must be "postgresql://USER@HOST/NAME" or "sqlite:PATH", not {given}')
    try:
        parts = urlsplit(value)
    except ValueError as fault:
        raise Refused(f"is no address: {fault}") from fault
    if parts.password is not None or "password=" in parts.query:
        raise Refused("a password does not stand in hms.conf: name it in database_password")
    return value


def _without_password(value: Any) -> str:
    return "a text with '@'" if isinstance(value, str) and "@" in value else shown(value)


def open_string(value: Any) -> str:
    """An address without a password."""
    known = (*POSTGRESQL, MARIADB, SQLITE)
    if not isinstance(value, str) or not value.startswith(known) or value == SQLITE:
        given = _without_password(value)
        raise Refused(f"must begin with postgresql://, mariadb:// or sqlite:, not {given}")
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError as fault:
        raise Refused(f"is no address: {fault}") from fault
    if parts.password is not None or "password=" in parts.query:
        raise Refused("a password does not stand in hms.conf: name it in password")
    return value


def secret(value: Any) -> str:
    """env:NAME or file:PATH."""
    if not isinstance(value, str) or not _SECRET.fullmatch(value):
        raise Refused('must be "env:NAME" or "file:PATH"; the password itself does not stand here')
    return value


def table_prefix(value: Any) -> str:
    """1 to 31 small letters, digits or _, a letter first."""
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        raise Refused(
            f"must be 1 to 31 small letters, digits or '_', a letter first, not {shown(value)}"
        )
    return value
