"""The tree of topics: which exist, why, and until when (PUBSUB TT-05 … TT-09).

A topic exists from its first use on, and those above it with it. It is *used* while it has a topic
object, a retained publication, a producer, a subscriber or a topic below it. One that nothing uses
stands in a heap by the time of its last use, once at most, and is taken away when its time is over;
then it is the turn of the one above it. The heap only says where to look: the topic itself is asked
when it comes up.
"""

import heapq
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from hms.engine.topic.patterns import MANY, ONE, Pattern, Scheme
from hms.engine.topic.topic_strings import SEPARATOR
from hms.errors.catalogue import TopicLimit

M = TypeVar("M")
_SHOWN = 80


class TopicNode(Generic[M]):
    """One topic. retained: what the next subscriber gets at once, None for nothing."""

    __slots__ = (
        "children",
        "is_listed",
        "level",
        "objects",
        "parent",
        "producers",
        "retained",
        "subscribers",
        "used_ms",
    )

    def __init__(self, parent: "TopicNode[M] | None" = None, level: str = "") -> None:
        self.parent = parent
        self.level = level
        self.children: dict[str, TopicNode[M]] = {}
        self.retained: M | None = None
        self.objects = 0
        self.producers = 0
        self.subscribers = 0
        self.used_ms = 0
        self.is_listed = False

    @property
    def topic(self) -> str:
        """Its topic string."""
        levels: list[str] = []
        node = self
        while node.parent is not None:
            levels.append(node.level)
            node = node.parent
        return SEPARATOR.join(reversed(levels))

    @property
    def is_used(self) -> bool:
        """Whether one of the five reasons to exist holds (TT-07)."""
        return bool(
            self.objects
            or self.producers
            or self.subscribers
            or self.children
            or self.retained is not None
        )


class TopicTree(Generic[M]):
    """All topics of a node, up to count_max of them."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._root: TopicNode[M] = TopicNode()
        self._idle: list[tuple[int, int, TopicNode[M]]] = []
        """By the time of the last use, as known when it was listed."""
        self._listed = 0
        self.count = 0

    def node(self, topic: str, now_ms: int, *, is_known: bool = False) -> TopicNode[M]:
        """The topic, new with all above it if it is not there; TopicLimit, with nothing made, when
        there are too many and it is not known from before. The caller notes the use and calls
        touched()."""
        node, levels = self._root, topic.split(SEPARATOR)
        known = 0
        for level in levels:
            child = node.children.get(level)
            if child is None:
                break
            node, known = child, known + 1
        if not is_known:
            self._check_room(topic, len(levels) - known)
        for level in levels[known:]:
            child = node.children[level] = TopicNode(node, level)
            child.used_ms = now_ms
            node, self.count = child, self.count + 1
        self.touched(node, now_ms)
        return node

    def find(self, topic: str) -> TopicNode[M] | None:
        """The topic, if it is there."""
        node: TopicNode[M] | None = self._root
        for level in topic.split(SEPARATOR):
            node = node.children.get(level) if node is not None else None
        return node

    def touched(self, node: TopicNode[M], now_ms: int) -> None:
        """It was used this moment, or a use began or ended."""
        node.used_ms = now_ms
        self._list(node)

    def prune(self, before_ms: int) -> list[str]:
        """Take away what was last used then or earlier, and tell what it was (TT-07)."""
        pruned: list[str] = []
        while self._idle and self._idle[0][0] <= before_ms:
            node = heapq.heappop(self._idle)[2]
            node.is_listed = False
            if node.used_ms > before_ms:
                self._list(node)
            elif not node.is_used:
                pruned.append(node.topic)
                self._remove(node)
        return pruned

    def next_prune_ms(self) -> int | None:
        """No topic that is idle was last used before this; None when none is idle."""
        return self._idle[0][0] if self._idle else None

    def select(self, pattern: Pattern) -> list[TopicNode[M]]:
        """The topics that a pattern matches, each before those below it; goes only where the
        pattern leads."""
        return [node for node in self.walk(pattern) if node is not None]

    def walk(self, pattern: Pattern) -> Iterator[TopicNode[M] | None]:
        """The same one by one, with None for each topic on the way that does not match. It may be
        left and gone on with when the tree has changed: what is new may be missing then, and what
        has gone be there."""
        if not pattern.is_wildcard:
            yield self.find(pattern.topic)
        elif pattern.scheme is Scheme.TOPIC:
            yield from _select(self._root, pattern.levels)
        else:
            for node in self._below(pattern.literal_levels()):
                yield node if pattern.matches(node.topic) else None

    def _below(self, levels: Sequence[str]) -> Iterator[TopicNode[M]]:
        node: TopicNode[M] | None = self._root
        for level in levels:
            node = node.children.get(level) if node is not None else None
        return _descendants(node) if node is not None else iter(())

    def _check_room(self, topic: str, count: int) -> None:
        if count and self.count + count > self._count_max:
            raise TopicLimit(count=self.count, limit=self._count_max, topic=topic[:_SHOWN])

    def _remove(self, node: TopicNode[M]) -> None:
        parent = node.parent
        assert parent is not None, "the root is never listed"
        del parent.children[node.level]
        self.count -= 1
        self._list(parent)

    def _list(self, node: TopicNode[M]) -> None:
        """Have a look at it when its time is over, if nothing uses it."""
        if not node.is_used and not node.is_listed and node.parent is not None:
            node.is_listed = True
            self._listed += 1  # the order of the lists, not of addresses, decides among equals (P3)
            heapq.heappush(self._idle, (node.used_ms, self._listed, node))


def _descendants(node: TopicNode[M]) -> Iterator[TopicNode[M]]:
    """All below a topic, in order of creation, each before those below it."""
    stack = [*reversed(node.children.values())]
    while stack:
        found = stack.pop()
        yield found
        stack += reversed(found.children.values())


def _select(root: TopicNode[M], levels: Sequence[str]) -> Iterator[TopicNode[M] | None]:
    """Goes down with, at each topic, the places in the pattern that may come next; None for one
    that does not match, but perhaps those below it."""
    start = [i for i in _closed((0,), levels) if i < len(levels)]
    stack = [(child, start) for child in _children(root, start, levels)]
    while stack:
        node, before = stack.pop()
        following = [
            i if levels[i] == MANY else i + 1
            for i in before
            if levels[i] in (MANY, ONE, node.level)
        ]
        places = _closed(following, levels) if following else following
        yield node if len(levels) in places else None
        ahead = [i for i in places if i < len(levels)]
        if ahead:
            stack += [(child, ahead) for child in _children(node, ahead, levels)]


def _children(
    node: TopicNode[M], ahead: Sequence[int], levels: Sequence[str]
) -> list[TopicNode[M]]:
    """Those worth a look: all of them only where a wildcard stands."""
    wanted = {levels[i] for i in ahead}
    if wanted & {MANY, ONE}:
        return [*reversed(node.children.values())]
    return [node.children[level] for level in sorted(wanted) if level in node.children]


def _closed(places: Sequence[int], levels: Sequence[str]) -> list[int]:
    """The places, and those reached because `#` may stand for nothing."""
    closed = dict.fromkeys(places)
    for i in places:
        if i < len(levels) and levels[i] == MANY:
            closed[i + 1] = None
    return list(closed)
