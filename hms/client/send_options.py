"""Options of a send: what its producer has, and what one send says itself."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

from hms.client.compression import ZLIB, check_codec
from hms.client.core.arguments import SECONDS_MAX, check_flag, check_number, check_seconds, shown
from hms.client.destinations import Destination, check_retain
from hms.client.pending_sends import SendOptions
from hms.errors.catalogue import InvalidArgument
from hms.wire.packed_messages import FLAG_RETAIN

PRIORITY_MAX = 9

When = datetime | float
"""A moment: with its time zone, or in seconds since 1970 UTC."""


class SendHow(TypedDict, total=False):
    """What a send may say itself, beside body and properties; what it does not say is as its
    producer has it.

    ttl_s 0: it never expires. retain: the topic keeps it for later subscribers. delay_s: it is not
    delivered before so many seconds have passed; deliver_at: nor before that moment.
    compress: the body, by "zlib" (True) or "zstd", where that makes it smaller (F-D7).
    correlation_id, reply_to, type: of the message that is made of a bare body; a Message has its
    own.
    """

    persistent: bool | None
    ttl_s: float | None
    priority: int | None
    retain: bool | None
    delay_s: float | None
    deliver_at: When | None
    compress: bool | str | None
    correlation_id: str | None
    reply_to: Destination | str | None
    type: str | None


HEADER = ("correlation_id", "reply_to", "type")


class How(NamedTuple):
    """SendHow, complete; None: as the producer has it."""

    persistent: bool | None = None
    ttl_s: float | None = None
    priority: int | None = None
    retain: bool | None = None
    delay_s: float | None = None
    deliver_at: When | None = None
    compress: bool | str | None = None


_AS_PRODUCER = How()


def send_options(
    *,
    persistent: bool,
    ttl_s: float,
    priority: int,
    retain: bool = False,
    delay_s: float = 0,
    compress: bool | str = False,
) -> SendOptions:
    """Options that are valid: ttl_s and delay_s from 0 (never expires, at once), priority 0 to 9;
    InvalidArgument, CompressionUnknown, CodecMissing."""
    check_flag("persistent", persistent)
    check_seconds("ttl_s", ttl_s)
    check_seconds("delay_s", delay_s)
    check_number("priority", priority, 0, PRIORITY_MAX)
    if check_flag("retain", retain) and delay_s:
        detail = "what a topic retains is there at once; send it when it is due"
        raise InvalidArgument(what="delay_s", detail=detail)
    flags = FLAG_RETAIN if retain else 0
    ttl_ms, delay_ms = math.ceil(ttl_s * 1000), math.ceil(delay_s * 1000)
    return SendOptions(persistent, ttl_ms, priority, flags, delay_ms, _codec(compress))


def _codec(compress: Any) -> str:
    if compress is True or compress is False:
        return ZLIB if compress else ""
    if not isinstance(compress, str):
        detail = f"{shown(compress)} is neither True or False nor the name of a codec"
        raise InvalidArgument(what="compress", detail=detail)
    if compress:
        check_codec(compress)
    return compress


def header_of(how: SendHow) -> dict[str, Any]:
    """The header fields that a send says."""
    said: dict[str, Any] = dict(how)
    return {name: said[name] for name in HEADER if said.get(name) is not None}


def how_of(how: SendHow) -> How:
    """What a send says itself; InvalidArgument for an option that there is not."""
    try:
        return How(**{name: value for name, value in how.items() if name not in HEADER})  # type: ignore[arg-type]  # each by its name
    except TypeError as fault:
        known = (*How._fields, *HEADER)
        unknown = sorted(set(how) - set(known))
        detail = f"there is no such option; there are {', '.join(known)}"
        raise InvalidArgument(what=", ".join(unknown), detail=detail) from fault


def options_of(
    own: SendOptions, how: How, destination: Destination, now_ms: Callable[[], int]
) -> SendOptions:
    """The options of one send, by what its producer has and what it says itself."""
    if how == _AS_PRODUCER:
        return own
    if how.retain:
        check_retain(destination)
    delay_s = own.delay_ms / 1000 if how.delay_s is None else how.delay_s
    if how.deliver_at is not None:
        delay_s = _seconds_until(how, now_ms())
    return send_options(
        persistent=own.is_persistent if how.persistent is None else how.persistent,
        ttl_s=own.ttl_ms / 1000 if how.ttl_s is None else how.ttl_s,
        priority=own.priority if how.priority is None else how.priority,
        retain=bool(own.flags) if how.retain is None else how.retain,
        delay_s=delay_s,
        compress=own.codec if how.compress is None else how.compress,
    )


def _seconds_until(how: How, now_ms: int) -> float:
    """A moment that has passed is now."""
    if how.delay_s is not None:
        detail = "a send has a delay or a moment, not both"
        raise InvalidArgument(what="delay_s and deliver_at", detail=detail)
    at_s = epoch_s("deliver_at", how.deliver_at)
    return max(0.0, at_s - now_ms / 1000)


def epoch_s(what: str, when: When | None) -> float:
    """A moment in seconds since 1970 UTC; InvalidArgument when nobody knows which one is meant."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            detail = f"{when} has no time zone; such as {when}+01:00 has one"
            raise InvalidArgument(what=what, detail=detail)
        return when.timestamp()
    if not isinstance(when, int | float) or isinstance(when, bool) or not _is_moment(when):
        detail = f"{shown(when)} is neither a datetime nor a number of seconds since 1970 UTC"
        raise InvalidArgument(what=what, detail=detail)
    return float(when)


def _is_moment(when: float) -> bool:
    """Whether it can be one; false for NaN and for what is beyond any clock."""
    return -SECONDS_MAX * 100 <= when <= SECONDS_MAX * 100
