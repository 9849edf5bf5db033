"""The life of subscriptions (the vector SU)."""

import pytest

from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import (
    DestinationNotFound,
    DurableNameInUse,
    IllegalState,
    InvalidArgument,
    SubscriptionNotFound,
    TopicStringChanged,
    TopicStringError,
)
from tests.support.topic_rig import TopicRig


def test_a_durable_subscription_with_wildcards_is_resumed_by_its_name(rig):
    """SU-a, SU-08."""
    rig.subscribe("a/#", durable="N1")
    rig.disconnect()
    rig.connect()
    rig.publish("a/b", "1")
    rig.publish("a", "2")
    assert rig.subscribe("a/#", durable="N1").bodies == ["1", "2"]


def test_it_keeps_what_waits_over_a_crash_and_over_the_end_of_its_segment(rig):
    """SU-06, with the pattern that it was made with (CT-07)."""
    rig.subscribe("a/*x", durable="N1", scheme="CHARACTER", credit=0)
    rig.publish("a/b/x", "1")
    rig.retire()
    rig.publish("a/x", "2")
    rig.boot()
    rig.publish("a/y", "3")
    assert rig.subscribe("a/*x", durable="N1", scheme="CHARACTER").bodies == ["1", "2"]


def test_only_one_may_use_a_name_at_a_time(rig):
    """SU-e."""
    rig.subscribe("a/#", durable="N1")
    with pytest.raises(DurableNameInUse):
        rig.subscribe("a/#", durable="N1")


def test_a_name_belongs_to_its_topic(rig):
    """As with Tmax, where unsubscribing names both."""
    first = rig.subscribe("a/#", durable="N1")
    second = rig.subscribe("a/+", durable="N1")
    third = rig.subscribe("a/+", durable="N1", scheme="CHARACTER")
    rig.publish("a/b", "x")
    assert (first.bodies, second.bodies, third.bodies) == (["x"], ["x"], [])


def test_unsubscribing_ends_it_with_what_waits(rig):
    """SU-09."""
    got = rig.subscribe("a/#", durable="N1", credit=0)
    rig.publish("a/b", "x")
    rig.close(got)
    rig.run(lambda fx: rig.engine.unsubscribe("a/#", "N1", rig.now_ms, fx))
    assert rig.subscriptions == []
    assert rig.engine.state.waiting_bytes == rig.engine.live_bytes() == 0
    with pytest.raises(SubscriptionNotFound):
        rig.run(lambda fx: rig.engine.unsubscribe("a/#", "N1", rig.now_ms, fx))
    rig.boot()
    assert rig.subscriptions == []


def test_one_that_is_not_durable_ends_with_its_connection_and_so_do_its_messages(rig):
    """SU-b, SU-12, SU-13."""
    rig.subscribe("a/#", credit=0)
    rig.publish("a/b", "1", "2")
    rig.disconnect()
    assert rig.subscriptions == []
    assert rig.engine.state.waiting_bytes == rig.engine.live_bytes() == 0


def test_after_a_restart_durable_and_administrative_ones_are_there(rig):
    """SU-k."""
    rig.subscribe("a/#", durable="d")
    rig.subscribe("a/#")
    rig.administer("subscription.create", name="s", topic="a/#", queue="orders")
    rig.boot()
    assert rig.subscriptions == ["d", "s"]
    rig.publish("a/b", "x")
    assert rig.consume("orders").bodies == ["x"]


def test_one_with_a_queue_of_its_own_leaves_there_what_was_not_read(rig):
    """SU-c, SU-13: the queue may be shared, so cleaning it up is the application's business."""
    rig.publish("a", "0", retain=True)
    route = rig.subscribe("a", queue="orders", correlation_id="mine")
    rig.publish("a", "1")
    rig.disconnect()
    assert rig.subscriptions == []
    rig.connect()
    rig.publish("a", "2")
    rig.boot()
    got = rig.consume("orders")
    assert (route.bodies, got.bodies) == ([], ["0", "1"])
    assert {m.head().correlation_id for m in got.messages} == {"mine"}


def test_a_durable_one_with_a_queue_of_its_own_goes_on_filling_it(rig):
    """SU-06, SU-09: it ends when it is unsubscribed; the queue keeps what it has."""
    rig.subscribe("a", durable="d", queue="orders")
    rig.boot()
    rig.publish("a", "1")
    got = rig.subscribe("a", durable="d", queue="orders")
    with pytest.raises(IllegalState):
        rig.subscribe("a", durable="d", queue="q")
    rig.close(got)
    rig.run(lambda fx: rig.engine.unsubscribe("a", "d", rig.now_ms, fx))
    rig.publish("a", "2")
    assert rig.consume("orders").bodies == ["1"]


def test_a_queues_consumer_has_no_queue_to_deliver_into(rig):
    """It would be a queue that fills another."""
    with pytest.raises(InvalidArgument):
        rig.subscribe("orders", kind="queue", queue="q")


def test_selectors_divide_one_topic(rig):
    """SU-l."""
    above = rig.subscribe("a", selector="price > 10")
    below = rig.subscribe("a", selector="price <= 10")
    rig.publish("a", "x", properties={"price": 11})
    assert (above.bodies, below.bodies) == (["x"], [])


def test_nobody_consumes_from_a_subscription_that_delivers_into_a_queue(rig):
    """Its messages are in the queue."""
    rig.administer("subscription.create", name="s", topic="a", queue="orders")
    with pytest.raises(IllegalState, match="orders"):
        rig.subscribe("a", durable="s")


def test_deleting_an_administrative_subscription_leaves_what_its_queue_has(rig):
    """SU-13: the queue may be shared."""
    rig.administer("subscription.create", name="s", topic="a", queue="orders")
    rig.publish("a", "1")
    assert rig.administer("subscription.delete", name="s") == 0
    rig.publish("a", "2")
    rig.boot()
    assert rig.consume("orders").bodies == ["1"]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"name": "s", "topic": "a"}, InvalidArgument),
        ({"name": "s", "topic": "", "queue": "orders"}, InvalidArgument),
        ({"name": "s", "topic": "a", "queue": "nowhere"}, DestinationNotFound),
        ({"name": "s", "topic": "a", "queue": "orders", "scheme": "x"}, TopicStringError),
        ({"name": "s", "topic": "a", "queue": "orders", "retained": "REQUEST"}, InvalidArgument),
        ({"name": "taken", "topic": "a", "queue": "orders"}, DurableNameInUse),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(rig, wanted, error):
    """Typed, and nothing has changed."""
    rig.subscribe("a", durable="taken")
    before = len(rig.log)
    with pytest.raises(error):
        rig.administer("subscription.create", **wanted)
    assert len(rig.log) == before


@pytest.mark.parametrize("options", [{"retained": "SOME"}, {"scheme": "SOME"}])
def test_an_option_that_does_not_exist_is_refused(rig, options):
    """A word that is not known must not mean the default."""
    with pytest.raises((InvalidArgument, TopicStringError)):
        rig.subscribe("a", **options)
    assert rig.subscriptions == []


def test_a_subscription_keeps_its_topic_when_a_topic_object_changes():
    """CT-07."""
    rig = TopicRig(DestinationSettings("topic", "Football", topic_string="Sports/Football"))
    rig.subscribe("Football", durable="d", string="Arsenal")
    rig.destinations = (*rig.destinations, DestinationSettings("topic", "Sports/Football/Arsenal"))
    rig.boot()
    rig.publish("Sports/Football/Arsenal", "x")
    got = rig.subscribe("Sports/Football/Arsenal", durable="d")
    assert got.bodies == ["x"]


def test_a_topic_object_keeps_its_topic_string():
    """CT-09: a changed one is refused, not ignored."""
    rig = TopicRig(DestinationSettings("topic", "T", topic_string="a"))
    rig.destinations = (DestinationSettings("topic", "T", topic_string="b"),)
    with pytest.raises(TopicStringChanged):
        rig.boot()


def test_a_configured_subscription_may_change_its_queue_over_a_restart():
    """Also when the queue is younger than the subscription, and the log's beginning is gone."""
    one = {"name": "s", "topic": "a", "queue": "orders"}
    rig = TopicRig(subscriptions=[one])
    rig.destinations = (*rig.destinations, DestinationSettings("queue", "late"))
    rig.boot([one | {"queue": "late"}])
    rig.retire()
    rig.boot([one | {"queue": "late"}])
    rig.publish("a", "x")
    assert rig.consume("late").bodies == ["x"]
    assert rig.consume("orders").bodies == []


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_a_durable_subscription_stays_shared_or_not_also_while_it_is_idle(rig, before, after):
    """Else the one that comes back takes what others of the group are to have, or shares its own
    with strangers, and nobody is told."""
    rig.subscribe("a", durable="d", is_shared=before)
    rig.disconnect()
    rig.connect()
    rig.publish("a", "1")
    with pytest.raises(IllegalState, match="subscription d"):
        rig.subscribe("a", durable="d", is_shared=after)
    assert rig.subscribe("a", durable="d", is_shared=before).bodies == ["1"]


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_neither_does_a_changed_selector_make_it_the_other_kind(rig, before, after):
    """A changed selector begins a new subscription, but not one of the other kind."""
    rig.subscribe("a", durable="d", is_shared=before, selector="n = 1")
    rig.disconnect()
    rig.connect()
    with pytest.raises(IllegalState, match="subscription d"):
        rig.subscribe("a", durable="d", is_shared=after, selector="n = 2")


def test_one_whose_life_is_over_may_come_back_as_the_other_kind(rig):
    """It is gone; the name is free."""
    rig.subscribe("a", durable="d", is_shared=True, life_ms=10)
    rig.disconnect()
    rig.now_ms += 1000
    rig.connect()
    rig.subscribe("a", durable="d")
