"""Events: what becomes of a connection and of consumers, told as it happens (F-E11)."""

import enum
from dataclasses import dataclass

from hms.errors.tree import HmsError


class EventKind(enum.StrEnum):
    """What an Event tells."""

    CLOSED = "closed"
    RECONNECTED = "reconnected"
    MOVED = "moved"
    RECONNECT_FAILED = "reconnect_failed"
    LOGIN_EXPIRES = "login_expires"
    CONSUMER_READY = "consumer_ready"
    CONSUMER_NOT_READY = "consumer_not_ready"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; MOVED: as CLOSED, for planned work. address: the node's; reason: why
    a connection was closed or could not be opened again; destination: "queue:NAME" or "topic:NAME"
    of a consumer event."""

    kind: EventKind
    address: str = ""
    reason: HmsError | None = None
    destination: str = ""
