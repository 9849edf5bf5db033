"""Index: which subscriptions a publication reaches, found without asking each of them.

Theory of operation. What has no wildcard stands in a table by its topic. Patterns of the TOPIC
scheme stand in a tree of levels, in which `+` and `#` are branches like any other; a publication
goes down all fitting branches at once, level by level, and a branch is never gone twice, however
many `#` lie on the way. Patterns of the CHARACTER scheme stand in a table by the plain characters
that they begin and end with; only those that fit both ends are asked. So the cost is that of the
branches that fit, not that of the subscriptions (docs/decisions/0016).
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from hms.engine.topic.patterns import MANY, ONE, Pattern, Scheme
from hms.engine.topic.topic_strings import SEPARATOR

T = TypeVar("T")

Entries = dict[int, T]
"""By the order in which they are to be reached."""
_BySuffix = dict[int, dict[str, dict[int, tuple[Pattern, T]]]]


class TopicIndex(Generic[T]):
    """Items by pattern. order: unique, and the order in which match() gives what it finds."""

    def __init__(self) -> None:
        self._exact: dict[str, Entries[T]] = {}
        self._levels: _LevelTree[T] = _LevelTree()
        self._characters: _CharacterTable[T] = _CharacterTable()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pattern: Pattern, order: int, item: T) -> None:
        """An item begins to be found."""
        self._count += 1
        if not pattern.is_wildcard:
            self._exact.setdefault(pattern.topic, {})[order] = item
        elif pattern.scheme is Scheme.TOPIC:
            self._levels.add(pattern.levels, order, item)
        else:
            self._characters.add(pattern, order, item)

    def remove(self, pattern: Pattern, order: int) -> None:
        """It is not found any more; KeyError when it was not there."""
        if not pattern.is_wildcard:
            entries = self._exact[pattern.topic]
            del entries[order]
            if not entries:
                del self._exact[pattern.topic]
        elif pattern.scheme is Scheme.TOPIC:
            self._levels.remove(pattern.levels, order)
        else:
            self._characters.remove(pattern, order)
        self._count -= 1

    def match(self, topic: str) -> list[T]:
        """The items whose pattern matches the topic, in order."""
        found: Entries[T] = dict(self._exact.get(topic, ()))
        if self._levels:
            for entries in self._levels.match(topic):
                found.update(entries)
        if self._characters:
            found.update(self._characters.match(topic))
        return list(map(found.__getitem__, sorted(found)))


class _Branch(Generic[T]):
    """A level of patterns: what ends here, and what follows."""

    __slots__ = ("entries", "is_many", "level", "literal", "many", "one", "parent")

    def __init__(self, parent: "_Branch[T] | None" = None, level: str = "") -> None:
        self.parent = parent
        self.level = level
        self.is_many = level == MANY
        self.entries: Entries[T] = {}
        self.literal: dict[str, _Branch[T]] = {}
        self.one: _Branch[T] | None = None
        self.many: _Branch[T] | None = None

    @property
    def is_bare(self) -> bool:
        """Nothing ends here and nothing follows."""
        return not (self.entries or self.literal or self.one or self.many)

    def grow(self, level: str) -> "_Branch[T]":
        """The branch of a pattern's next level, new if it is not there."""
        found = self.follow(level)
        if found is None:
            found = _Branch(self, level)
            self._set(level, found)
        return found

    def follow(self, level: str) -> "_Branch[T] | None":
        """The branch of a pattern's next level, if it is there."""
        if level == ONE:
            return self.one
        return self.many if level == MANY else self.literal.get(level)

    def cut(self, level: str) -> None:
        """The branch is gone."""
        if level in (ONE, MANY):
            self._set(level, None)
        else:
            del self.literal[level]

    def _set(self, level: str, branch: "_Branch[T] | None") -> None:
        if level == ONE:
            self.one = branch
        elif level == MANY:
            self.many = branch
        elif branch is not None:
            self.literal[level] = branch


class _LevelTree(Generic[T]):
    """Patterns of the TOPIC scheme."""

    def __init__(self) -> None:
        self._root: _Branch[T] = _Branch()

    def __bool__(self) -> bool:
        return not self._root.is_bare

    def add(self, levels: list[str], order: int, item: T) -> None:
        branch = self._root
        for level in levels:
            branch = branch.grow(level)
        branch.entries[order] = item

    def remove(self, levels: list[str], order: int) -> None:
        branch: _Branch[T] | None = self._root
        for level in levels:
            branch = branch.follow(level) if branch is not None else None
        if branch is None:
            raise KeyError(order)
        del branch.entries[order]
        while branch.is_bare and branch.parent is not None:
            branch.parent.cut(branch.level)
            branch = branch.parent

    def match(self, topic: str) -> Iterator[Entries[T]]:
        """What ends where the topic ends. A dict of branches, not a list: with `#` on the way one
        branch may be reached in several ways."""
        active = _with_many({}, self._root)
        for level in topic.split(SEPARATOR):
            following: dict[_Branch[T], None] = {}
            for branch in active:
                literal = branch.literal.get(level)
                if literal is not None:
                    _with_many(following, literal)
                if branch.one is not None:
                    _with_many(following, branch.one)
                if branch.is_many:
                    following[branch] = None
            active = following
        for branch in active:
            if branch.entries:
                yield branch.entries


def _with_many(
    branches: dict["_Branch[T]", None], branch: "_Branch[T]"
) -> dict["_Branch[T]", None]:
    """Add a branch, and the `#` behind it, which needs no level."""
    branches[branch] = None
    if branch.many is not None:
        branches[branch.many] = None
    return branches


class _CharacterTable(Generic[T]):
    """Patterns of the CHARACTER scheme by their plain beginning, and for each of these by their
    plain end; both by length first, so that a topic is cut once for each length in use."""

    def __init__(self) -> None:
        self._by_prefix: dict[int, dict[str, _BySuffix[T]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_prefix)

    def add(self, pattern: Pattern, order: int, item: T) -> None:
        prefix, suffix = pattern.prefix, pattern.suffix
        by_suffix = self._by_prefix.setdefault(len(prefix), {}).setdefault(prefix, {})
        by_suffix.setdefault(len(suffix), {}).setdefault(suffix, {})[order] = pattern, item

    def remove(self, pattern: Pattern, order: int) -> None:
        prefix, suffix = pattern.prefix, pattern.suffix
        by_suffix = self._by_prefix[len(prefix)][prefix]
        asked = by_suffix[len(suffix)][suffix]
        del asked[order]
        if not asked:
            _forget(by_suffix, suffix)
        if not by_suffix:
            _forget(self._by_prefix, prefix)

    def match(self, topic: str) -> Iterator[tuple[int, T]]:
        size = len(topic)
        for before, by_text in self._by_prefix.items():
            by_suffix = by_text.get(topic[:before])
            for behind, ends in by_suffix.items() if by_suffix else ():
                asked = ends.get(topic[size - behind :]) if before + behind <= size else None
                for order, (pattern, item) in asked.items() if asked else ():
                    if pattern.matches(topic):
                        yield order, item


def _forget(by_length: dict[int, dict[str, Any]], text: str) -> None:
    """Nothing stands under this text any more."""
    by_text = by_length[len(text)]
    del by_text[text]
    if not by_text:
        del by_length[len(text)]
