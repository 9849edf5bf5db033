"""Topic strings: what topics are called; nothing but `/` has a meaning there (PUBSUB TT-01 …).

Each `/` ends a level. A leading, trailing or doubled one makes an empty level, which is a level
like any other: X, X/, /X and X//Y are different topics. Limits are guards of this node, not part of
the rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hms.errors.catalogue import TopicStringError

SEPARATOR = "/"
OWN_LEVEL = "HMS"
"""The first level of the node's own topics: nobody else publishes there."""
_SHOWN = 80
_BLANKS = (" ", "\0")


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """How long a topic string may be; what is longer costs every match along its levels."""

    characters_max: int = 10_240
    levels_max: int = 256


DEFAULT_LIMITS = TopicLimits()
NO_LIMITS = TopicLimits(1 << 62, 1 << 62)
"""For what was accepted before."""


def check_topic(text: str, limits: TopicLimits = DEFAULT_LIMITS) -> str:
    """The topic string, or TopicStringError."""
    if not text:
        raise refused(text, "it is empty")
    if len(text) > limits.characters_max:
        raise refused(text, f"{len(text)} characters; {limits.characters_max} are allowed")
    levels = text.count(SEPARATOR) + 1
    if levels > limits.levels_max:
        raise refused(text, f"{levels} levels; {limits.levels_max} are allowed")
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        raise refused(text, f"character {fault.start} is half of a pair") from fault
    return text


def is_own(topic: str) -> bool:
    """Whether a topic is the node's own."""
    return topic == OWN_LEVEL or topic.startswith(OWN_LEVEL + SEPARATOR)


def is_given(part: str) -> bool:
    """Whether a part of a topic counts: it begins with neither a blank nor a null (CT-02)."""
    return bool(part) and not part.startswith(_BLANKS)


def join_topic(object_string: str, string: str, limits: TopicLimits = DEFAULT_LIMITS) -> str:
    """The full topic string: the topic object's, then the caller's, one `/` between them (CT-01 …
    CT-05). Raises TopicStringError."""
    parts = [part for part in (object_string, string) if is_given(part)]
    if not parts:
        raise refused(string, "neither a topic object nor a topic string is given")
    return check_topic(SEPARATOR.join(parts), limits)


def ancestors(topic: str) -> Iterator[str]:
    """The topic and each one above it, nearest first."""
    while True:
        yield topic
        cut = topic.rfind(SEPARATOR)
        if cut < 0:
            return
        topic = topic[:cut]


def refused(text: str, detail: str) -> TopicStringError:
    """The error for a topic string, which may be longer than an error should be."""
    shown = text[:_SHOWN].encode(errors="replace").decode()
    return TopicStringError(topic=shown, detail=detail)
