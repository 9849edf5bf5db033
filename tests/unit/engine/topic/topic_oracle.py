"""A second opinion on topics: the rules as the specification says them, without care for speed."""

from hypothesis import strategies as st

LEVELS = st.sampled_from(["", "a", "b", "a#", "+b", "*", "?", "%"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=6).map("/".join).filter(bool)
WILD_LEVELS = st.sampled_from(["", "a", "b", "a#", "+", "#", "+b", "*"])
PATTERNS = st.lists(WILD_LEVELS, min_size=1, max_size=7).map("/".join).filter(bool)
PIECES = st.sampled_from(["a", "b", "/", "*", "?", "%*", "%?", "%%", "#", "+"])
CHARACTER_PATTERNS = st.lists(PIECES, min_size=1, max_size=8).map("".join)


def matches_levels(pattern, topic):
    """The reference matcher of the TOPIC scheme."""
    if not pattern:
        return not topic
    if pattern[0] == "#":
        return any(matches_levels(pattern[1:], topic[k:]) for k in range(len(topic) + 1))
    if not topic or pattern[0] not in ("+", topic[0]):
        return False
    return matches_levels(pattern[1:], topic[1:])


def matches_characters(pattern, topic):
    """The same of the CHARACTER scheme, which escapes by %."""
    if not pattern:
        return not topic
    if pattern[0] == "*":
        return any(matches_characters(pattern[1:], topic[k:]) for k in range(len(topic) + 1))
    if not topic:
        return False
    if pattern[0] == "%":
        return pattern[1] == topic[0] and matches_characters(pattern[2:], topic[1:])
    return pattern[0] in ("?", topic[0]) and matches_characters(pattern[1:], topic[1:])


def wants(pattern, scheme, topic):
    """Whether a pattern matches, by either reference."""
    if scheme == "CHARACTER":
        return matches_characters(pattern, topic)
    return matches_levels(pattern.split("/"), topic.split("/"))
