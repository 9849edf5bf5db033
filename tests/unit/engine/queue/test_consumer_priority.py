"""Consumers of a higher priority get what there is, as far as they have room."""

import msgspec
import pytest

from hms.engine.queue.in_flight_view import held_by
from hms.errors.catalogue import ProtocolError
from hms.wire.structures import OpenConsumer, decode_request, encode
from tests.support.engine_rig import EngineRig, delivered
from tests.support.order_rig import OrderRig

HIGH, LOW = 1, 2


def _consumers(rig, destination="orders", credit=2, **options):
    for handle, priority in ((LOW, 0), (HIGH, 5)):
        rig.consume(handle, destination, credit=credit, priority=priority, **options)


def _by_consumer(fx):
    found = {}
    for effect in fx.out:
        for message in getattr(effect, "messages", ()):
            found.setdefault(effect.consumer, []).append(message)
    return found


def test_the_higher_priority_gets_all_that_it_has_room_for_and_the_lower_the_rest(rig):
    """As in other brokers: the credit decides, not the turn."""
    _consumers(rig)

    first = _by_consumer(rig.send(count=1))
    second = _by_consumer(rig.send(count=1))
    third = _by_consumer(rig.send(count=3))

    assert list(first) == list(second) == [HIGH]
    assert {one: len(found) for one, found in third.items()} == {LOW: 2}
    assert rig.engine.state.queues["orders"].line.waiting_count == 1


def test_who_has_room_again_comes_before_the_lower_one(rig):
    """Also when the lower one has waited with room all the time."""
    _consumers(rig, credit=1)
    (held,) = _by_consumer(rig.send())[HIGH]
    rig.acknowledge(HIGH, [held])

    rig.run(lambda fx: rig.engine.credit(1, HIGH, 0, 1, rig.now_ms, fx))

    assert list(_by_consumer(rig.send())) == [HIGH]


def test_equal_ones_take_turns(rig):
    """Within a priority nothing changes."""
    for handle in (1, 2):
        rig.consume(handle, credit=10, priority=3)

    shares = _by_consumer(rig.send(count=10))

    assert {one: len(found) for one, found in shares.items()} == {1: 5, 2: 5}


def test_a_shared_subscription_has_them_too(rig):
    """Its subscribers share as consumers of a queue do."""
    _consumers(rig, "news", name="s", is_shared=True)

    assert list(_by_consumer(rig.send(2))) == [HIGH]


def test_a_selector_makes_no_difference():
    """What both want goes to the higher one, whichever has a selector."""
    for high, low in (("", "color = 'red'"), ("color = 'red'", "")):
        rig = EngineRig()
        rig.consume(LOW, selector=low, priority=-1)
        rig.consume(HIGH, selector=high, priority=1)

        assert list(_by_consumer(rig.send(properties={"color": "red"}))) == [HIGH]


def test_a_new_group_goes_to_the_higher_one_and_stays_with_its_owner():
    """A group's order is worth more than a priority."""
    rig = OrderRig()
    rig.consume("low", "plain", priority=0)
    rig.send("a1", "plain", JMSXGroupID="a")
    rig.consume("high", "plain", priority=9)

    for body, name in (("a2", "a"), ("b1", "b"), ("c1", "c")):
        rig.send(body, "plain", JMSXGroupID=name)

    assert (rig.taken("low"), rig.taken("high")) == (["a1", "a2"], ["b1", "c1"])


def test_when_the_higher_one_leaves_the_lower_one_has_it_all(rig):
    """Its own come back first."""
    _consumers(rig)
    sent = delivered(rig.send(count=2))

    came = _by_consumer(rig.run(lambda fx: rig.engine.close_consumer(1, HIGH, rig.now_ms, fx)))

    assert came == {LOW: sent}
    assert rig.engine.state.queues["orders"].priorities == (0,)


def test_the_view_of_a_queue_tells_it(rig):
    """Who looks why a consumer gets nothing has to see it."""
    _consumers(rig)
    rig.send()
    state = rig.engine.state

    (row,) = held_by(state, state.queues["orders"])

    assert (row["consumer"], row["priority"]) == (HIGH, 5)


def test_a_client_that_does_not_know_it_asks_for_priority_0():
    """The field is the last one of its structure."""
    asked = encode(OpenConsumer(1, 1, "queue", "orders", 10, priority=5))
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(asked)[:6])

    assert (decode_request(asked).priority, decode_request(older).priority) == (5, 0)
    for wrong in (128, -129):
        with pytest.raises(ProtocolError):
            decode_request(encode(OpenConsumer(1, 1, "queue", "orders", 10, priority=wrong)))
