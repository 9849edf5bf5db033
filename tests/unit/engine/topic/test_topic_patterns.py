"""Both wildcard schemes, by the vectors of the specification and by a second opinion."""

import pytest
from hypothesis import given
from topic_oracle import CHARACTER_PATTERNS, PATTERNS, TOPICS, wants

from hms.engine.topic import Pattern, Scheme
from hms.errors.catalogue import TopicStringError

BY_LEVELS = """
USA/Alaska/#        | USA/Alaska USA/Alaska/Juneau | USA/Alabama USA/AlaskaX
USA/#               | USA USA/Alabama/Auburn       | USAX
USA/+               | USA/Alabama USA/             | USA/Alabama/Auburn USA
IBM/+/Results       | IBM/Software/Results IBM/Services/Results IBM/Hardware/Results \
                    | IBM/Results IBM/Software/Q1/Results
#/Results           | Results IBM/Software/Results | IBM/Results/Q1
IBM/#/Results       | IBM/Results IBM/A/B/Results  | IBM/Results/x
a/#/#/b             | a/b a/x/y/b                  | a b
#                   | USA /USA a//b / level#       |
+                   | USA                          | USA/Alabama /USA
+/USA               | /USA x/USA                   | USA
/+                  | /USA                         | USA
/#                  | /USA/x /                     | USA/x
#/x                 | /x x a/b/x                   | x/y
/#/x                | /x //x /a/x                  | x a/x
+/+                 | a/b                          | a a/b/c
+/#                 | a a/b/c                      |
#/+                 | a a/b                        |
USA#                | USA#                         | USA USA/Alabama
USA+                | USA+                         | USAx USA
USA                 | USA                          | USA/ /USA
Football/Scores     | Football/Scores              | Football//Scores
Football/+/Scores   | Football//Scores             | Football/Scores
level0/level1/#+/level4/level# | level0/level1/#+/level4/level# | level0/level1/x/level4/level#
level0/level1/+/level4/# | level0/level1/+/level4/# level0/level1/x/level4 | level0/level1/level4
IBM/Area#/Results   | IBM/Area#/Results            | IBM/Area1/Results
IBM/Diversity/%A    | IBM/Diversity/%A             | IBM/Diversity/A
IBM/*ware/Results   | IBM/*ware/Results            | IBM/Software/Results
/                   | /                            | // a
"""
BY_CHARACTERS = """
IBM/*ware/Results | IBM/Software/Results IBM/Hardware/Results IBM/EU/Software/Results \
                  | IBM/Services/Results
*                 | a/b/c                                    |
Sport/*           | Sport/Soccer/Results Sport/              | Sport Sports/x
Sport*            | Sport Sports/x                           | Spor
/aaa/bbb/c*d      | /aaa/bbb/cXd /aaa/bbb/cd /aaa/bbb/c/x/d  | /aaa/bbb/x
ABC?D             | ABC*D ABC/D                              | ABCD ABCxxD
ABC%*D            | ABC*D                                    | ABCxD
a%?%%             | a?%                                      | ab%
USA/#             | USA/#                                    | USA/Alabama
USA/+             | USA/+                                    | USA/Alabama
"""
FOR_OTHERS = [
    ("/aaa/bbb/c*d", "/aaa/bbb/#"),
    ("IBM/*ware/Results", "IBM/#"),
    ("a/b?c/d", "a/#"),
    ("Sport*", "#"),
    ("a/b%*", "a/b*"),
]


def _vector(text):
    """(pattern, topic, whether it matches) of each line."""
    vector = []
    for line in text.strip().splitlines():
        pattern, yes, no = (column.split() for column in line.split("|"))
        vector += [(pattern[0], topic, True) for topic in yes]
        vector += [(pattern[0], topic, False) for topic in no]
    return vector


@pytest.mark.parametrize(("pattern", "topic", "is_match"), _vector(BY_LEVELS))
def test_the_topic_scheme_matches_whole_levels(pattern, topic, is_match):
    """The vector WC-T: a subscriber who gets too little never learns of it."""
    assert Pattern(pattern).matches(topic) is is_match


@pytest.mark.parametrize(("pattern", "topic", "is_match"), _vector(BY_CHARACTERS))
def test_the_character_scheme_knows_no_levels(pattern, topic, is_match):
    """The vector WC-C; wildcards of one scheme are plain text in the other (WC-01)."""
    assert Pattern(pattern, Scheme.CHARACTER).matches(topic) is is_match


@pytest.mark.parametrize("scheme", list(Scheme))
def test_a_pattern_that_is_empty_is_refused(scheme):
    """It would match nothing for ever."""
    with pytest.raises(TopicStringError):
        Pattern("", scheme)


@pytest.mark.parametrize("text", ["a%", "a%b", "%/"])
def test_an_escape_of_nothing_is_refused(text):
    """Taking it for plain text would guess at what was meant."""
    with pytest.raises(TopicStringError, match="write %%"):
        Pattern(text, Scheme.CHARACTER)


@pytest.mark.parametrize(("text", "sent"), FOR_OTHERS)
def test_a_character_pattern_is_widened_to_whole_levels_for_other_nodes(text, sent):
    """The vector WC-P: the other node may send more, never less."""
    assert Pattern(text, Scheme.CHARACTER).for_other_nodes().text == sent


def test_a_pattern_of_the_topic_scheme_crosses_nodes_as_it_is():
    """Every node knows it."""
    pattern = Pattern("a/+/#")
    assert pattern.for_other_nodes() is pattern


@pytest.mark.parametrize(
    ("text", "scheme", "levels"),
    [
        ("a/b", Scheme.TOPIC, ["a", "b"]),
        ("a//+/c", Scheme.TOPIC, ["a", ""]),
        ("#", Scheme.TOPIC, []),
        ("/#", Scheme.TOPIC, [""]),
        ("a/b*/c", Scheme.CHARACTER, ["a"]),
        ("*", Scheme.CHARACTER, []),
        ("a/b%*", Scheme.CHARACTER, ["a", "b*"]),
    ],
)
def test_what_stands_before_the_first_wildcard_leads_to_the_topic_object(text, scheme, levels):
    """TO-12: the nearest object from there towards the root decides."""
    assert Pattern(text, scheme).literal_levels() == levels


@given(PATTERNS, TOPICS)
def test_a_pattern_of_levels_matches_what_the_reference_matches(pattern, topic):
    """The reference is the specification's own, and exponential."""
    assert Pattern(pattern).matches(topic) is wants(pattern, "TOPIC", topic)


@given(CHARACTER_PATTERNS, TOPICS)
def test_a_pattern_of_characters_matches_what_the_reference_matches(pattern, topic):
    """Taking the first place that fits must never lose a match."""
    read = Pattern(pattern, Scheme.CHARACTER)
    assert read.matches(topic) is wants(pattern, "CHARACTER", topic)


@given(CHARACTER_PATTERNS, TOPICS)
def test_what_another_node_is_asked_for_holds_all_that_is_wanted(pattern, topic):
    """WC-13: a superset is filtered, a subset is lost."""
    read = Pattern(pattern, Scheme.CHARACTER)
    assert not read.matches(topic) or read.for_other_nodes().matches(topic)


def test_many_wildcards_in_a_long_topic_cost_no_time():
    """An attacker's pattern must not stop the node: the reference would not end in this century."""
    topic = "/".join(["a"] * 255)
    by_levels = Pattern("/".join(["#", "a"] * 127) + "/b")
    by_characters = Pattern("*a" * 2_000 + "b", Scheme.CHARACTER)
    assert not by_levels.matches(topic)
    assert not by_characters.matches("a" * 10_000)
