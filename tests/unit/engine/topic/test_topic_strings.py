"""Topic strings: empty levels are levels; an object and a string are joined by exactly one /."""

import pytest

from hms.engine.topic import TopicLimits, check_topic, join_topic
from hms.engine.topic.topic_strings import ancestors
from hms.errors.catalogue import TopicStringError

JOINED = [
    ("Football/Scores", " ", "Football/Scores"),
    (" ", "Football/Scores", "Football/Scores"),
    ("", "Football/Scores", "Football/Scores"),
    ("\0", "Football/Scores", "Football/Scores"),
    ("Football", "Scores", "Football/Scores"),
    ("Football", "/Scores", "Football//Scores"),
    ("/Football", "Scores", "/Football/Scores"),
    ("Football/", "Scores", "Football//Scores"),
    ("Sport/Soccer", "Results", "Sport/Soccer/Results"),
    ("Sports/Football", "Arsenal", "Sports/Football/Arsenal"),
    ("USD", "NYSE/IBM/SPOT", "USD/NYSE/IBM/SPOT"),
]


@pytest.mark.parametrize(("object_string", "string", "topic"), JOINED)
def test_an_object_and_a_string_are_joined_by_exactly_one_slash(object_string, string, topic):
    """The vector CT: a slash too many is another topic, and its publications are lost to you."""
    assert join_topic(object_string, string) == topic


@pytest.mark.parametrize("blank", ["", " ", "\0", " x"])
def test_neither_an_object_nor_a_string_is_refused(blank):
    """CT-05: an accident must not publish on some topic without a name."""
    with pytest.raises(TopicStringError, match="neither"):
        join_topic(blank, blank)


def test_a_topic_string_that_is_empty_is_refused():
    """TT-h."""
    with pytest.raises(TopicStringError, match="empty"):
        check_topic("")


@pytest.mark.parametrize("text", ["/", "a//b", "x/", " a", "ü/日本", "a\nb", "#", "+/x"])
def test_every_character_is_legal(text):
    """TT-01, TT-02: only the slash has a meaning."""
    assert check_topic(text) == text


@pytest.mark.parametrize(
    ("text", "word"),
    [("x" * 10_241, "characters"), ("/" * 9_999, "10000 levels"), ("a\ud800", "half of a pair")],
)
def test_what_is_beyond_the_limits_is_refused_with_the_limit(text, word):
    """Without guards one topic string could cost the node as much as it likes."""
    with pytest.raises(TopicStringError, match=word) as caught:
        check_topic(text)
    assert len(str(caught.value)) < 400


def test_the_limits_can_be_set():
    """TT-04: they are guards of a node, not rules of topics."""
    limits = TopicLimits(characters_max=8, levels_max=2)

    assert check_topic("abcdef/b", limits) == "abcdef/b"
    for text in ("abcdef/bc", "a/b/c"):
        with pytest.raises(TopicStringError):
            check_topic(text, limits)


def test_the_topics_above_a_topic_are_told_nearest_first():
    """Empty levels are levels here too."""
    assert list(ancestors("/a//b")) == ["/a//b", "/a/", "/a", ""]
