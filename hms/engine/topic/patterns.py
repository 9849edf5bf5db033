"""Patterns: what a subscription says it wants, in one of two schemes (PUBSUB WC-01 … WC-13).

TOPIC      a level that is `+` stands for one level, one that is `#` for any number of them, none
           included; they stand anywhere, and are plain text as soon as another character stands
           beside them. There is no escape.
CHARACTER  `*` stands for any characters, `/` included, `?` for exactly one; `%` before one of `*`,
           `?` and `%` takes its meaning away. There are no levels.

Neither is matched by trying again: between two wildcards of any length, what comes first is as good
as what comes later.
"""

import enum
from collections.abc import Callable, Sequence

from hms.engine.selector.like import compile_like
from hms.engine.text_sizes import text_bytes
from hms.engine.topic.topic_strings import (
    DEFAULT_LIMITS,
    OWN_LEVEL,
    SEPARATOR,
    TopicLimits,
    check_topic,
    refused,
)

ONE, MANY = "+", "#"
_LIKE_ESCAPE = "\\"
_CHARACTER_WILDCARDS = {"*": "%", "?": "_"}
_ESCAPE = "%"
_ITEM_BYTES, _LEVEL_BYTES, _BRANCH_BYTES = 120, 70, 450
"""Of a character of the CHARACTER scheme, of a level, and of one of a pattern with wildcards."""


class Scheme(enum.StrEnum):
    """How a subscription's wildcards are written."""

    TOPIC = "TOPIC"
    CHARACTER = "CHARACTER"


class Pattern:
    """A topic string as a subscriber gives it.

    is_wildcard: it stands for more than one topic. topic: the one it stands for otherwise.
    levels: of the TOPIC scheme, `#` never twice in a row (WC-05). prefix, suffix: of the CHARACTER
    scheme, the plain characters that every match begins and ends with.
    """

    __slots__ = ("_matches", "is_wildcard", "levels", "prefix", "scheme", "suffix", "text", "topic")

    def __init__(
        self, text: str, scheme: Scheme = Scheme.TOPIC, limits: TopicLimits = DEFAULT_LIMITS
    ) -> None:
        self.text = check_topic(text, limits)
        self.scheme = scheme
        self.levels: list[str] = []
        self.prefix = self.suffix = ""
        if scheme is Scheme.TOPIC:
            self._read_levels()
        else:
            self._read_characters()

    def __repr__(self) -> str:
        return f"Pattern({self.text!r}, {self.scheme.value})"

    def matches(self, topic: str) -> bool:
        """Whether a publication on this topic is wanted."""
        return self._matches(topic)

    @property
    def memory_bytes(self) -> int:
        """What it takes in memory at most, in the index too."""
        text = text_bytes(self.text)
        if self.scheme is Scheme.CHARACTER:
            return text + _ITEM_BYTES * len(self.text)
        if self.is_wildcard:
            return 2 * text + _BRANCH_BYTES * len(self.levels)
        return text + _LEVEL_BYTES * len(self.levels)

    def literal_levels(self) -> list[str]:
        """The levels before the first wildcard; they lead to what it depends on (TO-12)."""
        if not self.is_wildcard:
            return self.topic.split(SEPARATOR)
        if self.scheme is Scheme.CHARACTER:
            return self.prefix.split(SEPARATOR)[:-1]
        first = next(i for i, level in enumerate(self.levels) if level in (ONE, MANY))
        return self.levels[:first]

    @property
    def is_own(self) -> bool:
        """Whether it says by itself that it is about the node's own topics: a wildcard in the
        first level does not stand for those."""
        return self.literal_levels()[:1] == [OWN_LEVEL]

    def for_other_nodes(self) -> "Pattern":
        """The same or more in the TOPIC scheme, for a node that knows no other (WC-13)."""
        if self.scheme is Scheme.TOPIC:
            return self
        if not self.is_wildcard:
            return Pattern(self.topic)
        return Pattern(SEPARATOR.join([*self.literal_levels(), MANY]))

    def _read_levels(self) -> None:
        levels = self.text.split(SEPARATOR)
        self.is_wildcard = ONE in levels or MANY in levels
        self.topic = "" if self.is_wildcard else self.text
        for level in levels:
            if level != MANY or self.levels[-1:] != [MANY]:
                self.levels.append(level)
        self._matches = _level_matcher(self.levels) if self.is_wildcard else self.text.__eq__

    def _read_characters(self) -> None:
        items = _items(self.text)
        wild = [i for i, (_, is_wild) in enumerate(items) if is_wild]
        self.is_wildcard = bool(wild)
        plain = [character for character, _ in items]
        self.topic = "" if wild else "".join(plain)
        if wild:
            self.prefix = "".join(plain[: wild[0]])
            self.suffix = "".join(plain[wild[-1] + 1 :])
            self._matches = compile_like(_as_like(items), _LIKE_ESCAPE)
        else:
            self._matches = self.topic.__eq__


def _items(text: str) -> list[tuple[str, bool]]:
    """The characters of a CHARACTER pattern, each with whether it is a wildcard."""
    items: list[tuple[str, bool]] = []
    characters = iter(text)
    for character in characters:
        if character == _ESCAPE:
            escaped = next(characters, "")
            if escaped not in ("*", "?", "%"):
                raise refused(text, f"% is followed by {escaped or 'nothing'}; write %% for a %")
            items.append((escaped, False))
        else:
            items.append((character, character in _CHARACTER_WILDCARDS))
    return items


def _as_like(items: Sequence[tuple[str, bool]]) -> str:
    """The same as a pattern of LIKE, which is matched without trying again."""
    return "".join(
        _CHARACTER_WILDCARDS[c] if is_wild else _LIKE_ESCAPE + c if c in "%_\\" else c
        for c, is_wild in items
    )


def _level_matcher(levels: Sequence[str]) -> Callable[[str], bool]:
    """Levels are cut at each `#` into runs: the first stands at the start, the last at the end,
    each other one where it fits first."""
    runs: list[list[str]] = [[]]
    for level in levels:
        if level == MANY:
            runs.append([])
        else:
            runs[-1].append(level)
    least = sum(map(len, runs))

    def matches(topic: str) -> bool:
        said = topic.split(SEPARATOR)
        if len(runs) == 1:
            return len(said) == least and _stands_at(runs[0], said, 0)
        end = len(said) - len(runs[-1])
        if (
            len(said) < least
            or not _stands_at(runs[0], said, 0)
            or not _stands_at(runs[-1], said, end)
        ):
            return False
        return _stand_between(runs[1:-1], said, len(runs[0]), end)

    return matches


def _stand_between(runs: Sequence[Sequence[str]], said: Sequence[str], at: int, end: int) -> bool:
    for run in runs:
        places = range(at, end - len(run) + 1)
        found = next((i for i in places if _stands_at(run, said, i)), -1)
        if found < 0:
            return False
        at = found + len(run)
    return at <= end


def _stands_at(run: Sequence[str], said: Sequence[str], at: int) -> bool:
    """Whether the levels of a run stand at this place; there is room for them."""
    return all(wanted in (ONE, said[i]) for i, wanted in enumerate(run, at))
