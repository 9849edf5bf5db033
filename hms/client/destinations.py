"""Destinations: the names of queues and topics, as applications say them."""

from dataclasses import dataclass
from typing import ClassVar

from field_buffer.catalogue import DestinationNameError

NAME_CHARACTERS_MAX = 255
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class _Destination:
    """A name and what it is the name of; `str()` gives both: "queue:orders"."""

    name: str
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        check_destination_name(self.name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Queue(_Destination):
    """A queue: each message goes to one receiver. Raises DestinationNameError."""

    kind: ClassVar[str] = "queue"


@dataclass(frozen=True, slots=True)
class Topic(_Destination):
    """A topic: each message goes to every subscriber. Raises DestinationNameError."""

    kind: ClassVar[str] = "topic"


Destination = Queue | Topic
_KINDS: dict[str, type[Queue] | type[Topic]] = {kind.kind: kind for kind in (Queue, Topic)}


def parse_destination(text: str | Destination) -> Destination:
    """A destination from "queue:NAME", "topic:NAME" or a queue's bare name."""
    if isinstance(text, Queue | Topic):
        return text
    if not isinstance(text, str):
        raise DestinationNameError(destination=repr(text)[:_SHOWN], detail="it is not a text")
    prefix, colon, name = text.partition(":")
    kind = _KINDS.get(prefix) if colon else None
    return Queue(text) if kind is None else kind(name)


def check_destination_name(name: str) -> str:
    """The name, if it has 1 to 255 printable characters; else DestinationNameError."""
    if not isinstance(name, str):
        raise DestinationNameError(
            destination=repr(name)[:_SHOWN], detail=f"it is a {type(name).__name__}, not a text"
        )
    if not name:
        raise DestinationNameError(destination=name, detail="it is empty")
    if len(name) > NAME_CHARACTERS_MAX:
        raise DestinationNameError(
            destination=name[:_SHOWN], detail=f"it has {len(name)} characters"
        )
    if not name.isprintable():
        raise DestinationNameError(
            destination=name, detail="it has a character that cannot be printed"
        )
    return name
