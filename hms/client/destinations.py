"""Destinations: the names of queues and topics, as applications say them."""

from dataclasses import dataclass
from typing import ClassVar

from hms.client.core.arguments import NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, check_text, shown
from hms.errors.catalogue import DestinationNameError, InvalidArgument

_SHOWN = 80


@dataclass(frozen=True, slots=True)
class _Destination:
    """A name and what it is the name of; `str()` gives both: "queue:orders"."""

    name: str
    kind: ClassVar[str]
    string: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_destination_name(self.name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Queue(_Destination):
    """A queue: each message goes to one receiver. Raises DestinationNameError."""

    kind: ClassVar[str] = "queue"


@dataclass(frozen=True, slots=True, eq=False)
class Topic:
    """A topic: each message goes to every subscriber.

    name: of a topic object, or a topic string such as "news/eu/#"; string: a topic string behind
    that of the topic object, or without a name a topic of any length. Raises DestinationNameError.

    Topics are equal when they read the same: Topic("a", "b"), Topic("a/b") and the topic of a
    message that came from there. (A topic object with another topic string than its name is known
    to the node alone.)
    """

    name: str = ""
    string: str = ""
    kind: ClassVar[str] = "topic"

    def __post_init__(self) -> None:
        _check_string(self.string)
        if self.name or not self.string:
            check_destination_name(self.name)

    def __str__(self) -> str:
        return f"topic:{self.whole}"

    def __eq__(self, other: object) -> bool:
        return self.whole == other.whole if isinstance(other, Topic) else NotImplemented

    def __hash__(self) -> int:
        return hash(("topic", self.whole))

    @property
    def whole(self) -> str:
        """Name and string as one text."""
        return f"{self.name}/{self.string}" if self.is_joined else self.said

    @property
    def said(self) -> str:
        """The one of both that is given."""
        return self.name or self.string

    @property
    def is_joined(self) -> bool:
        """A topic object and a topic string: only the node knows the whole topic."""
        return bool(self.name and self.string)


Destination = Queue | Topic
Place = tuple[str, str, str]
_KINDS: dict[str, type[Queue] | type[Topic]] = {kind.kind: kind for kind in (Queue, Topic)}


def parse_destination(text: str | Destination) -> Destination:
    """A destination from "queue:NAME", "topic:NAME" or a queue's bare name."""
    if isinstance(text, Queue | Topic):
        return text
    if not isinstance(text, str):
        raise DestinationNameError(destination=shown(text), detail="it is not a text")
    prefix, colon, name = text.partition(":")
    kind = _KINDS.get(prefix) if colon else None
    return Queue(text) if kind is None else kind(name)


def place_of(destination: Destination) -> Place:
    """A destination as it was said: Topic("a", "b") reads like Topic("a/b"), but if the topic
    object a has a topic string of its own it is another one."""
    return destination.kind, destination.name, destination.string


def topic_of(text: str) -> Topic:
    """The topic of that name or topic string, "topic:" before it or not."""
    if not isinstance(text, str):
        raise DestinationNameError(destination=shown(text), detail="it is not a text")
    text = text.removeprefix("topic:")
    is_name = not text or (len(text) <= NAME_CHARACTERS_MAX and text.isprintable())
    return Topic(text) if is_name else Topic("", text)


def _check_string(string: str) -> None:
    if not isinstance(string, str):
        detail = f"its string is a {type(string).__name__}, not a text"
        raise DestinationNameError(destination=shown(string), detail=detail)
    try:
        check_text("string", string, TEXT_CHARACTERS_MAX)
    except InvalidArgument as fault:
        raise DestinationNameError(
            destination=ascii(string[:_SHOWN]), detail=fault.detail
        ) from fault


def check_retain(destination: Destination) -> None:
    """InvalidArgument unless it is a topic."""
    if not isinstance(destination, Topic):
        detail = f"{destination} is a queue; only topics retain"
        raise InvalidArgument(what="retain", detail=detail)


def check_destination_name(name: str) -> str:
    """The name, if it has 1 to 255 printable characters; else DestinationNameError."""
    if not isinstance(name, str):
        raise DestinationNameError(
            destination=shown(name), detail=f"it is a {type(name).__name__}, not a text"
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


def watched_name(destination: Destination) -> str:
    """How the node is asked to watch it: a topic by its object, or by its whole topic string."""
    if isinstance(destination, Queue):
        return destination.name
    if destination.is_joined or len(destination.said) > NAME_CHARACTERS_MAX:
        detail = f"{destination}: give the whole topic string, of {NAME_CHARACTERS_MAX} characters"
        raise InvalidArgument(what="watch()", detail=f"{detail} at most")
    return destination.said
