"""Retained publications: one per topic, for later subscribers (PUBSUB RP-01 … RP-10).

A publication replaces the one before it, readers never use it up, and it goes by being replaced, by
expiring, by being cleared, or with the node if it is not persistent. What a new subscriber gets of
it follows from what it asked for:

    ALL        what is retained at once, then what comes (the default, SU-21)
    NEW        only what comes (SU-20)
    REQUEST    nothing by itself; what is retained each time it asks (SU-19)
"""

import enum
from typing import Generic, Protocol, TypeVar

from hms.engine.topic.patterns import Pattern
from hms.engine.topic.topic_tree import TopicNode, TopicTree
from hms.errors.catalogue import NotRetained


class Wants(enum.StrEnum):
    """What a subscription gets besides and instead of what comes."""

    ALL = "ALL"
    NEW = "NEW"
    REQUEST = "REQUEST"


class Publication(Protocol):
    """What is kept: a message that knows its size and its time."""

    @property
    def size_bytes(self) -> int:
        """What it counts in quotas."""

    @property
    def expires_at_ms(self) -> int:
        """When it is over; 0 never."""


M = TypeVar("M", bound=Publication)


class Search(Protocol[M]):
    """Somebody who looks for what is retained, and goes on later."""

    changed: dict[TopicNode[M], None]
    """Where something was retained since it began."""


class RetainedStore(Generic[M]):
    """What is retained, by topic, in the tree that also knows who uses a topic."""

    def __init__(self, tree: TopicTree[M], count_max: int, bytes_max: int) -> None:
        self._tree = tree
        self._count_max = count_max
        self._bytes_max = bytes_max
        self.count = 0
        self.size_bytes = 0
        self._searches: dict[int, Search[M]] = {}

    def tell(self, search: Search[M]) -> None:
        """Let somebody know of what is retained from now on."""
        self._searches[id(search)] = search

    def tell_no_more(self, search: Search[M]) -> None:
        """It has ended."""
        self._searches.pop(id(search), None)

    def check(self, topic: str, size: int, others: int = 0) -> None:
        """Refuse what there is no room for, before anything is published (RP-04). size: with the
        others that come with it."""
        known = self._find(topic)
        if known is None and self.count + others >= self._count_max:
            raise NotRetained(topic=topic, detail=f"{self.count} are retained, as many as allowed")
        bytes_after = self.size_bytes + size - (known.size_bytes if known is not None else 0)
        if bytes_after > self._bytes_max:
            detail = f"{bytes_after} bytes would be retained; {self._bytes_max} are allowed"
            raise NotRetained(topic=topic, detail=detail)

    def keep(self, node: TopicNode[M], message: M, now_ms: int) -> M | None:
        """From now on this one; what it replaces leaves (RP-02)."""
        replaced = node.retained
        node.retained = message
        self._count(1, message)
        if replaced is not None:
            self._count(-1, replaced)
        self._tree.touched(node, now_ms)
        for search in self._searches.values():
            search.changed[node] = None
        return replaced

    def drop(self, topic: str, now_ms: int) -> M | None:
        """Nothing is retained there any more; what was."""
        node = self._tree.find(topic)
        if node is None or node.retained is None:
            return None
        dropped, node.retained = node.retained, None
        self._count(-1, dropped)
        self._tree.touched(node, now_ms)
        return dropped

    def get(self, topic: str, now_ms: int) -> M | None:
        """What is retained on a topic, unless its time is over."""
        found = self._find(topic)
        return found if found is not None and is_alive(found, now_ms) else None

    def matching(self, pattern: Pattern, now_ms: int) -> list[tuple[str, M]]:
        """What a new subscription gets at once, one per topic."""
        if not pattern.is_wildcard:
            found = self.get(pattern.topic, now_ms)
            return [] if found is None else [(pattern.topic, found)]
        return [
            (node.topic, node.retained)
            for node in self._tree.select(pattern)
            if node.retained is not None and is_alive(node.retained, now_ms)
        ]

    def _find(self, topic: str) -> M | None:
        node = self._tree.find(topic)
        return node.retained if node is not None else None

    def _count(self, sign: int, message: M) -> None:
        self.count += sign
        self.size_bytes += sign * message.size_bytes


def is_alive(message: Publication, now_ms: int) -> bool:
    """Whether its time is not over."""
    return not 0 < message.expires_at_ms <= now_ms
