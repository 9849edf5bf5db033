"""Rules of the engine that once were broken, each with the reason why it matters."""

import pytest

import hms
from hms.engine.effects import Deliver
from hms.engine.engine import Return
from hms.engine.queue.dispatch import CHUNK_BYTES
from hms.engine.settings import DEAD_LETTER_QUEUE
from tests.support.engine_rig import EngineRig, delivered


def _until_refused(error, call, most=2_000):
    """Repeat a call until it is refused."""
    for n in range(most):
        try:
            call(n)
        except error:
            return
    raise AssertionError(f"{error.__name__} does not come")


def test_many_small_sends_do_not_outgrow_a_transactions_record():
    """The record holds more than the bodies; one that fits no segment would stop the node."""
    rig = EngineRig(transaction_bytes_max=100_000)
    rig.consume(9, "news", durable="billing")
    _until_refused(hms.TransactionTooLarge, lambda _: rig.send(producer=12, body=b""))
    fx = rig.run(lambda fx: rig.engine.commit(1, 2, 1, 1, rig.now_ms, fx))
    assert sum(len(part) for record in fx.records for part in record.parts) <= 100_000


def test_a_page_of_a_browser_is_bounded_in_bytes():
    """A thousand large messages in one frame would pass the client's limit."""
    rig = EngineRig()
    for _ in range(5):
        rig.send(body=bytes(CHUNK_BYTES // 2))
    page = rig.browse()
    assert sum(len(m.payload) for m in page.messages) <= CHUNK_BYTES
    assert page.has_more


def test_a_delivery_to_a_selecting_consumer_is_bounded_in_bytes():
    """The same, for messages taken from the middle of a queue."""
    rig = EngineRig()
    for _ in range(5):
        rig.send(body=bytes(CHUNK_BYTES // 2), properties={"n": 1})
    rig.consume(1, selector="n = 2")
    fx = rig.run(lambda fx: rig.engine.close_consumer(1, 1, rig.now_ms, fx))
    assert not fx.out
    request = {"selector": "n = 1"}
    assert len(rig.consume(2, **request)) == 5
    rig.run(lambda fx: rig.engine.close_consumer(1, 2, rig.now_ms, fx))
    again = hms_request(rig, 3, **request)
    sizes = [sum(len(m.payload) for m in e.messages) for e in again.out if isinstance(e, Deliver)]
    assert max(sizes) <= CHUNK_BYTES


def hms_request(rig, handle, **options):
    """The effects of opening a consumer."""
    from hms.engine.engine import ConsumerRequest

    request = ConsumerRequest(handle, 1, "queue", "orders", 100, **options)
    return rig.run(lambda fx: rig.engine.open_consumer(1, request, 1, rig.now_ms, fx))


def test_a_cold_boot_leaves_a_configured_subscription_in_place():
    """It exists from boot, whatever kind of boot (F-E5)."""
    rig = EngineRig([("billing", "news")])
    rig.send(producer=2)
    rig.start([("billing", "news")], is_warm=False)
    assert rig.engine.state.topics["news"].durable("billing").line.waiting_count == 0
    rig.send(producer=2)
    assert rig.engine.state.topics["news"].durable("billing").line.waiting_count == 1


def test_a_rollback_waits_for_the_redelivery_delay():
    """It is how a poison message comes back most often (F-C9)."""
    rig = EngineRig()
    rig.send(producer=3)
    rig.acknowledge(1, rig.consume(1, "slow", session=2))
    assert not delivered(rig.run(lambda fx: rig.engine.rollback(1, 2, 1, rig.now_ms, fx)))
    assert rig.engine.due_ms() == rig.now_ms + 1000
    rig.now_ms += 1000
    assert len(delivered(rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx)))) == 1


@pytest.mark.parametrize("own_ms", [None, 5000], ids=["of its queue", "of its own"])
def test_what_failed_waits_for_its_time_after_a_boot(own_ms):
    """A crash must not have it come again at once, and fail again (F-C9)."""
    rig = EngineRig()
    rig.send(producer=3)
    (message,) = rig.consume(1, "slow")
    due_ms = rig.now_ms + (own_ms or 1000)
    given = 1, 1, 0, [(message.id, message.id)], Return.FAILED, rig.now_ms
    rig.run(lambda fx: rig.engine.give_back(*given, fx, own_ms))
    rig.now_ms += 900

    rig.start()

    assert rig.consume(1, "slow") == []
    assert rig.engine.due_ms() == due_ms
    rig.now_ms = due_ms
    (again,) = delivered(rig.run(lambda fx: rig.engine.tick(due_ms, fx)))
    assert again.id == message.id


def test_what_was_delivered_again_after_its_time_waits_for_nothing_after_a_boot():
    """The time of the attempt before is over, and a lost consumer is no reason to wait."""
    rig = EngineRig()
    rig.send(producer=3)
    (message,) = rig.consume(1, "slow")
    given = 1, 1, 0, [(message.id, message.id)], Return.FAILED, rig.now_ms
    rig.run(lambda fx: rig.engine.give_back(*given, fx, 1000))
    rig.now_ms += 1000
    assert len(delivered(rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx)))) == 1

    rig.start()

    assert [m.id for m in rig.consume(1, "slow")] == [message.id]


def test_a_subscription_named_like_the_dead_letter_queue_keeps_its_letters():
    """A name must not make a message vanish."""
    rig = EngineRig()
    rig.consume(1, "news", durable=DEAD_LETTER_QUEUE)
    (message,) = delivered(rig.send(producer=2))
    span = [(message.id, message.id)]
    rig.run(lambda fx: rig.engine.give_back(1, 1, 0, span, Return.FAILED, rig.now_ms, fx))
    assert rig.engine.state.queues[DEAD_LETTER_QUEUE].line.waiting_count == 1


def test_the_configured_selector_of_a_subscription_holds():
    """A consumer that does not repeat it must not replace the subscription and lose what waits."""
    rig = EngineRig([("billing", "news", "n > 1")])
    rig.send(producer=2, properties={"n": 2})
    with pytest.raises(hms.InvalidArgument, match="configured"):
        rig.consume(1, "news", durable="billing", selector="n > 5")
    assert len(rig.consume(1, "news", durable="billing")) == 1
    assert rig.consume(2, "news", durable="billing") == []


def test_a_changed_selector_in_the_configuration_keeps_what_waits():
    """An edit of a file must not discard messages."""
    rig = EngineRig([("billing", "news", "n > 1")])
    rig.send(producer=2, properties={"n": 2})
    rig.start([("billing", "news", "n > 5")])
    rig.send(producer=2, properties={"n": 2})
    rig.send(producer=2, properties={"n": 6})
    rig.start([("billing", "news", "n > 5")])
    assert [m.head().properties["n"] for m in rig.consume(1, "news", durable="billing")] == [2, 6]


def test_definitions_are_bounded_because_every_segment_begins_with_them():
    """A dictionary that fills its segment would leave no room for a record."""
    rig = EngineRig(definitions_bytes_max=4_000)
    _until_refused(hms.ConsumerLimit, lambda n: rig.consume(n + 1, "news", durable=f"name-{n}"))
    count = len(rig.engine.state.topics["news"].subscriptions)
    rig.run(lambda fx: rig.engine.close_consumer(1, 1, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.unsubscribe("news", "name-0", rig.now_ms, fx))
    rig.consume(500, "news", durable="another")
    assert len(rig.engine.state.topics["news"].subscriptions) == count


def test_a_slow_subscriber_loses_its_oldest_and_nobody_else_does():
    """F-E8: what waits for one that does not read is bounded, and counted."""
    rig = EngineRig(passing_bytes_max=10_000)
    rig.consume(1, "news", credit=0)
    rig.consume(2, "news", credit=1000)
    got = [m.id for _ in range(50) for m in delivered(rig.send(producer=2, body=bytes(1000)))]
    assert len(got) == 50
    slow = rig.engine.state.topics["news"].subscriptions[0]
    assert slow.line.size_bytes <= 10_000
    assert slow.line.counters.removed == 50 - slow.line.waiting_count
    fx = rig.run(lambda fx: rig.engine.credit(1, 1, 0, 100, rig.now_ms, fx))
    assert [m.id for m in delivered(fx)] == got[-slow.line.out_count :]


def test_a_message_may_have_a_redelivery_limit_of_its_own():
    """F-C9: the sender knows best how often its message may be tried."""
    rig = EngineRig()
    rig.send(properties={"JMS_HMS_RedeliveryLimit": 1})
    (message,) = rig.consume(1)
    span = [(message.id, message.id)]
    rig.run(lambda fx: rig.engine.give_back(1, 1, 0, span, Return.FAILED, rig.now_ms, fx))
    assert rig.engine.state.queues[DEAD_LETTER_QUEUE].line.waiting_count == 1


def test_two_consumers_share_a_subscription_and_each_message_goes_to_one():
    """F-E6, durable and not."""
    for options in ({"durable": "team"}, {"name": "team"}):
        rig = EngineRig()
        rig.consume(1, "news", is_shared=True, credit=3, **options)
        rig.consume(2, "news", is_shared=True, credit=3, **options)
        got = [m.id for _ in range(6) for m in delivered(rig.send(producer=2))]
        assert len(set(got)) == len(got) == 6
        assert len(rig.engine.state.topics["news"].subscriptions) == 1


def abandoned(rig, now_ms):
    """Their names, found in slices."""
    found = rig.engine.abandoned(now_ms)
    while found.go_on():
        pass
    return found.names


def test_a_durable_subscriber_that_stays_away_is_reported_when_its_messages_are_old():
    """F-H5: what nobody fetches fills the store, and nobody would know why."""
    rig = EngineRig(abandoned_after_ms=10_000)
    rig.consume(9, "news", durable="gone")
    rig.send(producer=2)
    assert abandoned(rig, rig.now_ms + 20_000) == []

    rig.run(lambda fx: rig.engine.close_consumer(1, 9, rig.now_ms, fx))
    assert abandoned(rig, rig.now_ms + 20_000) == ["gone (1 messages)"]

    fresh = EngineRig(abandoned_after_ms=10_000)
    fresh.consume(9, "news", durable="gone")
    fresh.run(lambda fx: fresh.engine.close_consumer(1, 9, fresh.now_ms, fx))
    fresh.send(producer=2)
    assert abandoned(fresh, fresh.now_ms + 9_000) == []
