"""Limits of a destination: who waits, who is refused, what is removed (F-C11)."""

import pytest

from hms.engine.effects import Confirm, Effects
from hms.errors.catalogue import (
    BatchTooLarge,
    DestinationNotFound,
    FlowControlTimeout,
    MessageTooLarge,
    ProducerLimit,
    QueueFull,
)
from hms.records import Cause, RecordType, decode_ranges
from tests.support.engine_rig import delivered
from tests.support.limits_rig import (
    limited_rig,
    open_producer,
    order,
    outcomes,
    retry,
    send_with_priorities,
    waiting,
)

FLOW = "FLOW_CONTROL"


def test_a_full_queue_refuses_the_newest_and_keeps_what_it_has():
    """REJECT_NEWEST is the default: who sends is told, and nothing changes."""
    rig = limited_rig(messages_max=2)
    rig.send(count=2)

    with pytest.raises(QueueFull, match="2 of max_messages 2"):
        rig.send()

    assert len(waiting(rig)) == 2


def test_bytes_are_limited_as_messages_are():
    """Ten large messages hurt more than a hundred small ones."""
    rig = limited_rig(bytes_max=250)
    rig.send(count=2, body=b"x" * 100)

    with pytest.raises(QueueFull, match="max_bytes"):
        rig.send(body=b"x" * 60)

    rig.send(body=b"x" * 40)


def test_a_message_above_the_limit_of_its_destination_is_refused():
    """The node would take it, this queue does not."""
    rig = limited_rig(message_bytes_max=10)

    with pytest.raises(MessageTooLarge):
        rig.send(body=b"x" * 20)


def test_a_producer_too_many_is_refused():
    """Its limit holds for the destination, not for the connection."""
    rig = limited_rig(producers_max=2)  # the rig has two of them open

    with pytest.raises(ProducerLimit, match="max_producers is 2"):
        rig.engine.open_producer(1, 50, 1, "queue", "orders")


def test_under_flow_control_a_send_waits_and_goes_when_there_is_room():
    """The sender slows down to the speed of the receiver, and nobody is refused."""
    rig = limited_rig(FLOW, messages_max=2)
    first = rig.consume(7, credit=0) + delivered(rig.send(count=2))
    assert outcomes(rig.send()) == []
    assert rig.engine.has_blocked

    got = delivered(rig.run(lambda fx: rig.engine.credit(1, 7, 0, 1, rig.now_ms, fx)))
    assert outcomes(retry(rig)) == []  # it is out, and counts until it is acknowledged
    rig.acknowledge(7, got)

    assert [type(one) for one in outcomes(retry(rig))] == [Confirm]
    assert not rig.engine.has_blocked
    assert len(waiting(rig)) == 2
    assert first == []


def test_what_waits_stays_in_order_and_nobody_overtakes():
    """P4: a small batch that would fit does not pass the large one before it."""
    rig = limited_rig(FLOW, messages_max=3)
    rig.send(count=2, body=b"0")
    rig.send(count=3, body=b"1")
    rig.send(count=1, body=b"2")

    retry(rig)
    assert len(waiting(rig)) == 2

    rig.run(lambda fx: rig.engine.administer("queue.purge", {"name": "orders"}, rig.now_ms, fx))
    retry(rig)
    assert [m.payload[-1:] for m in waiting(rig)] == [b"1"] * 3


def test_who_waited_its_request_timeout_is_told_the_limit_what_waits_and_the_cure():
    """A sender never waits for ever, and it hears of it before it gives up by itself."""
    rig = limited_rig(FLOW, messages_max=1)
    rig.engine.state.connections[1].request_timeout_ms = 10_000
    rig.send()
    rig.send()
    due_ms = rig.engine.due_ms()
    assert rig.now_ms < due_ms < rig.now_ms + 10_000

    rig.now_ms = due_ms
    (refusal,) = outcomes(rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx)))

    assert isinstance(refusal.error, FlowControlTimeout)
    for said in ("queue orders", "1 of max_messages 1", "the oldest for 8", "Add consumers"):
        assert said in str(refusal.error)
    assert not rig.engine.has_blocked
    assert rig.engine.due_ms() is None


def test_what_waits_is_bounded_in_bytes():
    """P8: a crowd of blocked senders must not fill the node's memory."""
    rig = limited_rig(FLOW, messages_max=1, node={"blocked_bytes_max": 1000})
    rig.send()
    rig.send(body=b"x" * 300)

    with pytest.raises(FlowControlTimeout):
        rig.send(body=b"x" * 300)


def test_a_batch_that_can_never_fit_is_refused_at_once():
    """Waiting for room that there will never be helps nobody."""
    rig = limited_rig(FLOW, messages_max=2)

    with pytest.raises(BatchTooLarge, match="max_messages is 2"):
        rig.send(count=3)
    assert rig.engine.batch_max(1, 1) == (1, (1 << 30) // 8)


def test_other_destinations_and_acknowledgements_go_on_while_a_send_waits():
    """P10: a full queue holds up nobody but those who send to it."""
    rig = limited_rig(FLOW, messages_max=1)
    got = delivered(rig.send()) or rig.consume(7)
    rig.send()

    assert [type(one) for one in outcomes(rig.send(producer=3))] == [Confirm]
    rig.acknowledge(7, got)
    assert [type(one) for one in outcomes(retry(rig))] == [Confirm]


def test_a_lost_connection_takes_its_waiting_sends_with_it():
    """Its client sends them again, and must not find them stored as well."""
    rig = limited_rig(FLOW, messages_max=1)
    rig.send()
    rig.send()

    fx = rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))

    assert not rig.engine.has_blocked
    assert outcomes(fx) == []
    assert len(waiting(rig)) == 1


def test_closing_the_producer_ends_its_waiting_sends_with_an_error():
    """Whoever waits for the confirmation is told that it will not come."""
    rig = limited_rig(FLOW, messages_max=1)
    rig.send()
    rig.send()

    (refusal,) = outcomes(rig.run(lambda fx: rig.engine.close_producer(1, 1, fx)))

    assert refusal.error.fields["what"] == "producer"


def test_remove_oldest_keeps_the_newest_and_counts_the_others():
    """P9: what a limit removes is counted, and in the log with its cause."""
    rig = limited_rig("REMOVE_OLDEST", messages_max=3)
    for body in b"123456":
        rig.send(body=bytes([body]))

    line = rig.engine.state.queues["orders"].line
    assert [m.payload[-1:] for m in waiting(rig)] == [b"4", b"5", b"6"]
    assert (line.counters.removed, line.counters.purged) == (3, 0)
    causes = [decode_ranges(p).cause for kind, p in rig.log if kind == RecordType.DISCARDED]
    assert causes == [Cause.LIMIT] * 3


def test_remove_oldest_does_not_touch_what_is_being_worked_on():
    """A message that is out cannot be removed, and the newest must not go in its place."""
    rig = limited_rig("REMOVE_OLDEST", messages_max=2)
    rig.send(count=2)
    assert len(rig.consume(7)) == 2

    rig.run(lambda fx: rig.engine.credit(1, 7, 0, -98, rig.now_ms, fx))
    rig.send(count=3)

    assert len(waiting(rig)) == 2


def test_remove_low_priority_takes_the_least_and_of_those_the_oldest():
    """An alarm must not be lost to a heap of reports."""
    rig = limited_rig("REMOVE_LOW_PRIORITY", messages_max=3)
    send_with_priorities(rig, [4, 1, 9, 1, 4, 0])

    assert [m.priority for m in waiting(rig)] == [9, 4, 4]


def test_bytes_make_the_oldest_go_too():
    """As many go as the new one needs."""
    rig = limited_rig("REMOVE_OLDEST", bytes_max=100)
    for size in (40, 40, 90):
        rig.send(body=b"x" * size)

    assert [m.length for m in waiting(rig)] == [waiting(rig)[0].length]
    assert rig.engine.state.queues["orders"].line.counters.removed == 2


def test_those_who_went_are_forgotten_with_their_messages():
    """A deadline of minutes must not hold what was sent within it."""
    rig = limited_rig(FLOW, messages_max=1)
    rig.send()
    for _ in range(1000):
        rig.send()
        rig.run(lambda fx: rig.engine.administer("queue.purge", {"name": "orders"}, 0, fx))
        retry(rig)

    blocked = rig.engine.state.blocked
    assert len(blocked._deadlines) < 200
    assert (blocked.size_bytes, blocked.lines) == (0, {})


def test_a_queue_without_limits_looks_for_none_though_another_has_some_or_is_gone(monkeypatch):
    """A node has temporary queues all the time, and each of them goes in the end."""
    rig = limited_rig(messages_max=5)
    passing = rig.engine.create_temporary(1, "queue", Effects())
    rig.run(lambda fx: rig.engine.delete_temporary(1, "queue", passing, fx))
    assert rig.engine.state.is_guarded
    monkeypatch.setattr(rig.engine.state.blocked, "must_wait", pytest.fail)

    assert [type(one) for one in outcomes(rig.send(producer=3))] == [Confirm]


def test_what_is_sent_behind_a_pause_stays_behind_what_waits_yet():
    """P4: the pause is over, and with it the reason to look, but an older send is not stored."""
    rig = limited_rig()
    order(rig, "queue.pause", name="orders", what="PRODUCTION")
    assert outcomes(rig.send(body=b"first")) == []
    order(rig, "queue.resume", name="orders")

    assert outcomes(rig.send(body=b"second")) == []
    retry(rig)

    assert [message.payload for message in waiting(rig)] == [b"first", b"second"]


def test_sends_look_for_limits_only_as_long_as_there_are_some():
    """A limit that was tried once, and is gone, costs the sends of a node nothing any more."""
    rig = limited_rig()
    state = rig.engine.state
    for on, off in (
        (("queue.alter", {"max_messages": 5}), ("queue.alter", {"max_messages": 0})),
        (("queue.pause", {"what": "PRODUCTION"}), ("queue.resume", {})),
    ):
        assert not state.is_guarded
        order(rig, on[0], name="orders", **on[1])
        assert state.is_guarded
        order(rig, off[0], name="orders", **off[1])

    assert not state.is_guarded


def test_who_has_a_queue_open_that_is_gone_is_still_told():
    """Its limits are nobody's concern any more, its end is."""
    rig = limited_rig()
    passing = rig.engine.create_temporary(1, "queue", Effects())
    open_producer(rig, 20, passing)
    rig.run(lambda fx: rig.engine.delete_temporary(1, "queue", passing, fx))
    order(rig, "queue.alter", name="orders", max_messages=5)
    order(rig, "queue.alter", name="orders", max_messages=0)

    assert rig.engine.state.is_guarded
    with pytest.raises(DestinationNotFound):
        rig.send(producer=20)
