"""Alerts are published on HMS/alert/NAME when they begin and when they end."""

from types import SimpleNamespace

import pytest

from hms.boot.monitoring.alert_command import Change
from hms.boot.monitoring.alert_topic import TOLD_AT_ONCE, TOPIC, AlertTopic
from hms.errors.catalogue import NotAuthorized
from hms.errors.tree import HmsError
from hms.server.alerts import Alerts
from hms.wire import structures as wire
from hms.wire.frames import Kind
from tests.support.gated import GatedNode
from tests.support.secured import document
from tests.support.topic_rig import TopicRig


@pytest.fixture
def rig():
    """An engine, alerts that are told to its topic, and how often its lock was taken for that."""
    engine, holds = TopicRig(), []

    def command(change):
        holds.append(None)
        engine.run(lambda fx: change(fx, engine.now_ms))

    topic = AlertTopic("node1", engine.engine, command, lambda: engine.now_ms)

    def told(*, begins, name, destination, text):
        topic.put(Change(begins, name, destination, text))

    alerts = Alerts(lambda: engine.now_ms, lambda: engine.now_ms / 1000, tell=told)
    return SimpleNamespace(engine=engine, topic=topic, alerts=alerts, holds=holds)


def said(got):
    """Of each message its alert, state and destination."""
    heads = [message.head().properties for message in got.messages]
    return [(one["alert"], one["state"], one["destination"]) for one in heads]


def test_an_alert_is_published_when_it_begins_and_when_it_ends(rig):
    """Once each, on the topic of its name, with what it is about."""
    every, own = rig.engine.subscribe("HMS/alert/#"), rig.engine.subscribe("HMS/alert/memory_high")
    for text in ("3 wait", "4 wait", "5 wait"):
        rig.alerts.set("stuck_queue", "queue:orders", text)
        rig.topic.look()
    assert (said(every), every.bodies) == ([("stuck_queue", "begins", "queue:orders")], ["3 wait"])
    rig.engine.now_ms += 7000
    rig.alerts.clear("stuck_queue", "queue:orders")
    rig.alerts.put("memory_high", 1, "full")
    rig.topic.look()
    changes = [("stuck_queue", "ends", "queue:orders"), ("memory_high", "begins", "")]
    assert said(every)[1:] == changes
    assert said(own) == changes[1:]
    about = every.messages[1].head().properties
    assert (about["node"], about["at_ms"]) == ("node1", rig.engine.now_ms)


def test_when_nothing_changes_the_engine_is_not_touched(rig):
    """It is looked at every second of a node's life."""
    rig.topic.look()
    rig.alerts.set("stuck_queue", "queue:orders", "3 wait")
    rig.topic.look()
    rig.topic.look()
    assert len(rig.holds) == 1


def test_a_storm_is_told_in_slices_each_change_once_and_in_order(rig):
    """A thousand destinations that stand still at once do not hold up the others' sends."""
    got = rig.engine.subscribe("HMS/alert/+", credit=10_000)
    names = [f"queue:{number}" for number in range(3 * TOLD_AT_ONCE)]
    for name in names:
        rig.alerts.set("stuck_queue", name, "x")
    rig.alerts.keep(())
    rig.topic.look()
    changes = [("stuck_queue", state, name) for state in ("begins", "ends") for name in names]
    assert said(got) == changes
    assert len(rig.holds) == 2 * len(names) // TOLD_AT_ONCE


def test_an_alert_about_who_is_told_of_it_tells_once(rig):
    """What is told waits where nobody receives, which is an alert: it must not cause itself."""
    rig.engine.close(rig.engine.subscribe("HMS/alert/#", durable="pager"))
    for _ in range(5):
        rig.alerts.set("abandoned_subscription", "durable subscription:pager", "nobody receives")
        rig.topic.look()
    (place,) = rig.engine.engine.state.space.durables("pager")
    assert place.line.waiting_count == 1


def test_on_a_secured_node_only_who_may_subscribes_and_nobody_publishes():
    """What an application may have of all topics is nothing of the node's own."""
    everything = ["publish topic:#", "subscribe topic:#"]
    node = GatedNode(document(shop=everything, pager=["subscribe topic:HMS/alert/#"]))
    for number, user in enumerate(("shop", "pager"), 1):
        node.login(user, user, number)
        node.ask(user, wire.OpenSession(1, 1))
    refused = node.ask("shop", wire.OpenConsumer(2, 1, "topic", "HMS/alert/#", 10))
    assert isinstance(refused, NotAuthorized)
    node.ask("shop", wire.OpenConsumer(3, 1, "topic", "#", 10))
    assert isinstance(node.ask("shop", wire.OpenProducer(4, 1, "topic", TOPIC + "x")), HmsError)
    node.ask("pager", wire.OpenConsumer(2, 1, "topic", "HMS/alert/#", 10))
    topic = AlertTopic("node1", node.engine, node.broker.command, lambda: node.now_ms)
    topic.put(Change(begins=True, name="memory_high", destination="", text="full"))
    topic.look()
    node.step()
    got = {user: [f.kind for f, _ in node.outlet.take(user)] for user in ("shop", "pager")}
    assert got == {"shop": [], "pager": [Kind.DELIVER]}
