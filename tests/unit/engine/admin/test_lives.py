"""Destinations with a life of their own: dynamic, automatic and temporary ones (F-C4 to F-C6)."""

from random import Random

import pytest
from msgspec.structs import replace

from hms.engine.effects import Effects
from hms.engine.engine import ConsumerRequest, Engine
from hms.engine.queue.purge_slices import PURGED_AT_ONCE
from hms.engine.settings import EngineSettings
from hms.errors.catalogue import (
    DestinationNotFound,
    IllegalState,
    InvalidArgument,
    TemporaryDestination,
    TopicStringError,
)
from hms.records import Cause, RecordType, decode_definition, decode_ranges, defined
from hms.wire.packed_messages import FLAG_RETAIN, ROW, pack_messages
from tests.support.engine_rig import EngineRig, delivered
from tests.support.limits_rig import open_producer, order, shown

# lives of their own


def test_what_a_client_created_is_gone_after_the_node_has_stopped(rig):
    """F-C4: create_queue() is for this life of the node."""
    order(rig, "queue.create", name="mine", life="DYNAMIC")
    open_producer(rig, 20, "mine")
    rig.send(producer=20)

    rig.start()

    assert "mine" not in rig.engine.state.queues
    causes = [decode_ranges(p).cause for kind, p in rig.log if kind == RecordType.DISCARDED]
    assert causes == [Cause.DELETED]


def test_an_automatic_queue_is_made_by_its_first_use_and_goes_when_it_was_idle():
    """F-C5: off by default."""
    with pytest.raises(DestinationNotFound):
        open_producer(EngineRig(), 20, "auto")
    rig = EngineRig(is_auto=True, auto_idle_ms=1000)
    open_producer(rig, 20, "auto")
    rig.send(producer=20)
    rig.run(lambda fx: rig.engine.close_producer(1, 20, fx))
    for _ in range(3):
        rig.now_ms += 1000
        rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    assert shown(rig, "auto")["remaining"] == 1  # what waits keeps it

    order(rig, "queue.purge", name="auto")
    rig.now_ms += 1000
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    assert "auto" not in rig.engine.state.queues
    rig.start()
    assert "auto" not in rig.engine.state.queues


def temporary(rig, kind="queue"):
    """A temporary destination of connection 1."""
    names = []
    rig.run(lambda fx: names.append(rig.engine.create_temporary(1, kind, fx)))
    return names[0]


def test_the_name_of_a_temporary_destination_has_96_bits_of_the_nodes_chance():
    """AT-31: whoever knows a name may send to it. The chance is the node's, so that a simulated one
    does the same in every run."""
    engine = Engine(EngineSettings(), Random(7).randbytes)
    engine.open_connection(1, 77, "", "")
    expected = Random(7)

    for kind in ("queue", "topic"):
        name = engine.create_temporary(1, kind, Effects())
        assert name.startswith("HMS.TEMP.")
        assert name.endswith(expected.randbytes(12).hex())


def test_only_its_connection_receives_from_a_temporary_queue(rig):
    """F-C6: others answer into it."""
    name = temporary(rig)
    rig.engine.open_connection(2, 78, "", "")
    rig.engine.open_session(2, 1, 0, "")
    rig.run(lambda fx: rig.engine.open_producer(2, 1, 1, "queue", name, "", fx))
    request = ConsumerRequest(9, 1, "queue", name, 10)
    with pytest.raises(TemporaryDestination, match="receive"):
        rig.run(lambda fx: rig.engine.open_consumer(2, request, 1, rig.now_ms, fx))
    open_producer(rig, 20, name)
    rig.send(producer=20)
    assert len(rig.consume(30, name)) == 1


def test_only_its_connection_subscribes_to_a_temporary_topic_and_not_for_ever(rig):
    """A durable subscription would outlive what it is for."""
    name = temporary(rig, "topic")
    rig.engine.open_connection(2, 78, "", "")
    rig.engine.open_session(2, 1, 0, "")
    theirs = ConsumerRequest(9, 1, "topic", name, 10)
    with pytest.raises(TemporaryDestination):
        rig.run(lambda fx: rig.engine.open_consumer(2, theirs, 1, rig.now_ms, fx))
    durable = ConsumerRequest(30, 1, "topic", name, 10, durable="mine")
    with pytest.raises(IllegalState):
        rig.run(lambda fx: rig.engine.open_consumer(1, durable, 1, rig.now_ms, fx))
    mine = ConsumerRequest(30, 1, "topic", name, 10)
    rig.run(lambda fx: rig.engine.open_consumer(1, mine, 1, rig.now_ms, fx))
    open_producer(rig, 20, name, "topic")
    assert len(delivered(rig.send(producer=20))) == 1


def test_the_log_knows_nothing_of_temporary_destinations(rig):
    """A request and its answer must not cost two definitions of the disk."""
    before = len(rig.log)
    name = temporary(rig)
    open_producer(rig, 20, name)
    rig.send(producer=20)
    got = rig.consume(30, name)
    rig.acknowledge(30, got)
    temporary(rig, "topic")

    assert [kind for kind, _ in rig.log[before:]] == []
    assert rig.engine.state.waiting_bytes == 0
    rig.engine.dictionary()
    rig.start()
    assert name not in rig.engine.state.queues


def test_a_temporary_queue_survives_a_lost_connection_for_a_while_and_a_good_bye_not_at_all(rig):
    """A client that comes back finds its answers."""
    name, other = temporary(rig), temporary(rig)
    open_producer(rig, 20, name)
    rig.send(producer=20)
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))
    rig.now_ms += 59_000
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    rig.engine.open_connection(1, 77, "", "")
    rig.now_ms += 59_000
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    assert shown(rig, name)["remaining"] == 1

    rig.run(lambda fx: rig.engine.delete_temporary(1, "queue", other, fx))
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx, is_final=True))
    assert name not in rig.engine.state.queues
    assert rig.engine.state.waiting_bytes == 0


def test_a_temporary_queue_whose_owner_does_not_come_back_goes(rig):
    """P8: lost clients must not fill the node."""
    name = temporary(rig)
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))
    rig.now_ms += 61_000
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    assert name not in rig.engine.state.queues


# those that another machine may go on with


@pytest.fixture
def kept():
    """A node whose log has them."""
    return EngineRig(keeps_temporary=True)


def test_a_temporary_queue_and_its_answers_are_there_after_a_take_over(kept):
    """Its owner finds the same name, and nobody else receives from it."""
    name, topic = temporary(kept), temporary(kept, "topic")
    open_producer(kept, 20, name)
    kept.send(producer=20)

    kept.start()

    assert shown(kept, name)["remaining"] == 1
    assert topic in kept.engine.state.topics
    kept.engine.open_connection(2, 78, "", "")
    kept.engine.open_session(2, 1, 0, "")
    request = ConsumerRequest(9, 1, "queue", name, 10)
    with pytest.raises(TemporaryDestination):
        kept.run(lambda fx: kept.engine.open_consumer(2, request, 1, kept.now_ms, fx))
    got = kept.consume(30, name)
    assert len(got) == 1
    kept.acknowledge(30, got)
    kept.start()
    assert shown(kept, name)["remaining"] == 0


def test_it_ends_a_minute_after_the_take_over_if_its_owner_does_not_come(kept):
    """And is in no log then; a second take-over begins that minute anew."""
    mine, theirs = temporary(kept), _of_another(kept)
    topic = temporary(kept, "topic")
    open_producer(kept, 20, theirs)
    kept.send(producer=20)
    for _ in range(2):
        kept.start()  # client 77 comes back, client 78 does not
        kept.now_ms += 59_000
        kept.run(lambda fx: kept.engine.tick(kept.now_ms, fx))
        assert {mine, theirs} <= set(kept.engine.state.queues)
    kept.now_ms += 2_000
    kept.run(lambda fx: kept.engine.tick(kept.now_ms, fx))

    state = kept.engine.state
    assert (mine in state.queues, theirs in state.queues) == (True, False)
    assert state.waiting_bytes == 0
    kept.run(lambda fx: kept.engine.close_connection(1, kept.now_ms, fx, is_final=True))
    before = EngineRig().engine.state.shares.definitions.used
    for _ in range(2):
        state = kept.engine.state
        assert not {mine, theirs}.intersection(state.queues)
        assert topic not in state.topics
        assert state.shares.definitions.used == before
        kept.start()


def test_one_whose_owner_the_release_before_left_out_of_the_log_ends_too(kept):
    """Nobody can be told from its owner, so nobody receives from it meanwhile."""
    name = _of_another(kept)
    kept.log[:] = [(kind, _without_owner(kind, payload)) for kind, payload in kept.log]
    kept.start()

    request = ConsumerRequest(9, 1, "queue", name, 10)
    with pytest.raises(TemporaryDestination):
        kept.run(lambda fx: kept.engine.open_consumer(1, request, 1, kept.now_ms, fx))
    kept.now_ms += 61_000
    kept.run(lambda fx: kept.engine.tick(kept.now_ms, fx))
    assert name not in kept.engine.state.queues


def _without_owner(kind, payload):
    """As the release before writes a definition."""
    if kind != RecordType.DEFINED:
        return payload
    return b"".join(defined(replace(decode_definition(payload), client_uid=0)).parts)


def _of_another(rig):
    """A temporary queue of client 78."""
    rig.engine.open_connection(2, 78, "", "")
    names = []
    rig.run(lambda fx: names.append(rig.engine.create_temporary(2, "queue", fx)))
    return names[0]


def test_a_full_one_ends_in_slices_and_takes_nothing_more(kept):
    """As a purge does, other clients are not kept out; a crash meanwhile leaves the rest to the
    next boot."""
    name = temporary(kept)
    open_producer(kept, 20, name)
    for _ in range(PURGED_AT_ONCE // 1000 + 1):
        kept.send(producer=20, count=1000)

    kept.run(lambda fx: kept.engine.delete_temporary(1, "queue", name, fx))

    with pytest.raises(DestinationNotFound):
        open_producer(kept, 21, name)
    with pytest.raises(DestinationNotFound):
        kept.send(producer=20)
    log = list(kept.log)
    kept.run(lambda fx: kept.engine.tick(kept.now_ms, fx))
    assert name not in kept.engine.state.queues
    assert kept.engine.state.waiting_bytes == 0
    kept.log = log
    kept.start()
    assert name in kept.engine.state.queues
    kept.run(lambda fx: kept.engine.close_connection(1, kept.now_ms, fx, is_final=True))
    assert name not in kept.engine.state.queues


# where it could leak


def test_a_temporary_name_is_never_given_again(rig):
    """An answer that comes late must not land in the queue of another request."""
    first = temporary(rig)
    rig.run(lambda fx: rig.engine.delete_temporary(1, "queue", first, fx))
    second = temporary(rig)
    rig.start()

    assert len({first, second, temporary(rig)}) == 3


def test_a_client_cannot_make_a_name_of_the_system(rig):
    """HMS.TEMP. belongs to temporary destinations."""
    with pytest.raises(InvalidArgument):
        order(rig, "queue.create", name="HMS.TEMP.mine", life="DYNAMIC")


def test_making_and_ending_destinations_leaves_nothing_behind(rig):
    """P8: a busy client must not use up the room for definitions."""
    before = rig.engine.state.shares.definitions.used
    for _ in range(3):
        order(rig, "queue.create", name="new", export_name="jms/New", max_messages=3)
        order(rig, "queue.alter", name="new", export_name=None, max_bytes=7)
        order(rig, "queue.pause", name="new")
        order(rig, "queue.delete", name="new")
        order(rig, "topic.create", name="sport", topic_string="World/Sport")
        order(rig, "topic.delete", name="sport")
        for kind in ("queue", "topic"):
            name = temporary(rig, kind)
            rig.run(lambda fx, k=kind, n=name: rig.engine.delete_temporary(1, k, n, fx))

    state = rig.engine.state
    assert state.shares.definitions.used == before
    assert not state.temporaries
    assert {q.name for q in state.queues.values()} == {"orders", "slow", "HMS.DLQ"}
    rig.start()
    assert rig.engine.state.shares.definitions.used == before


def test_what_a_temporary_topic_retained_goes_with_it(rig):
    """Nobody could ever clear it."""
    name = temporary(rig, "topic")
    open_producer(rig, 20, name, "topic")
    row = ROW.pack(0, 1, 0, 0, 4, 0, FLAG_RETAIN, 0)
    pack, is_persistent = memoryview(pack_messages([(row, b"", b"x")])), True
    batch = 1, 5, 20, 1, 1, is_persistent, pack, rig.now_ms
    rig.run(lambda fx: rig.engine.send(*batch, fx))
    assert rig.engine.state.space.retained.count == 1

    rig.start()

    assert rig.engine.state.space.retained.count == 0


def test_a_topic_string_that_cannot_be_is_refused(rig):
    """And nothing is in the log of it."""
    before = len(rig.log)
    with pytest.raises(TopicStringError):
        order(rig, "topic.create", name="deep", topic_string="/".join("x" * 400))
    assert len(rig.log) == before
