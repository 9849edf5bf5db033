"""Topic objects: named places in the tree that carry attributes for what lies at and below them.

An attribute that an object leaves open is that of the nearest one above which has it, and at last
the base object's (PUBSUB TO-01, TO-02, CT-08). Which object counts follows from the topic itself,
not from the name by which it was said.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from hms.engine.topic.patterns import Pattern
from hms.engine.topic.topic_strings import SEPARATOR, ancestors

T = TypeVar("T")


class TopicObjects(Generic[T]):
    """Objects by topic string; of several with one string the first counts."""

    def __init__(self) -> None:
        self._by_topic: dict[str, list[T]] = {}
        self._above: dict[str, int] = {}
        """How many objects stand at or below a topic."""

    def add(self, topic: str, item: T) -> None:
        """An object begins to count."""
        self._by_topic.setdefault(topic, []).append(item)
        for above in ancestors(topic):
            self._above[above] = self._above.get(above, 0) + 1

    def remove(self, topic: str, item: T) -> None:
        """It counts no more."""
        found = self._by_topic[topic]
        found.remove(item)
        if not found:
            del self._by_topic[topic]
        for above in ancestors(topic):
            self._above[above] -= 1
            if not self._above[above]:
                del self._above[above]

    def above(self, topic: str) -> Iterator[T]:
        """The objects at and above a topic, nearest first."""
        for string in ancestors(topic):
            found = self._by_topic.get(string)
            if found:
                yield found[0]

    def nearest(self, topic: str) -> T | None:
        """The object that counts for a topic."""
        return next(self.above(topic), None)

    def nearest_to(self, pattern: Pattern) -> T | None:
        """The object that counts for a subscription: from its first wildcard towards the root
        (TO-12)."""
        levels = pattern.literal_levels()
        return self.nearest(SEPARATOR.join(levels)) if levels else None

    def reaches(self, pattern: Pattern) -> bool:
        """Whether a pattern can match a topic at or below an object at all; one that cannot is a
        slip of the pen."""
        levels = pattern.literal_levels()
        string = SEPARATOR.join(levels)
        if not levels:
            return bool(self._by_topic)
        if self.nearest(string) is not None:
            return True
        return pattern.is_wildcard and string in self._above
