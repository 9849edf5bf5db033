"""Destinations come and go and are altered while the node runs (F-C4 to F-C7)."""

import pytest

from hms.engine.effects import Confirm, Refusal
from hms.engine.engine import Return, Said
from hms.errors.catalogue import (
    DestinationExists,
    DestinationInUse,
    DestinationNotFound,
    ExportNameInUse,
    ExportNameNotFound,
    InvalidArgument,
    QueueFull,
    UndefinedLimitBehavior,
)
from hms.records import Cause, RecordType, decode_ranges
from tests.support.engine_rig import EngineRig
from tests.support.limits_rig import open_producer, order, retry, shown

# made and deleted


def test_a_created_queue_is_there_after_a_restart_with_its_limits_and_messages(rig):
    """What an operator creates is as good as what stands in hms.conf."""
    order(rig, "queue.create", name="new", max_messages=2, redelivery_limit=7)
    open_producer(rig, 20, "new")
    rig.send(producer=20, count=2)

    rig.start()

    found = shown(rig, "new")
    assert (found["remaining"], found["max_messages"], found["redelivery_limit"]) == (2, 2, 7)
    assert found["life"] == "CREATED"
    open_producer(rig, 20, "new")
    with pytest.raises(QueueFull):
        rig.send(producer=20)


def test_a_created_topic_takes_publications(rig):
    """Topics as well as queues."""
    order(rig, "topic.create", name="sports", topic_string="Sports/Football")
    rig.consume(30, "news")
    open_producer(rig, 20, "sports", "topic")

    rig.start()

    assert rig.engine.state.topics["sports"].string == "Sports/Football"


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_name_that_is_taken_is_refused_whatever_it_names(rig, kind):
    """F-C4: exists already is an error."""
    with pytest.raises(DestinationExists, match="queue orders"):
        order(rig, f"{kind}.create", name="orders")


@pytest.mark.parametrize("name", ["", "HMS.MINE", "a\nb", "x" * 256])
def test_a_name_that_cannot_be_is_refused(rig, name):
    """Bad input changes nothing."""
    before = len(rig.log)
    with pytest.raises(InvalidArgument):
        order(rig, "queue.create", name=name)
    assert len(rig.log) == before


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"max_messages": -1}, InvalidArgument),
        ({"max_messages": "many"}, InvalidArgument),
        ({"max_mesages": 1}, InvalidArgument),
        ({"limit_behavior": "PANIC"}, UndefinedLimitBehavior),
        ({"redelivery_delay_s": -1}, InvalidArgument),
        ({"dead_letter": "nowhere"}, DestinationNotFound),
        ({"expired_to": "orders"}, InvalidArgument),
    ],
)
def test_an_attribute_that_cannot_be_is_refused(rig, given, error):
    """And the destination is as it was."""
    with pytest.raises(error):
        order(rig, "queue.alter", name="orders", **given)
    assert shown(rig, "orders")["max_messages"] == 0


def test_a_deleted_queue_takes_what_waits_with_it_counted_and_told_in_the_log(rig):
    """P9: what was in it is not lost in silence, and does not come back."""
    order(rig, "queue.create", name="new")
    open_producer(rig, 20, "new")
    rig.send(producer=20, count=3)

    with pytest.raises(DestinationInUse, match="3 messages wait"):
        order(rig, "queue.delete", name="new")
    assert order(rig, "queue.delete", name="new", force=True, discard=True) == 3

    causes = [decode_ranges(p).cause for kind, p in rig.log if kind == RecordType.DISCARDED]
    assert causes == [Cause.DELETED]
    with pytest.raises(DestinationNotFound):
        rig.send(producer=20)
    rig.start()
    assert "new" not in rig.engine.state.queues
    assert rig.engine.state.waiting_bytes == 0


@pytest.mark.parametrize("count", [3, 1200])
def test_what_waits_in_a_deleted_queue_becomes_dead_letters_with_the_reason(rig, count):
    """An operator's slip loses nothing; a long queue goes in slices, and a crash keeps it so."""
    order(rig, "queue.create", name="new")
    open_producer(rig, 20, "new")
    for _ in range(count // 3):
        rig.send(producer=20, count=3)

    assert order(rig, "queue.delete", name="new", force=True) == count

    for _ in range(2):
        letters = rig.engine.state.queues["HMS.DLQ"].line.everything()
        assert len(letters) == count
        story = letters[0].head().node
        assert (story["$DeadReason"], story["$DeadOrigin"]) == ("DESTINATION_DELETED", "queue:new")
        assert "new" not in rig.engine.state.queues
        rig.start()


def test_a_letter_of_a_deleted_queue_says_how_often_it_failed(rig):
    """It said 0, whatever had been tried."""
    order(rig, "queue.create", name="new", redelivery_limit=7)
    open_producer(rig, 20, "new")
    rig.send(producer=20)
    (message,) = rig.consume(1, "new")
    spans = [(message.id, message.id)]
    rig.run(lambda fx: rig.engine.give_back(1, 1, 0, spans, Return.FAILED, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.close_consumer(1, 1, rig.now_ms, fx))

    order(rig, "queue.delete", name="new", force=True)

    (letter,) = rig.engine.state.queues["HMS.DLQ"].line.everything()
    assert letter.head().node["$DeadCount"] == 1


def test_what_waits_in_a_temporary_queue_is_no_dead_letter(rig):
    """It was for its client, which lets go of it."""
    fx = rig.run(lambda fx: rig.engine.create_temporary(1, "queue", fx))
    name = next(iter(rig.engine.state.temporaries))
    open_producer(rig, 20, name)
    rig.send(producer=20, count=3)
    rig.run(lambda fx: rig.engine.close_producer(1, 20, fx))
    rig.run(lambda fx: rig.engine.delete_temporary(1, "queue", name, fx))

    assert fx is not None
    assert rig.engine.state.queues["HMS.DLQ"].line.everything() == []


def test_letters_in_a_deleted_queue_keep_what_they_say(rig):
    """Why they died, not that they were moved."""
    order(rig, "queue.create", name="graves")
    order(rig, "queue.alter", name="orders", dead_letter="graves")
    rig.send()
    (message,) = rig.consume(30)
    back = ([(message.id, message.id)], Return.REJECTED, rig.now_ms)
    rig.run(lambda fx: rig.engine.give_back(1, 30, 0, *back, fx, said=Said("", "no table")))
    order(rig, "queue.alter", name="orders", dead_letter=None)

    assert order(rig, "queue.delete", name="graves", force=True) == 1

    (letter,) = rig.engine.state.queues["HMS.DLQ"].line.everything()
    story = letter.head().node
    assert (story["$DeadReason"], story["$DeadText"]) == ("REJECTED", "no table")
    assert story["$DeadOrigin"] == "queue:orders"


def test_a_queue_of_the_same_name_begins_anew(rig):
    """What an old one had must not show up in its heir."""
    for _ in range(2):
        order(rig, "queue.create", name="new")
        open_producer(rig, 20, "new")
        rig.send(producer=20)
        rig.run(lambda fx: rig.engine.close_producer(1, 20, fx))
        order(rig, "queue.delete", name="new", force=True)
    order(rig, "queue.create", name="new")

    rig.start()

    assert shown(rig, "new")["remaining"] == 0


def test_what_is_in_use_is_not_deleted(rig):
    """Nobody's messages vanish from under his hands."""
    order(rig, "queue.create", name="new")
    rig.consume(30, "new")
    with pytest.raises(DestinationInUse, match="1 consumers"):
        order(rig, "queue.delete", name="new")
    with pytest.raises(DestinationInUse, match=r"hms\.conf"):
        order(rig, "queue.delete", name="orders")
    rig.consume(31, "news", durable="mine")
    order(rig, "topic.create", name="old")


def test_a_send_that_waits_for_a_deleted_queue_is_told(rig):
    """It would wait for ever for room that will not come."""
    order(rig, "queue.create", name="new", max_messages=1, limit_behavior="FLOW_CONTROL")
    open_producer(rig, 20, "new")
    rig.send(producer=20)
    rig.send(producer=20)
    order(rig, "queue.delete", name="new", force=True)

    (refusal,) = [one for one in retry(rig).out if isinstance(one, Refusal)]

    assert isinstance(refusal.error, DestinationNotFound)


# altered


def test_an_altered_limit_holds_over_a_restart_and_can_be_taken_back(rig):
    """What was altered goes before hms.conf; None is as hms.conf has it."""
    order(rig, "queue.alter", name="orders", max_messages=1)
    rig.start()
    rig.send()
    with pytest.raises(QueueFull):
        rig.send()

    order(rig, "queue.alter", name="orders", max_messages=None)
    rig.send()


def test_altering_the_limit_lets_those_go_who_wait(rig):
    """The cure that the error names."""
    order(rig, "queue.alter", name="orders", max_messages=1, limit_behavior="FLOW_CONTROL")
    rig.send()
    rig.send()
    order(rig, "queue.alter", name="orders", max_messages=2)

    assert any(isinstance(one, Confirm) for one in retry(rig).out)


def test_a_topic_that_is_altered_tells_its_subscriptions(rig):
    """The limit of redelivery holds for those that were there before."""
    rig.consume(30, "news", durable="mine")
    order(rig, "topic.alter", name="news", redelivery_limit=9, dead_letter="slow")

    mine = rig.engine.state.topics["news"].durable("mine")
    assert (mine.redelivery_limit, mine.dead_letter) == (9, "slow")


def test_what_is_set_on_the_topic_of_all_topics_outlives_a_restart():
    """It is altered and paused like any other, and the log has it like any other."""
    rig = EngineRig(is_topics_open=True)
    order(rig, "topic.alter", name="HMS.BASE.TOPIC", redelivery_limit=9)
    order(rig, "topic.pause", name="HMS.BASE.TOPIC", what="PRODUCTION")

    rig.start()

    base = rig.engine.state.space.base
    assert (base.redelivery_limit, base.control.paused) == (9, "PRODUCTION")


# export names


def test_a_destination_is_looked_up_by_its_export_name_or_its_own(rig):
    """F-C7: clients need not know what it is called inside."""
    order(rig, "queue.create", name="new", export_name="jms/New")

    found = order(rig, "destination.lookup.show", name="jms/New")

    assert found == {"name": "new", "kind": "queue"}
    assert order(rig, "destination.lookup.show", name="news")["kind"] == "topic"
    for unknown in ("new", "nowhere"):
        with pytest.raises(ExportNameNotFound):
            order(rig, "destination.lookup.show", name=unknown)


def test_two_destinations_do_not_share_an_export_name(rig):
    """Whoever looks it up would get one or the other."""
    with pytest.raises(ExportNameInUse, match="queue orders"):
        order(rig, "queue.create", name="new", export_name="orders")
    order(rig, "queue.alter", name="orders", export_name="jms/Orders")
    order(rig, "queue.create", name="new", export_name="orders")
    with pytest.raises(ExportNameInUse):
        order(rig, "queue.alter", name="orders", export_name="")
