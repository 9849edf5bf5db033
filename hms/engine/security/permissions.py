"""Permissions: an action on the resources that a pattern names, such as "produce queue:orders.*".

There are no permissions that take away: what somebody may do is the union of what was granted, so
its order counts for nothing. Of a topic a permission covers what lies below as well (PUBSUB TO-06).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

import msgspec

from hms.engine.security.actions import KINDS, KINDS_OF, LATER
from hms.engine.topic.patterns import MANY, ONE, Pattern, Scheme
from hms.engine.topic.topic_strings import SEPARATOR, is_own
from hms.errors.catalogue import TopicStringError
from hms.wire.commands import Action

__all__ = [
    "Permission",
    "Unacceptable",
    "doubt_about",
    "hold_together",
    "nearest",
    "read_permission",
]

OWN_PREFIX = "HMS."
"""What the node's own resources are called; only a pattern that begins so names them. The same
goes for topics whose first level is HMS."""
PATTERN_CHARACTERS_MAX = 255
STEPS_MAX = 20_000
_ACTIONS = tuple(action.value for action in KINDS_OF)
_EXACT = ("node", "transaction")
_ANY = {"*": MANY, "?": ONE}


class Unacceptable(ValueError):  # noqa: N818 - as boot's Refused: a fault of a text
    """A word of a policy that cannot stand; its text says why, and what could."""


class Permission(msgspec.Struct, frozen=True):
    """See the module. covers: whether a name of its kind is among those that it is about."""

    action: Action
    kind: str
    pattern: str
    covers: Callable[[str], bool]

    def __str__(self) -> str:
        return f"{self.action} {self.kind}:{self.pattern}"

    def meets(self, other: "Permission") -> bool:
        """Of one kind: whether both can be about the same name."""
        return _are_of_a_kind(self, other) and _meet(_parts(self), _parts(other))

    def reaches(self, wanted: Pattern) -> bool:
        """Of a topic: whether a subscription's pattern can match anything that it covers."""
        if not wanted.is_wildcard:
            return self.covers(wanted.topic)
        if wanted.is_own != is_own(self.pattern):
            return False
        return _meet(wanted.for_other_nodes().levels, _levels_below(self.pattern))

    def covers_all(self, wanted: Pattern) -> bool:
        """Of a topic: whether a pattern can match nothing but what it covers. Only a granted
        pattern that says so by itself does."""
        if not wanted.is_wildcard:
            return self.covers(wanted.topic)
        if wanted.is_own != is_own(self.pattern):
            return False
        return _holds(_levels_below(self.pattern), wanted.for_other_nodes().levels)


def read_permission(text: str) -> Permission:
    """A permission as it is written; Unacceptable names the nearest valid word."""
    action_word, _, resource = text.strip().partition(" ")
    action = _read_action(action_word)
    kind, colon, pattern = resource.strip().partition(":")
    kinds = KINDS_OF[action]
    if not colon or not pattern:
        raise Unacceptable(f'{text!r} is written "{action} {kinds[0]}:PATTERN"')
    if kind not in kinds:
        known = kinds if kind in KINDS else KINDS
        hint = nearest(kind, known) or f"; it is about {' or '.join(kinds)}"
        raise Unacceptable(f"{text!r}: {action} is not about the kind {kind!r}{hint}")
    return Permission(action, kind, pattern, _matcher(text, kind, pattern))


def doubt_about(permission: Permission) -> str:
    """What is hardly meant by one that may stand, with what could be; "" when there is nothing. In
    topics * and ? are letters like others."""
    if permission.kind != "topic" or not any(letter in permission.pattern for letter in _ANY):
        return ""
    levels = permission.pattern.split(SEPARATOR)
    meant = [ONE if level and not level.strip("*?") else level for level in levels]
    pattern = MANY if meant == [ONE] else SEPARATOR.join(meant)
    if any(letter in pattern for letter in _ANY):
        hint = "nothing stands for a part of a level"
    else:
        hint = f"did you mean {permission.action} topic:{pattern}?"
    return (
        f"{permission}: in a topic * and ? stand for themselves alone, + for one level and # for "
        f"any; {hint}"
    )


def hold_together(granted: Iterable[Permission], wanted: Permission) -> bool:
    """Whether each name that one permission is about is one of the others', all of one action.
    False also where that takes more than STEPS_MAX to find out."""
    parts, those = _parts(wanted), [_parts(one) for one in granted if one.meets(wanted)]
    return any(_holds(one, parts) for one in those) or _hold_together(those, parts)


def nearest(word: str, words: Iterable[str]) -> str:
    """A hint to the nearest valid word; nothing when none is near."""
    near = get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _read_action(word: str) -> Action:
    if word in _ACTIONS:
        return Action(word)
    if word in LATER:
        raise Unacceptable(f"action {word!r}: no command of this version asks for it yet")
    raise Unacceptable(f"unknown action {word!r}{nearest(word, _ACTIONS)}")


def _matcher(text: str, kind: str, pattern: str) -> Callable[[str], bool]:
    if len(pattern) > PATTERN_CHARACTERS_MAX or not pattern.isprintable():
        raise Unacceptable(
            f"{text[:80]!r}: a pattern has at most {PATTERN_CHARACTERS_MAX} printable characters"
        )
    if kind == "topic":
        matches = _topic_matcher(text, pattern)
    elif kind in _EXACT and ("?" in pattern or ("*" in pattern and pattern != "*")):
        raise Unacceptable(f"{text!r}: of a {kind} the pattern is * or the whole name")
    else:
        matches = re.compile(_as_expression(pattern), re.DOTALL).fullmatch
    if kind == "topic" and not pattern.startswith(OWN_PREFIX):
        is_about_own = is_own(pattern)
        return lambda name: (
            is_own(name) is is_about_own and not name.startswith(OWN_PREFIX) and bool(matches(name))
        )
    if pattern.startswith(OWN_PREFIX):
        return lambda name: bool(matches(name))
    return lambda name: not name.startswith(OWN_PREFIX) and bool(matches(name))


def _as_expression(pattern: str) -> str:
    """Runs of * are one: two of them would be tried against one another without end."""
    single = re.sub(r"\*+", "*", pattern)
    return "".join({"*": ".*", "?": "."}.get(letter) or re.escape(letter) for letter in single)


def _topic_matcher(text: str, pattern: str) -> Callable[[str], object]:
    try:
        return Pattern(SEPARATOR.join(_levels_below(pattern)), Scheme.TOPIC).matches
    except TopicStringError as fault:
        raise Unacceptable(f"{text!r}: {fault}") from fault


def _are_of_a_kind(one: Permission, other: Permission) -> bool:
    """Names of the node's own and all others are two kinds of their own."""
    return one.kind == other.kind and _is_about_own(one) == _is_about_own(other)


def _is_about_own(one: Permission) -> tuple[bool, bool]:
    return one.pattern.startswith(OWN_PREFIX), one.kind == "topic" and is_own(one.pattern)


def _parts(permission: Permission) -> list[str]:
    """Levels of a topic, or letters; those that stand for others as in topics. Of a run of * and ?
    the ? come first: it is about the same names."""
    if permission.kind == "topic":
        return _levels_below(permission.pattern)
    ordered = re.sub(r"[*?]+", lambda run: "".join(sorted(run[0])[::-1]), permission.pattern)
    return [_ANY.get(letter) or f"={letter}" for letter in ordered]


def _levels_below(pattern: str) -> list[str]:
    """The levels of a granted topic and of everything below it."""
    levels = pattern.split(SEPARATOR)
    return levels if levels[-1] == MANY else [*levels, MANY]


def _meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two patterns of levels match a topic in common. Row by row: what the levels of `one`
    read so far can have left of `other`."""
    reached = [True] + [False] * len(other)
    for j, level in enumerate(other):
        reached[j + 1] = reached[j] and level == MANY
    for wanted in one:
        row = [reached[0] and wanted == MANY] + [False] * len(other)
        for j, level in enumerate(other):
            if MANY in (wanted, level):
                row[j + 1] = reached[j] or reached[j + 1] or row[j]
            else:
                row[j + 1] = reached[j] and (wanted == level or ONE in (wanted, level))
        reached = row
    return reached[-1]


def _holds(granted: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether each topic that `wanted` matches is matched by `granted` too, level by level from the
    last: a granted # takes any levels, a + one that is no #. Row by row: what the levels of
    `wanted` from here on hold of those of `granted` from there on."""
    row = [False] * len(granted) + [True]
    for j in range(len(granted) - 1, -1, -1):
        row[j] = row[j + 1] and granted[j] == MANY
    for level in reversed(wanted):
        below, row = row, [False] * (len(granted) + 1)
        for j in range(len(granted) - 1, -1, -1):
            if granted[j] == MANY:
                row[j] = row[j + 1] or below[j]
            else:
                is_one = granted[j] == ONE and level != MANY
                row[j] = below[j + 1] and (is_one or granted[j] == level)
    return row[0]


def _hold_together(granted: Sequence[Sequence[str]], wanted: Sequence[str]) -> bool:
    """Whether each word that `wanted` matches is matched by one of `granted`; a word has a level,
    or a letter, at least. Both are read side by side: what a level can leave of `wanted` is one
    place each, of `granted` all places together."""
    levels = {level for levels in (*granted, wanted) for level in levels} - {MANY, ONE}
    first = frozenset((n, at) for n, levels in enumerate(granted) for at in _places(levels, 0))
    last = {(n, len(levels)) for n, levels in enumerate(granted)}
    left = [(at, first) for at in _places(wanted, 0)]
    seen = set(left)
    for _ in range(STEPS_MAX // (len(levels) + 1)):
        if not left:
            return True
        at, those = left.pop()
        for level in (*levels, None):  # None: any other
            after = frozenset((n, p) for n, q in those for p in _after(granted[n], q, level))
            for place in _after(wanted, at, level):
                if place == len(wanted) and not after & last:
                    return False
                if (place, after) not in seen:
                    seen.add((place, after))
                    left.append((place, after))
    return False


def _after(levels: Sequence[str], at: int, level: str | None) -> Iterable[int]:
    """Where one is when a level was read at this place."""
    if at == len(levels):
        return ()
    if levels[at] == MANY:
        return _places(levels, at)
    return _places(levels, at + 1) if levels[at] in (ONE, level) else ()


def _places(levels: Sequence[str], at: int) -> range:
    """This place, and those behind each # that follows: it may stand for nothing."""
    end = at
    while end < len(levels) and levels[end] == MANY:
        end += 1
    return range(at, end + 1)
