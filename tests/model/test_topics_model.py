"""Topics against a model that knows only the rules: publications, what is retained, subscriptions
that last and such that fill a queue, over crashes and over the end of the log's old segments."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import NoRetainedMessage, PublicationFailed
from tests.support.effort import walks
from tests.support.topic_rig import TopicRig
from tests.unit.engine.topic.topic_oracle import wants

TOPICS = st.sampled_from(["a", "a/b", "a/b/c", "a//c", "b", "b/c", "strict/a"])
PATTERNS = st.sampled_from(
    [
        ("a", "TOPIC"),
        ("a/#", "TOPIC"),
        ("#", "TOPIC"),
        ("+/+", "TOPIC"),
        ("#/c", "TOPIC"),
        ("a*c", "CHARACTER"),
        ("?", "CHARACTER"),
    ]
)
WANTS = st.sampled_from(["ALL", "NEW"])
NAMES = st.sampled_from(["one", "two"])
STRICT = {"name": "strict", "topic": "strict/#", "queue": "q"}
FULL = 3


class TopicMachine(RuleBasedStateMachine):
    """Bodies are numbers, so that everybody's bodies tell all."""

    def __init__(self):
        super().__init__()
        topic = DestinationSettings("topic", "strict", persistent_delivery="ALL")
        self.rig = TopicRig(topic, subscriptions=[STRICT])
        self.number = 0
        self.retained = {}
        """By topic: (body, whether it is persistent)."""
        self.durable = {}
        """By (pattern, scheme, name): (bodies that wait, not persistent ones apart)."""
        self.queues = {"q": [], "orders": []}
        self.routes = {}
        self.pending = []
        self.commits = 0

    # what reaches whom

    def _published(self, topic, body, *, is_retained, is_persistent):
        for (pattern, scheme, _), waiting in self.durable.items():
            if wants(pattern, scheme, topic):
                waiting.append((body, is_persistent))
        for pattern, scheme in self.routes.values():
            if wants(pattern, scheme, topic):
                self.queues["orders"].append((body, is_persistent))
        if topic.startswith("strict"):
            self.queues["q"].append((body, is_persistent))
        if is_retained:
            self.retained[topic] = (body, is_persistent)

    def _retained_for(self, pattern, scheme):
        found = [(t, kept) for t, kept in self.retained.items() if wants(pattern, scheme, t)]
        return [kept for _, kept in found]

    @rule(topic=TOPICS, is_retained=st.booleans(), is_persistent=st.booleans())
    def publish(self, topic, is_retained, is_persistent):
        self.number += 1
        body = str(self.number)
        is_full = topic.startswith("strict") and len(self.queues["q"]) == FULL and is_persistent
        if is_full:
            with pytest.raises(PublicationFailed):
                self.rig.publish(topic, body, retain=is_retained, persistent=is_persistent)
            return
        self.rig.publish(topic, body, retain=is_retained, persistent=is_persistent)
        if topic.startswith("strict") and len(self.queues["q"]) == FULL:
            self._published_past_a_full_queue(topic, body, is_retained)
        else:
            self._published(topic, body, is_retained=is_retained, is_persistent=is_persistent)

    def _published_past_a_full_queue(self, topic, body, is_retained):
        waiting = list(self.queues["q"])
        self._published(topic, body, is_retained=is_retained, is_persistent=False)
        self.queues["q"] = waiting

    @rule(topic=TOPICS.filter(lambda t: not t.startswith("strict")), is_retained=st.booleans())
    def publish_in_the_transaction(self, topic, is_retained):
        self.number += 1
        self.rig.publish(topic, str(self.number), retain=is_retained, session=2)
        self.pending.append((topic, str(self.number), is_retained))

    @rule()
    def commit(self):
        self.commits += 1
        self.rig.commit(self.commits)
        for topic, body, is_retained in self.pending:
            self._published(topic, body, is_retained=is_retained, is_persistent=True)
        self.pending = []

    @rule()
    def roll_back(self):
        self.rig.rollback()
        self.pending = []

    @rule(wanted=PATTERNS, name=NAMES, retained=WANTS)
    def begin_or_read_a_durable_subscription(self, wanted, name, retained):
        key = (*wanted, name)
        if key not in self.durable:
            kept = self._retained_for(*wanted) if retained == "ALL" else []
            self.durable[key] = kept
        got = self.rig.subscribe(wanted[0], scheme=wanted[1], durable=name, retained=retained)
        assert Counter(got.bodies) == Counter(body for body, _ in self.durable[key])
        self.rig.acknowledge(got)
        self.rig.close(got)
        self.durable[key] = []

    @rule(wanted=PATTERNS, name=NAMES)
    def unsubscribe(self, wanted, name):
        key = (*wanted, name)
        if self.durable.pop(key, None) is not None:
            self.rig.administer("subscription.delete", name=name, topic=wanted[0])

    @rule(wanted=PATTERNS)
    def look_at_what_is_retained(self, wanted):
        got = self.rig.subscribe(wanted[0], scheme=wanted[1])
        assert Counter(got.bodies) == Counter(b for b, _ in self._retained_for(*wanted))
        assert all(node["$IsRetained"] for node in got.node)
        self.rig.close(got)

    @rule(wanted=PATTERNS)
    def ask_for_what_is_retained(self, wanted):
        got = self.rig.subscribe(wanted[0], scheme=wanted[1], retained="REQUEST")
        expected = Counter(b for b, _ in self._retained_for(*wanted))

        def ask(fx):
            return self.rig.engine.request_retained(1, got.handle, self.rig.now_ms, fx)

        if expected:
            assert self.rig.run(ask) == expected.total()
        else:
            with pytest.raises(NoRetainedMessage):
                self.rig.run(ask)
        assert Counter(got.bodies) == expected
        self.rig.close(got)

    @rule(topic=TOPICS)
    def clear(self, topic):
        count = self.rig.administer("topic.clear_retained", name=topic)
        assert count == (self.retained.pop(topic, None) is not None)

    @rule(wanted=PATTERNS, name=st.sampled_from(["r1", "r2"]))
    def route(self, wanted, name):
        if name in self.routes:
            self.rig.administer("subscription.delete", name=name)
            del self.routes[name]
            return
        self.rig.administer(
            "subscription.create",
            name=name,
            topic=wanted[0],
            scheme=wanted[1],
            queue="orders",
            correlation_id=name if name == "r2" else "",
        )
        self.queues["orders"] += self._retained_for(*wanted)
        self.routes[name] = wanted

    @rule(queue=st.sampled_from(["q", "orders"]))
    def empty_a_queue(self, queue):
        got = self.rig.consume(queue)
        assert Counter(got.bodies) == Counter(body for body, _ in self.queues[queue])
        self.rig.acknowledge(got)
        self.rig.close(got)
        self.queues[queue] = []

    # what a node goes through

    @rule()
    def crash(self):
        self.rig.boot([STRICT])
        self.pending = []
        lasting = {t: kept for t, kept in self.retained.items() if kept[1]}
        self.retained = lasting
        for key, waiting in self.durable.items():
            self.durable[key] = [one for one in waiting if one[1]]
        for name, waiting in self.queues.items():
            self.queues[name] = [one for one in waiting if one[1]]

    @rule()
    def end_the_segment(self):
        self.rig.retire()

    @rule()
    def let_time_pass(self):
        self.rig.tick(2_000_000)

    @invariant()
    def the_tree_knows_what_is_retained(self):
        said = [t["topic"] for t in self.rig.administer("topic.tree") if t["retained"]]
        assert sorted(said) == sorted(self.retained)
        assert self.rig.engine.state.space.retained.count == len(self.retained)

    @invariant()
    def nothing_is_kept_that_nobody_needs(self):
        state = self.rig.engine.state
        waiting = [w for w in (*self.durable.values(), *self.queues.values()) for _ in w]
        if not waiting and not self.retained:
            assert state.waiting_bytes == 0
            assert self.rig.engine.live_bytes() == 0


TopicMachine.TestCase.settings = settings(
    max_examples=walks(150), stateful_step_count=50, deadline=None
)
test_topics_keep_to_their_rules = TopicMachine.TestCase
