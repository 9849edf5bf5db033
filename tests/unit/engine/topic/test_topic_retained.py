"""Retained publications: one per topic, never used up, refused whole when there is no room."""

from dataclasses import dataclass

import pytest

from hms.engine.topic import Pattern, RetainedStore
from hms.errors.catalogue import NotRetained


@dataclass
class Publication:
    text: str
    expires_at_ms: int = 0

    @property
    def size_bytes(self):
        return len(self.text)


@pytest.fixture
def store(tree):
    return RetainedStore(tree, count_max=3, bytes_max=100)


@pytest.fixture
def keep(store, tree):
    def keep(topic, text, expires_at_ms=0):
        return store.keep(tree.node(topic, 0), Publication(text, expires_at_ms), 0)

    return keep


def _texts(store, pattern, now_ms=0):
    return sorted((topic, m.text) for topic, m in store.matching(Pattern(pattern), now_ms))


def test_a_newer_one_replaces_the_older_on_its_topic_alone(store, keep):
    """RP-02."""
    keep("a", "1")
    keep("b", "2")
    replaced = keep("a", "3")
    assert replaced.text == "1"
    assert _texts(store, "#") == [("a", "3"), ("b", "2")]
    assert (store.count, store.size_bytes) == (2, 2)


def test_reading_does_not_use_it_up(store, keep):
    """RP-09: many readers, one copy."""
    keep("a/b", "1")
    assert _texts(store, "a/+") == _texts(store, "a/b") == [("a/b", "1")]


def test_what_has_expired_is_not_given(store, keep):
    """RP-08: nobody may get what its publisher said is over."""
    keep("a", "1", expires_at_ms=50)
    assert _texts(store, "a", 49) == _texts(store, "#", 49) == [("a", "1")]
    assert _texts(store, "a", 50) == _texts(store, "#", 50) == []


def test_clearing_takes_one_topic(store, keep, tree):
    """TT-10; the topic may then be taken away (TT-f)."""
    keep("a/b", "1")
    keep("a/c", "2")
    assert store.drop("a/b", 70).text == "1"
    assert store.drop("a/b", 70) is None
    assert store.drop("x", 70) is None
    assert _texts(store, "#") == [("a/c", "2")]
    assert tree.prune(70) == ["a/b"]


def test_too_many_are_refused_but_a_replacement_is_not(store, keep):
    """RP-04: nothing is published that was to be retained and cannot be."""
    for topic in "abc":
        keep(topic, "1")
    with pytest.raises(NotRetained):
        store.check("d", 1)
    store.check("a", 1)


def test_too_many_bytes_are_refused_and_what_is_replaced_makes_room(store, keep):
    """The limit is that of what is retained after the publication."""
    keep("a", "x" * 90)
    with pytest.raises(NotRetained, match="101 bytes"):
        store.check("b", 11)
    store.check("b", 10)
    store.check("a", 100)


def test_a_retained_one_keeps_its_topic_alive(store, keep, tree):
    """RP-10."""
    keep("a/b", "1")
    assert tree.prune(1 << 40) == []
