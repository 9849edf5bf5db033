"""The index finds what asking every subscription would find, in order, and forgets what is gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, rule
from topic_oracle import CHARACTER_PATTERNS, PATTERNS, TOPICS, wants

from hms.engine.topic import Pattern, Scheme, TopicIndex

ANY = st.one_of(
    st.tuples(PATTERNS, st.just("TOPIC")),
    st.tuples(TOPICS, st.just("TOPIC")),
    st.tuples(CHARACTER_PATTERNS, st.just("CHARACTER")),
)


class IndexMachine(RuleBasedStateMachine):
    """Subscriptions come and go; each publication is compared with asking all of them."""

    known = Bundle("known")

    def __init__(self):
        super().__init__()
        self.index = TopicIndex()
        self.model = {}
        self.order = 0

    @rule(target=known, wanted=ANY)
    def subscribe(self, wanted):
        self.order += 1
        self.index.add(Pattern(wanted[0], Scheme(wanted[1])), self.order, self.order)
        self.model[self.order] = wanted
        return self.order

    @rule(order=consumes(known))
    def unsubscribe(self, order):
        text, scheme = self.model.pop(order)
        self.index.remove(Pattern(text, Scheme(scheme)), order)

    @rule(topic=TOPICS)
    def publish(self, topic):
        expected = [order for order, wanted in self.model.items() if wants(*wanted, topic)]
        assert self.index.match(topic) == expected
        assert len(self.index) == len(self.model)


test_the_index_agrees_with_asking_everybody = IndexMachine.TestCase


@given(st.lists(ANY, max_size=30))
def test_an_index_that_is_empty_again_holds_nothing(wanted):
    """Subscribers that come and go must leave no branch behind, or the node leaks."""
    index = TopicIndex()
    patterns = [Pattern(text, Scheme(scheme)) for text, scheme in wanted]
    for order, pattern in enumerate(patterns):
        index.add(pattern, order, pattern.text)
    for order, pattern in enumerate(patterns):
        index.remove(pattern, order)

    assert len(index) == 0
    assert not index._exact
    assert not index._levels
    assert not index._characters._by_prefix


def test_a_subscription_is_found_once_however_many_ways_lead_to_it():
    """WC-05: a copy too many is a double delivery."""
    index = TopicIndex()
    index.add(Pattern("#/a/#/#/a/#"), 1, "one")
    assert index.match("a/a/a/a/a/a") == ["one"]


def test_overlapping_subscriptions_are_all_found_in_the_order_of_their_numbers():
    """WC-14, and P3: the order may not depend on how they are kept."""
    index = TopicIndex()
    texts = ["a/b", "#", "a/+", "+/b", "a/#", "#/b"]
    for order, text in reversed(list(enumerate(texts))):
        index.add(Pattern(text), order, text)
    index.add(Pattern("a*", Scheme.CHARACTER), 99, "a*")

    assert index.match("a/b") == [*texts, "a*"]


def test_removing_what_is_not_there_is_an_error():
    """A slip in the caller's books should show at once."""
    index = TopicIndex()
    index.add(Pattern("a/+"), 1, "one")
    for pattern in (Pattern("a/b"), Pattern("a/#"), Pattern("a*", Scheme.CHARACTER)):
        with pytest.raises(KeyError):
            index.remove(pattern, 1)
    assert index.match("a/b") == ["one"]


def test_subscriptions_that_do_not_fit_are_not_looked_at():
    """10,000 wildcard subscriptions of which 8 match cost what the 8 cost: counted, not timed."""
    index = TopicIndex()
    shapes = ["t{}/#", "t{}/+/x", "#/t{}", "+/t{}/#"]
    for i in range(10_000):
        index.add(Pattern(shapes[i % 4].format(i)), i, i)
    for i in range(8):
        index.add(Pattern(["hit/#", "hit/+", "#/y", "+/+"][i % 4]), 20_000 + i, i)

    seen = []
    branch = index._levels._root
    active = {branch}
    for level in ("hit", "y"):
        active = {b for a in active for b in _leads_to(a, level)}
        seen += active
    assert index.match("hit/y") == list(range(8))
    assert len(seen) < 20


def _leads_to(branch, level):
    for b in (branch, branch.many):
        if b is not None:
            yield from (f for f in (b.literal.get(level), b.one, b if b.is_many else None) if f)
