"""Alerts of messages, disk and logins: each is provoked at an engine, and ends."""

import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from hms.boot.monitoring.watch import DELIVERIES_MIN, MINUTE_S
from hms.engine.engine import Return
from hms.engine.settings import DestinationSettings
from hms.wire import structures as wire
from tests.support.engine_rig import delivered
from tests.support.gated import GatedNode
from tests.support.secured import document
from tests.support.watch_rig import Watched, WatchedRig

HOUR_S = 3600
SUBSCRIPTION = ("night", "news")
ORDERS = "queue:orders"


@pytest.fixture
def rig():
    made = WatchedRig([SUBSCRIPTION])
    assert made.look() == {}
    return made


def give_back(rig, handle, messages, how=Return.FAILED):
    """Deliveries of a consumer fail; what it gets then."""
    spans = [(m.id, m.id) for m in messages]
    return delivered(
        rig.run(lambda fx: rig.engine.give_back(1, handle, 0, spans, how, rig.now_ms, fx))
    )


def close(rig, handle):
    rig.run(lambda fx: rig.engine.close_consumer(1, handle, rig.now_ms, fx))


def test_a_queue_whose_consumer_acknowledges_nothing_is_stuck_until_it_does(rig):
    """Five minutes; and a consumer that has held one message for so long is named by itself."""
    rig.send(count=3)
    (held,) = rig.consume(100, credit=1)
    assert rig.look(300) == {}
    said = rig.look(5)
    assert said.keys() == {"stuck_queue", "stalled_consumer"}
    assert said["stuck_queue"] == "2 messages wait, and none is acknowledged"
    assert f"has held {held.id:012x} and has not settled it" in said["stalled_consumer"]
    rig.acknowledge(100, [held])
    assert rig.look() == {}


def test_a_queue_that_nobody_receives_from_is_told_after_an_hour(rig):
    """By the age of its oldest message, and until somebody comes."""
    rig.send()
    assert rig.look(HOUR_S - 10) == {}
    assert rig.look(15).keys() == {"unconsumed_queue"}
    rig.consume(100)
    assert rig.look() == {}


def test_a_subscription_that_nobody_receives_from_is_told_when_its_messages_are_old():
    """It takes what is published, for ever. Who comes, or an operator who deletes it, ends it."""
    rig = WatchedRig([SUBSCRIPTION], alerts={"abandoned_subscription_s": 60})
    rig.send(2)
    assert rig.look(55) == {}
    said = rig.look(10)
    assert said.keys() == {"abandoned_subscription"}
    assert said["abandoned_subscription"].endswith(" s, and nobody receives")
    got = rig.consume(100, "news", durable="night")
    assert len(got) == 1
    assert rig.look() == {}
    close(rig, 100)
    assert rig.look(2).keys() == {"abandoned_subscription"}
    rig.run(lambda fx: rig.engine.unsubscribe("news", "night", rig.now_ms, fx))
    assert rig.look(3) == {}


def test_dead_letters_that_come_fast_are_told_until_a_minute_has_fewer(rig):
    """Ten a minute are usual; eleven are not."""
    rig.send(count=11)
    got = rig.consume(100)
    give_back(rig, 100, got[:10], Return.REJECTED)
    assert rig.look() == {}
    give_back(rig, 100, got[10:], Return.REJECTED)
    assert rig.look() == {"dead_letters_growing": "11 dead letters in a minute"}
    assert rig.look(MINUTE_S) == {}


def test_deliveries_that_come_again_and_again_are_a_storm_until_they_are_acknowledged(rig):
    """More than a fifth of at least fifty: a consumer that fails at everything."""
    rig.send(count=DELIVERIES_MIN)
    got = rig.consume(100, credit=1000)
    assert len(got) == DELIVERIES_MIN
    some = give_back(rig, 100, got[:12])
    assert len(some) == 12
    assert rig.look() == {}
    more = give_back(rig, 100, some)
    assert rig.look() == {"redelivery_storm": "32 % of the deliveries come again"}
    rig.acknowledge(100, [*got[12:], *more])
    assert rig.look(MINUTE_S) == {}


def test_sends_that_wait_for_room_are_told_until_there_is_some():
    """Ten seconds: a moment of flow control is no fault."""
    full = DestinationSettings("queue", "orders", messages_max=1, limit_behavior="FLOW_CONTROL")
    others = DestinationSettings("queue", "slow"), DestinationSettings("topic", "news")
    rig = WatchedRig(destinations=(full, *others))
    rig.send()
    rig.send()
    assert rig.look(10) == {}
    assert rig.look() == {"producers_blocked": "1 sends wait"}
    rig.acknowledge(100, rig.consume(100))
    assert rig.look() == {}


def test_a_branch_in_doubt_is_told_until_its_outcome_is_known(rig):
    """Two rounds of recovery have passed: whoever decides does not come."""
    rig.sent_in_branch()
    rig.prepare()
    assert rig.look(20) == {}
    assert rig.look() == {"in_doubt": "1 branches are in doubt"}
    rig.commit()
    assert rig.look() == {}


def test_a_disk_that_fills_is_told_and_that_sends_are_refused_then(rig):
    """A tenth is left, then nothing; each ends by itself when there is room."""
    rig.watched.disk = 9, 100
    assert rig.look() == {"store_low": "9.0 % of the disk is left"}
    rig.store.refusal = "no space is left"
    assert rig.look() == {
        "store_low": "9.0 % of the disk is left",
        "store_full": "no space is left",
    }
    rig.store.refusal, rig.watched.disk = None, (10, 100)
    assert rig.look() == {}


def test_memory_that_is_nearly_full_is_told_until_messages_are_gone():
    """What is held is counted against max_memory_bytes."""
    rig = WatchedRig(memory_bytes_max=100_000)
    rig.send(body=bytes(90_000), is_persistent=False)
    assert rig.look() == {"memory_high": "0 of 0 MiB are taken"}
    rig.acknowledge(100, rig.consume(100))
    assert rig.look() == {}


def test_syncs_that_are_slow_are_told_for_a_minute():
    """Of those of the last minute, so a disk that rests is not slow."""
    rig = WatchedRig(alerts={"slow_sync_ms": 0})
    assert rig.look() == {}
    rig.store.append(1, 1, [b"x"])
    assert rig.broker.lead()
    assert rig.look().keys() == {"slow_sync"}
    assert rig.look(MINUTE_S) == {}


def test_descriptors_that_are_nearly_all_open_are_told(rig):
    """By those that this very process has, and may have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as some:
        for _ in range(100):
            some.enter_context(Path("/dev/null").open())
        count = len(list(Path("/proc/self/fd").iterdir()))
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count * 115 // 100, before[1]))
            said = rig.look()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert said.keys() == {"descriptors_high"}
    assert said["descriptors_high"].endswith(" % of the descriptors are open")
    assert rig.look() == {}


class Gated(GatedNode):
    """A secured node that is watched."""

    def __init__(self):
        super().__init__(document(billing=["produce queue:orders"], other=[]))
        self.watched = Watched(self, self.broker, self.store)
        self.look = self.watched.look

    def pass_time(self):
        """Nothing waits for it here."""


def test_logins_that_fail_often_are_told_until_a_minute_has_fewer():
    """Somebody tries passwords, or an application has an old one."""
    node = Gated()
    assert node.look() == {}
    for number in range(11):
        assert node.look() == {}
        node.hello(number)
        node.auth(number, "billing", "wrong")
    assert node.look() == {"login_failures": "11 logins were refused in a minute"}
    assert node.look(MINUTE_S) == {}


def test_commands_that_are_denied_often_are_told_until_a_minute_has_fewer():
    """An application that may not do what it does all the time."""
    node = Gated()
    assert node.look() == {}
    node.login("p", "other")
    for _ in range(61):
        assert node.look(0) == {}
        node.ask("p", wire.Administer("queue.list", {}))
    assert node.look() == {"denials": "61 commands were not permitted in a minute"}
    assert node.look(MINUTE_S) == {}
