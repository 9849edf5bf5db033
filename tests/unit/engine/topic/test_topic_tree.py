"""Which topics exist, until when, and what a listing shows (the vector TT)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topic_oracle import CHARACTER_PATTERNS, PATTERNS, TOPICS, wants

from hms.engine.flow.shares import Shares
from hms.engine.settings import EngineSettings
from hms.engine.topic import Pattern, Scheme, TopicObjects, TopicTree
from hms.errors.catalogue import TopicLimit

GUIDE = ["USA/Alabama/Auburn", "USA/Alabama/Mobile", "USA/Alabama/Montgomery", "USA/Alaska/Juneau"]
LIFE_MS = 1_800_000


def _listed(tree, pattern="#"):
    return sorted(node.topic for node in tree.select(Pattern(pattern)))


def test_the_first_use_makes_a_topic_and_all_above_it(tree):
    """TT-a, TT-06."""
    tree.node("USA/Alabama/Auburn", 0)
    assert _listed(tree) == ["USA", "USA/Alabama", "USA/Alabama/Auburn"]


def test_the_guides_tree_has_seven_topics(tree):
    """TT-b."""
    for topic in GUIDE:
        tree.node(topic, 0)
    assert _listed(tree) == sorted(["USA", "USA/Alabama", "USA/Alaska", *GUIDE])
    assert tree.count == 7


def test_one_level_of_a_tree_can_be_listed(tree):
    """TT-c."""
    for topic in GUIDE:
        tree.node(topic, 0)
    assert _listed(tree, "USA/Alabama/+") == GUIDE[:3]


def test_a_topic_that_nothing_uses_goes_when_its_time_is_over_and_then_the_one_above_it(tree):
    """TT-d: what only its children held is idle from the moment that they are gone."""
    tree.node("a/b/c", 1000)
    assert tree.prune(999) == []
    assert tree.prune(1000) == ["a/b/c", "a/b", "a"]
    assert tree.count == 0


@pytest.mark.parametrize("use", ["objects", "producers", "subscribers"])
def test_a_topic_in_use_stays_and_its_time_begins_when_the_use_ends(tree, use):
    """TT-e: an open producer or subscriber must not lose its topic."""
    node = tree.node("a/b", 0)
    setattr(node, use, 1)
    tree.touched(node, 0)
    assert tree.prune(10 * LIFE_MS) == []

    setattr(node, use, 0)
    tree.touched(node, 5000)
    assert tree.prune(4999) == []
    assert tree.prune(5000) == ["a/b", "a"]


def test_a_retained_publication_keeps_its_topic(tree):
    """TT-f, RP-10: pruning must not lose state."""
    node = tree.node("a/b", 0)
    node.retained = "state"
    tree.touched(node, 0)
    assert tree.prune(LIFE_MS) == []
    node.retained = None
    tree.touched(node, LIFE_MS)
    assert tree.prune(LIFE_MS) == ["a/b", "a"]


def test_a_use_begins_the_time_anew(tree):
    """A topic that is published on every minute is never taken away."""
    tree.node("a", 0)
    tree.node("b", 0)
    tree.node("a", 50)
    assert tree.prune(49) == ["b"]
    assert tree.prune(50) == ["a"]


def test_a_child_keeps_the_topic_above_it(tree):
    """Otherwise the child would hang in the air."""
    tree.node("a", 0)
    child = tree.node("a/b", 0)
    child.subscribers = 1
    tree.touched(child, 0)
    assert tree.prune(LIFE_MS) == []
    assert tree.find("a") is not None


def test_a_topic_keeps_its_own_time_while_a_child_holds_it(tree):
    """It was used later than its child: the end of the child must not be its own."""
    tree.node("a/b", 0)
    tree.node("a", 50)
    assert tree.prune(49) == ["a/b"]
    assert tree.prune(50) == ["a"]


def test_a_topic_in_steady_use_takes_one_place_in_the_list(tree):
    """The list must not grow with every publication."""
    for now_ms in range(1000):
        tree.node("a/b", now_ms)
    assert len(tree._idle) == 1


def test_too_many_topics_are_refused_and_none_is_made():
    """A publisher that makes up topic strings must not fill the memory."""
    tree = TopicTree(Shares(EngineSettings(topics_max=3)))
    tree.node("a/b", 0).producers += 1
    with pytest.raises(TopicLimit):
        tree.node("a/c/d", 0)
    assert _listed(tree) == ["a", "a/b"]
    assert tree.node("a/c", 0) is tree.find("a/c")


def test_topics_that_nothing_uses_make_room_the_longest_unused_first():
    """Even one above the topic that is wanted, which is then made anew."""
    tree = TopicTree(Shares(EngineSettings(topics_max=3)))
    for now_ms, topic in enumerate(["a", "b", "c"]):
        tree.node(topic, now_ms)
    tree.node("d", 5)
    assert _listed(tree) == ["b", "c", "d"]
    tree.node("b/x/y", 6).producers += 1
    assert _listed(tree) == ["b", "b/x", "b/x/y"]
    with pytest.raises(TopicLimit):
        tree.node("b/z", 7)


@given(st.lists(TOPICS, max_size=8), PATTERNS | TOPICS, CHARACTER_PATTERNS)
def test_a_listing_shows_what_the_reference_matches(topics, pattern, characters):
    """The same tree tells a new subscriber what is retained."""
    tree = TopicTree(Shares(EngineSettings(topics_max=1000)))
    for topic in topics:
        tree.node(topic, 0)
    everything = [node.topic for node in tree.select(Pattern("#"))]
    assert len(set(everything)) == len(everything) == tree.count
    for text, scheme in ((pattern, Scheme.TOPIC), (characters, Scheme.CHARACTER)):
        expected = {topic for topic in everything if wants(text, scheme, topic)}
        assert {node.topic for node in tree.select(Pattern(text, scheme))} == expected


@given(st.lists(st.tuples(TOPICS, st.integers(0, 9)), max_size=20), st.integers(0, 9))
def test_pruning_takes_all_that_is_idle_and_nothing_else(uses, before_ms):
    """Whatever the order of uses, nothing in use is lost and nothing idle is kept for ever."""
    tree = TopicTree(Shares(EngineSettings(topics_max=1000)))
    last = {}
    for topic, at_ms in sorted(uses, key=lambda use: use[1]):
        tree.node(topic, at_ms)
        last[topic] = at_ms
    tree.prune(before_ms)

    kept = {node.topic for node in tree.select(Pattern("#"))}
    young = [topic for topic, at_ms in last.items() if at_ms > before_ms]
    wanted = {"/".join(t.split("/")[: i + 1]) for t in young for i in range(t.count("/") + 1)}
    assert wanted <= kept
    tree.prune(9)
    assert tree.count == 0
    assert not tree._idle


def test_the_nearest_object_that_has_an_attribute_decides():
    """TO-02, the vector TO-D."""
    objects = TopicObjects()
    objects.add("Sport/Soccer", {"durable": False})
    objects.add("Sport", {})
    assert objects.nearest("Sport/Soccer/TeamX/Results") == {"durable": False}
    assert objects.nearest("Sport/Tennis") == {}
    assert list(objects.above("Sport/Soccer/x")) == [{"durable": False}, {}]
    assert objects.nearest("Sports") is None

    objects.add("Sport/Soccer/TeamX", {"durable": True})
    assert objects.nearest("Sport/Soccer/TeamX/Results") == {"durable": True}
    objects.remove("Sport/Soccer/TeamX", {"durable": True})
    assert objects.nearest("Sport/Soccer/TeamX/Results") == {"durable": False}


@pytest.mark.parametrize(
    ("text", "is_reached"),
    [
        ("news", True),
        ("news/eu/#", True),
        ("#", True),
        ("+/x", True),
        ("a/#", True),
        ("a/b/c", True),
        ("a", False),
        ("nwes/#", False),
        ("nwes", False),
    ],
)
def test_a_pattern_that_can_never_match_is_known(text, is_reached):
    """A slip of the pen should be refused, not wait for ever."""
    objects = TopicObjects()
    objects.add("news", 1)
    objects.add("a/b", 2)
    assert objects.reaches(Pattern(text)) is is_reached
