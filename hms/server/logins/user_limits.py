"""Limits of a user: how much of everything all of its connections may have together.

What the user's own section says holds, else the largest of its roles, else [security]; without any
there is no limit but those of the node.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from hms.engine.security.permissions import nearest
from hms.errors.catalogue import InvalidArgument

__all__ = ["LIMITS", "Limits", "effective", "faults_of", "read_limit"]

Limits = Mapping[str, int | str]
LIMITS = (
    "connections",
    "sessions",
    "producers",
    "consumers",
    "subscriptions",
    "temporary_destinations",
    "transactions",
    "calls",
    "subscription_bytes",
    "messages_per_s",
    "bytes_per_s",
    "bytes_in_flight",
)
_IN_BYTES = ("subscription_bytes", "bytes_per_s", "bytes_in_flight")
VALUE_MAX = 1 << 50
_SIZE = re.compile(r"(\d{1,15}) ?(B|KiB|MiB|GiB)?")
_UNITS = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def read_limit(word: str, value: int | str) -> int:
    """Its number; InvalidArgument names the nearest limit that there is, or what it may be."""
    if word not in LIMITS:
        raise InvalidArgument(what="limit", detail=f"there is no {word!r}{nearest(word, LIMITS)}")
    found = _SIZE.fullmatch(str(value))
    if isinstance(value, bool) or found is None or (found[2] and word not in _IN_BYTES):
        example = '"100 MiB"' if word in _IN_BYTES else "100"
        raise InvalidArgument(
            what=f"limit {word}", detail=f"{value!r} is no number such as {example}"
        )
    number = int(found[1]) * _UNITS[found[2]]
    if not 1 <= number <= VALUE_MAX:
        raise InvalidArgument(what=f"limit {word}", detail=f"{value!r} is not between 1 and 2^50")
    return number


def faults_of(limits: Limits) -> Iterator[str]:
    """Why some of them cannot stand."""
    for word, value in limits.items():
        try:
            read_limit(word, value)
        except InvalidArgument as fault:
            yield f"limits: {fault.fields['detail']}"


def effective(own: Limits, of_roles: Iterable[Limits], general: Limits) -> dict[str, int]:
    """Each limit that holds."""
    found = {word: read_limit(word, value) for word, value in general.items()}
    largest: dict[str, int] = {}
    for limits in of_roles:
        for word, value in limits.items():
            largest[word] = max(largest.get(word, 0), read_limit(word, value))
    return found | largest | {word: read_limit(word, value) for word, value in own.items()}
