"""Pause and resume, active and backup consumers, counters (F-C13, F-C14, F-M4, F-M5)."""

import pytest

from hms.engine.effects import Refusal
from hms.engine.queue.settlement import Return
from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import ConsumerLimit, InvalidDestinationState
from tests.support.engine_rig import EngineRig, delivered
from tests.support.limits_rig import close_consumer, order, retry, shown

# pause and resume


def test_a_send_to_a_paused_queue_waits_and_goes_when_it_is_resumed(rig):
    """F-C14: production alone is paused; what is there is still received."""
    rig.send()
    order(rig, "queue.pause", name="orders", what="production")
    rig.send()
    assert len(rig.consume(30)) == 1
    assert retry(rig).out == []

    order(rig, "queue.resume", name="orders", what="production")

    assert delivered(retry(rig))


def test_who_waits_too_long_for_a_paused_destination_is_told_so(rig):
    """F-C14: InvalidDestinationState, with the cure."""
    order(rig, "topic.pause", name="news", what="production")
    rig.send(producer=2)
    rig.now_ms = rig.engine.due_ms()

    fx = rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))

    (refusal,) = [one for one in fx.out if isinstance(one, Refusal)]
    assert isinstance(refusal.error, InvalidDestinationState)
    assert "hms topic resume news" in str(refusal.error)


@pytest.mark.parametrize("name", ["orders", "news"])
def test_paused_consumption_looks_like_an_empty_destination(rig, name):
    """F-C14: messages are taken, and wait until it goes on."""
    kind = "topic" if name == "news" else "queue"
    rig.consume(30, name)
    order(rig, f"{kind}.pause", name=name, what="consumption")
    assert delivered(rig.send(producer=2 if name == "news" else 1)) == []

    fx = rig.run(lambda fx: rig.engine.administer(f"{kind}.resume", {"name": name}, rig.now_ms, fx))

    assert len(delivered(fx)) == 1


def test_a_pause_outlives_the_node(rig):
    """An operator who paused it before the restart does not expect it to run after."""
    order(rig, "queue.pause", name="orders")
    rig.start()
    assert shown(rig, "orders")["paused"] == "BOTH"

    order(rig, "queue.resume", name="orders", what="consumption")
    rig.start()
    assert shown(rig, "orders")["paused"] == "PRODUCTION"


def test_a_commit_to_a_paused_queue_waits_too(rig):
    """A transaction is a send like any other."""
    order(rig, "queue.pause", name="orders", what="production")
    rig.send(producer=11)
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))
    assert rig.engine.has_blocked

    order(rig, "queue.resume", name="orders")
    retry(rig)
    assert shown(rig, "orders")["remaining"] == 1


# active and backup consumers


def backed_rig(active=1, backups=1):
    """Queue orders with so many consumers."""
    limited = DestinationSettings("queue", "orders", active_max=active, backups_max=backups)
    others = DestinationSettings("queue", "slow"), DestinationSettings("topic", "news")
    return EngineRig(destinations=(limited, *others))


def test_a_backup_gets_nothing_until_the_active_one_leaves_and_then_takes_over():
    """F-C13: order is kept by one consumer, and the service goes on when it ends."""
    rig = backed_rig()
    rig.send(count=1)
    assert len(rig.consume(30)) == 1
    assert rig.consume(31) == []
    rig.send(count=1)
    assert (shown(rig, "orders")["consumers"], shown(rig, "orders")["backup_consumers"]) == (1, 1)

    assert len(delivered(close_consumer(rig, 30))) == 2


def test_one_more_than_active_and_backups_is_refused():
    """F-C13: the N+M+1st."""
    rig = backed_rig(active=2, backups=1)
    for handle in (30, 31, 32):
        rig.consume(handle)

    with pytest.raises(ConsumerLimit, match="3 are open and the limit is 3"):
        rig.consume(33)

    close_consumer(rig, 32)
    rig.consume(33)


def test_a_backup_that_leaves_is_no_loss():
    """It held nothing."""
    rig = backed_rig()
    rig.consume(30)
    rig.consume(31)
    close_consumer(rig, 31)
    assert len(delivered(rig.send())) == 1


def test_more_active_places_promote_the_backups(rig):
    """An operator need not close anything."""
    order(rig, "queue.alter", name="orders", max_active_consumers=1, max_backup_consumers=2)
    for handle in (30, 31, 32):
        rig.consume(handle)
    order(rig, "queue.alter", name="orders", max_active_consumers=3)
    assert shown(rig, "orders")["consumers"] == 3


# counters


def test_an_operator_sees_what_happened_to_the_messages_of_a_queue(rig):
    """F-M5: each counter by the name that operators know."""
    got = delivered(rig.send(count=4)) or rig.consume(30, credit=3)
    rig.acknowledge(30, got[:1])
    span = [(got[1].id, got[1].id)]
    rig.run(lambda fx: rig.engine.give_back(1, 30, 0, span, Return.REJECTED, rig.now_ms, fx))

    found = shown(rig, "orders")
    wanted = {"processed": 1, "remaining": 2, "remaining_high": 4, "pending": 1, "dispatched": 1}
    wanted |= {"delivered": 3, "poisoned": 1, "removed": 0, "expired": 0, "moved": 0}
    assert {name: found[name] for name in wanted} == wanted
    assert 0 < found["memory"] < found["memory_high"]
    assert found["blocked_sends"] == 0


def test_an_operator_sees_the_counters_of_a_topic(rig):
    """The sum of its subscriptions."""
    rig.consume(30, "news", credit=1)
    rig.consume(31, "news", durable="mine", credit=1)
    rig.send(producer=2, count=2)

    found = shown(rig, "news", "topic")

    assert (found["remaining"], found["dispatched"], found["delivered"]) == (4, 2, 2)
