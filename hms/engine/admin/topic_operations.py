"""What operators see of topics and do to them: the tree, retained publications, subscriptions."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from hms.engine.admin.counter_views import count_line, counters_of, describe_limits
from hms.engine.effects import Effects
from hms.engine.messages import StoredMessage, message_id_text
from hms.engine.queue.destinations import Subscription
from hms.engine.selector.selector_fields import checked_selector
from hms.engine.state import State
from hms.engine.topic import NO_LIMITS, Pattern, Scheme, TopicNode, Wants
from hms.engine.topic.retention import clear, take_away
from hms.engine.topic.subscription_begin import define_durable, definition_of
from hms.engine.topic.subscription_end import is_in_use, remove_subscription
from hms.errors.catalogue import (
    DestinationNotFound,
    DurableNameInUse,
    InvalidArgument,
    SubscriptionNotFound,
)
from hms.records import Cause
from hms.wire import operations as ops

LISTED_MAX = 10_000
LOOKED_AT_ONCE = 2000
"""Producers and subscriptions: 3 ms."""


def topic_tree(state: State, asked: ops.ShowTopics, _: Effects) -> list[dict[str, Any]]:
    """The topics that a pattern matches, all of them without one (TT-09)."""
    pattern = pattern_of(asked.pattern or "#", asked.scheme)
    return [describe_node(node) for node in state.space.tree.select(pattern)[:LISTED_MAX]]


class TopicShow:
    """One topic, with who publishes, who subscribes and what is retained. Producers and
    subscriptions are looked at in slices, and then all is put together."""

    def __init__(self, state: State, asked: ops.NameOne) -> None:
        self._state = state
        self._name = _said(asked.name, "name")
        self._publishers: list[str] = []
        self._sums = counters_of(())
        self._steps = self._look(self._node())

    def go_on(self) -> bool:
        """A slice; whether there is more."""
        return sum(1 for _ in islice(self._steps, LOOKED_AT_ONCE)) == LOOKED_AT_ONCE

    def answer(self) -> dict[str, Any]:
        """What was found, when there is no more."""
        state, node, topic = self._state, self._node(), self._state.topics.get(self._name)
        space, string = state.space, node.topic
        own = {} if topic is None else describe_limits(state, topic) | self._sums
        return (
            describe_node(node)
            | own
            | {
                "object": (space.objects.nearest(string) or space.base).name,
                "persistent_delivery": space.delivery(string, is_persistent=True).value,
                "non_persistent_delivery": space.delivery(string, is_persistent=False).value,
                "publishers": self._publishers,
                "matching_subscriptions": [s.name for s in space.matching(string)],
                "retained_message": _describe_retained(node.retained),
            }
        )

    def _node(self) -> TopicNode[StoredMessage]:
        topic = self._state.topics.get(self._name)
        node = self._state.space.tree.find(self._name if topic is None else topic.string)
        if node is None:
            raise DestinationNotFound(kind="topic", destination=self._name)
        return node

    def _look(self, node: TopicNode[StoredMessage]) -> Iterator[None]:
        """One producer or subscription after the other."""
        for connection in list(self._state.connections.values()):
            for producer in list(connection.producers.values()):
                yield
                if producer.node is node:
                    who = connection.client_id or f"connection {connection.number}"
                    self._publishers.append(who)
                    break
        topic = self._state.topics.get(self._name)
        for subscription in [] if topic is None else list(topic.subscriptions):
            yield
            count_line(subscription.line, self._sums)


def topic_show(state: State, asked: ops.NameOne, _: Effects) -> dict[str, Any]:
    """All at once."""
    shown = TopicShow(state, asked)
    while shown.go_on():
        pass
    return shown.answer()


def clear_retained(state: State, asked: ops.ClearRetained, fx: Effects) -> int:
    """Drop what is retained on one topic, or on those a pattern matches; how many."""
    if asked.pattern:
        return clear(state, pattern_of(asked.pattern, asked.scheme), Cause.CLEARED, fx)
    name = _said(asked.name, "name")
    found = state.topics.get(name)
    string = found.string if found is not None else name
    return take_away(state, [string], Cause.CLEARED, fx)


def subscription_create(state: State, asked: ops.CreateSubscription, fx: Effects) -> None:
    """An administrative subscription: what it takes is put into a queue, until it is deleted
    (SU-02)."""
    name, queue = _said(asked.name, "name"), state.queue(_said(asked.queue, "queue"))
    topic, pattern = state.space.wanted(_said(asked.topic, "topic"), "", asked.scheme)
    if state.space.named(pattern, name, is_durable=True) is not None:
        raise DurableNameInUse(name=name, destination=pattern.text)
    retained = _retained(asked)
    selector = asked.selector.strip()
    checked_selector(selector)
    wanted = definition_of(
        topic,
        pattern,
        name,
        retained,
        selector=selector,
        is_shared=True,
        queue=queue.number,
        correlation_id=asked.correlation_id,
        owner=state.space.made_by,
    )
    define_durable(state, topic, wanted, fx)


def _retained(asked: ops.CreateSubscription) -> str:
    retained = asked.retained or Wants.ALL.value
    if retained not in (Wants.ALL, Wants.NEW):
        raise InvalidArgument(what="retained", detail=f"{retained!r} is neither ALL nor NEW")
    return retained


def subscription_delete(state: State, asked: ops.DeleteSubscription, fx: Effects) -> int:
    """End a durable subscription; how many messages waited for it."""
    found = unused_subscription(state, asked)
    count = found.line.stays_count
    remove_subscription(state, found, Cause.UNSUBSCRIBED, fx)
    return count


def unused_subscription(state: State, asked: ops.DeleteSubscription) -> Subscription:
    """The one that may be deleted."""
    found = _subscription(state, asked)
    if is_in_use(found):
        raise DurableNameInUse(name=found.name, destination=found.said_topic)
    return found


def _subscription(state: State, asked: ops.DeleteSubscription) -> Subscription:
    name, topic = _said(asked.name, "name"), asked.topic
    found = [s for s in state.space.durables(name) if topic in ("", s.said_topic)]
    if not found:
        raise SubscriptionNotFound(name=name, destination=topic or "any topic")
    if len(found) > 1:
        topics = ", ".join(s.said_topic for s in found)
        raise InvalidArgument(what="name", detail=f"{name} is on {topics}; say which topic")
    return found[0]


def describe_node(node: TopicNode[StoredMessage]) -> dict[str, Any]:
    """One topic of the tree."""
    return {
        "topic": node.topic,
        "retained": node.retained is not None,
        "producers": node.producers,
        "subscribers": node.subscribers,
        "used_ms": node.used_ms,
    }


def _describe_retained(message: StoredMessage | None) -> dict[str, Any] | None:
    if message is None:
        return None
    return {
        "message_id": message_id_text(message.id),
        "timestamp_ms": message.timestamp_ms,
        "expires_at_ms": message.expires_at_ms,
        "persistent": message.is_persistent,
        "bytes": message.length,
    }


def pattern_of(text: str, scheme: str) -> Pattern:
    """A pattern as an operator writes it."""
    word = scheme or Scheme.TOPIC.value
    if word not in Scheme.__members__:
        raise InvalidArgument(what="scheme", detail=f"{word!r} is neither TOPIC nor CHARACTER")
    return Pattern(text, Scheme(word), NO_LIMITS)


def _said(value: str, what: str) -> str:
    if not value:
        raise InvalidArgument(what=what, detail="a name is needed")
    return value


COMMANDS: dict[str, Callable[[State, Any, Effects], Any]] = {
    "topic.tree": topic_tree,
    "topic.show": topic_show,
    "topic.clear_retained": clear_retained,
    "subscription.create": subscription_create,
    "subscription.delete": subscription_delete,
}
