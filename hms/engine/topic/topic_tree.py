"""The tree of topics: which exist, why, and until when (PUBSUB TT-05 … TT-09).

A topic exists from its first use on, and those above it with it. It is *used* while it has a topic
object, a retained publication, a producer, a subscriber or a topic below it. One that nothing uses
stands in a heap by the time of its last use, once at most, and is taken away when its time is over,
or before when there is no room for another one; then it is the turn of the one above it. The heap
only says where to look: the topic itself is asked when it comes up.
"""

import heapq
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from hms.engine.flow.shares import NO_OWNER, Owner, Shares
from hms.engine.text_sizes import text_bytes
from hms.engine.topic.patterns import MANY, ONE, Pattern, Scheme
from hms.engine.topic.topic_strings import SEPARATOR
from hms.errors.catalogue import ConsumerLimit, TopicLimit

M = TypeVar("M")
_SHOWN = 80
_NODE_BYTES = 350


class TopicNode(Generic[M]):
    """One topic. retained: what the next subscriber gets at once, None for nothing; owner: who
    made it."""

    __slots__ = (
        "children",
        "is_listed",
        "level",
        "objects",
        "owner",
        "parent",
        "producers",
        "retained",
        "subscribers",
        "used_ms",
    )

    def __init__(
        self, parent: "TopicNode[M] | None" = None, level: str = "", owner: Owner = NO_OWNER
    ) -> None:
        self.parent = parent
        self.level = level
        self.owner = owner
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
    """All topics of a node, as many as its shares allow."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._root: TopicNode[M] = TopicNode()
        self._idle: list[tuple[int, int, TopicNode[M]]] = []
        """By the time of the last use, as known when it was listed."""
        self._listed = 0
        self.count = 0

    def node(self, topic: str, now_ms: int, *, is_known: bool = False) -> TopicNode[M]:
        """The topic, new with all above it if it is not there; TopicLimit, ConsumerLimit or
        OpenMemoryLimit, with nothing made, when there are too many and it is not known from before.
        The caller notes the use and calls touched()."""
        levels = topic.split(SEPARATOR)
        node, new = self._nearest(levels)
        while new and not is_known and not self._has_room(new):
            if not self._forget_idle():
                self._refuse(topic, new)
            node, new = self._nearest(levels)
        for level in new:
            child = node.children[level] = TopicNode(node, level, self._shares.acting)
            child.used_ms = now_ms
            node, self.count = child, self.count + 1
            self._shares.topics.take(child.owner, 1)
            self._shares.take_memory(child.owner, _node_bytes(level))
        self.touched(node, now_ms)
        return node

    def _nearest(self, levels: list[str]) -> tuple[TopicNode[M], list[str]]:
        """The lowest topic that is there on the way, and the levels that follow it."""
        node = self._root
        for at, level in enumerate(levels):
            child = node.children.get(level)
            if child is None:
                return node, levels[at:]
            node = child
        return node, []

    def make_room(self, size: int) -> None:
        """Forget topics that nothing uses, until there are so many bytes for something else."""
        while self._shares.memory_fault(size) is not None and self._forget_idle():
            pass

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

    def _forget_idle(self) -> bool:
        """Take away one that nothing uses, before its time; False when there is none."""
        while self._idle:
            node = heapq.heappop(self._idle)[2]
            node.is_listed = False
            if not node.is_used:
                self._remove(node)
                return True
        return False

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

    def _has_room(self, levels: list[str]) -> bool:
        shares, count, size = self._shares, len(levels), sum(map(_node_bytes, levels))
        if shares.topics.is_over(count) or shares.topics.is_over_alone(shares.acting, count):
            return False
        return shares.memory_fault(size) is None

    def _refuse(self, topic: str, levels: list[str]) -> None:
        share, owner = self._shares.topics, self._shares.acting
        if share.is_over(len(levels)):
            raise TopicLimit(count=self.count, limit=share.limit, topic=topic[:_SHOWN])
        if share.is_over_alone(owner, len(levels)):
            count, limit = share.used_by(owner), share.limit_of_one
            raise ConsumerLimit(what="topics of one client", count=count, limit=limit)
        self._shares.check_memory(sum(map(_node_bytes, levels)))

    def _remove(self, node: TopicNode[M]) -> None:
        parent = node.parent
        assert parent is not None, "the root is never listed"
        del parent.children[node.level]
        self.count -= 1
        self._shares.topics.take(node.owner, -1)
        self._shares.take_memory(node.owner, -_node_bytes(node.level))
        self._list(parent)

    def _list(self, node: TopicNode[M]) -> None:
        """Have a look at it when its time is over, if nothing uses it."""
        if not node.is_used and not node.is_listed and node.parent is not None:
            node.is_listed = True
            self._listed += 1  # the order of the lists, not of addresses, decides among equals (P3)
            heapq.heappush(self._idle, (node.used_ms, self._listed, node))


def _node_bytes(level: str) -> int:
    """What a topic takes in memory at most."""
    return _NODE_BYTES + text_bytes(level)


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
