"""Features that meet: each alone is right, and so they have to be together."""

import pytest

from hms.engine.effects import FileDropped, Reply
from hms.engine.engine import Return
from hms.engine.settings import DestinationSettings
from hms.errors.catalogue import IllegalState, TransactionTooLarge
from hms.wire.packed_messages import KIND_FILE, ROW, Head, encode_head, pack_messages
from tests.support.branch_rig import XA, BranchRig
from tests.support.cluster_rig import World
from tests.support.limits_rig import limited_rig, order, send_with_priorities, tick
from tests.support.topic_rig import TopicRig

FILE = "0123456789abcdef-00000001-" + "ab" * 32


@pytest.fixture
def world():
    """Two nodes that know one another."""
    made = World(2)
    made.link_all()
    made.settle()
    return made


def _send_delayed(world, node, delay_ms):
    row = ROW.pack(0, 1, 0, delay_ms, 4, 0, 0, 0)
    pack = memoryview(pack_messages([(row, b"", b"x")]))
    node.sequence += 1
    what = 1, node.sequence, 1, True, pack
    node.run(lambda fx: node.engine.send(1, 5, *what, world.clock(node.index), fx))
    node.sync()


def test_a_node_boots_whose_delayed_message_is_on_its_way_to_another_node(world):
    """Its record still says when it was due: that must not keep the node from booting."""
    one, two = world.nodes.values()
    two.consume()
    world.tick()
    _send_delayed(world, one, delay_ms=500)
    world.settle()
    world.now_ms += 600
    one.run(lambda fx: one.engine.tick(world.clock(1), fx))
    one.sync()
    assert one.undecided()

    world.crash(1)
    world.settle()
    world.tick()

    assert len(two.got) == 1


def test_two_subscriptions_into_one_queue_get_what_either_chose_of_another_node(world):
    """A publication that only the second one wants must not be lost with the first one's choice."""
    one, two = world.nodes.values()
    now_ms = world.clock(2)
    two.run(lambda fx: two.engine.administer("queue.create", {"name": "in"}, now_ms, fx))
    two.subscribe(1, durable="may", queue="in", selector="Month = 5")
    two.subscribe(2, durable="june", queue="in", selector="Month = 6")
    two.subscribe(3, durable="all", queue="in", selector="Month > 4")
    two.sync()
    world.tick()
    heads = [encode_head(Head({"Month": month})) for month in (5, 6)]
    packed = [(ROW.pack(len(head), 1, 0, 0, 4, 0, 0, 0), head, b"x") for head in heads]
    what = 2, 1, 2, True, memoryview(pack_messages(packed))

    one.run(lambda fx: one.engine.send(1, 5, *what, world.clock(1), fx))
    one.sync()
    world.tick()

    assert two.engine.state.queues["in"].line.waiting_count == 2


def test_a_dynamic_queue_outlives_the_node_while_a_durable_subscription_delivers_into_it():
    """What is published after the boot would go into a queue that nobody can reach, and be lost."""
    rig = TopicRig()
    arguments = {"name": "dynamic", "life": "DYNAMIC"}
    rig.run(lambda fx: rig.engine.administer("queue.create", arguments, rig.now_ms, fx))
    rig.subscribe("news", durable="kept", queue="dynamic")
    rig.boot()
    rig.publish("news", "one")
    rig.boot()

    assert rig.consume("dynamic").bodies == ["one"]


def test_a_temporary_queue_stays_while_a_subscription_of_another_client_delivers_into_it():
    """The same while the node runs: the owner's end must not swallow what the other one wants."""
    rig = TopicRig()
    rig.engine.open_connection(2, 88, "", "")
    name = rig.run(lambda fx: rig.engine.create_temporary(2, "queue", fx))
    rig.subscribe("news", queue=name)
    rig.run(lambda fx: rig.engine.close_connection(2, rig.now_ms, fx, is_final=True))

    rig.publish("news", "one")

    assert rig.engine.state.queues[name].line.waiting_count == 1


def test_a_durable_subscription_does_not_deliver_into_a_temporary_queue():
    """The log knows nothing of that queue: the messages would come elsewhere than they were to."""
    rig = TopicRig()
    name = rig.run(lambda fx: rig.engine.create_temporary(1, "queue", fx))

    with pytest.raises(IllegalState, match="temporary"):
        rig.subscribe("news", durable="kept", queue=name)


def test_a_commit_that_comes_again_while_it_waits_is_answered_when_it_is_done():
    """P1: the second request of the same number is no proof that the first one took effect."""
    rig = limited_rig("FLOW_CONTROL", messages_max=1)
    rig.send(1)
    rig.send(11)
    assert not rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx)).out

    assert not rig.run(lambda fx: rig.engine.commit(1, 2, 10, 1, rig.now_ms, fx)).out

    rig.consume(1, credit=1)
    fx = rig.acknowledge(1, list(rig.engine.state.connections[1].consumers[1].out.values()))
    fx = tick(rig)
    assert [e.correlation for e in fx.out if isinstance(e, Reply)] == [10]


def test_a_commit_waits_behind_an_earlier_one_of_its_session():
    """The last number that took effect stands for all before it: none of these may be lost."""
    rig = limited_rig("FLOW_CONTROL", messages_max=1)
    rig.send(1)
    rig.send(11)
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))
    rig.send(13)
    assert not rig.run(lambda fx: rig.engine.commit(1, 2, 10, 2, rig.now_ms, fx)).out
    assert rig.engine.state.memories.last_commit(77, 2) == 0

    order(rig, "queue.purge", name="orders")
    fx = tick(rig)

    assert [e.correlation for e in fx.out if isinstance(e, Reply)] == [9, 10]
    assert rig.engine.state.memories.last_commit(77, 2) == 2


@pytest.mark.parametrize("producer", [1, 11])
def test_a_file_stays_while_its_message_waits_for_room(producer):
    """A send or a commit that waits was told that the file is there; it must be when it goes."""
    rig = limited_rig("FLOW_CONTROL", messages_max=1, node={"file_life_ms": 10_000})
    rig.engine.file_stored(FILE, rig.now_ms)
    rig.send(1)
    head = encode_head(Head({}, node={"$File": FILE}))
    pack = memoryview(ROW.pack(len(head), 1, 0, 0, 4, KIND_FILE, 0, 0) + head + b"x")
    what = producer, 7, 1, True, pack
    rig.run(lambda fx: rig.engine.send(1, 5, *what, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))
    assert rig.engine.has_blocked

    fx = tick(rig, after_ms=11_000)

    assert not [effect for effect in fx.out if isinstance(effect, FileDropped)]


def test_a_dead_letter_takes_another_id_than_a_message_that_waits_there_for_its_time():
    """Both would be one after a crash: one of them would be lost."""
    rig = TopicRig(
        DestinationSettings("queue", "keep", redelivery_delay_ms=1000),
        DestinationSettings("topic", "news", dead_letter="keep"),
    )
    own = rig.subscribe("news", durable="own")
    rig.subscribe("news", durable="other", queue="keep")
    rig.publish("news", "one")
    consumer = rig.consume("keep")
    _give_back(rig, consumer, Return.FAILED)
    _give_back(rig, own, Return.REJECTED)
    rig.boot()

    consumer = rig.consume("keep")
    assert consumer.bodies == ["one"]  # the other one waits for its time yet
    tick(rig, after_ms=1000)
    assert consumer.bodies == ["one", "one"]


def test_a_dead_letter_takes_another_id_than_a_message_that_a_transaction_has_there():
    """The same with one that is out and acknowledged in a transaction."""
    rig = TopicRig(DestinationSettings("topic", "news", dead_letter="orders"))
    own = rig.subscribe("news", durable="own")
    rig.subscribe("news", durable="other", queue="orders")
    rig.publish("news", "one")
    consumer = rig.consume("orders", session=2, credit=1)
    rig.acknowledge(consumer)
    _give_back(rig, own, Return.REJECTED)
    rig.commit()
    rig.boot()

    assert rig.consume("orders").bodies == ["one"]


def _give_back(rig, consumer, how):
    spans = [(m.id, m.id) for m in consumer.messages]
    rig.run(lambda fx: rig.engine.give_back(1, consumer.handle, 0, spans, how, rig.now_ms, fx))


def test_a_message_that_its_limit_removed_does_not_count_as_one_whose_body_is_in_the_log():
    """The quota would count less than there is, more so with each message, and be of no use."""
    memory = {"memory_bytes_max": 40_000, "paging_share": 0.0}
    rig = limited_rig("REMOVE_LOW_PRIORITY", messages_max=2, node=memory)
    rig.send(13, is_persistent=False)
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))
    send_with_priorities(rig, [9, 9, 0, 0, 0])

    assert rig.engine.state.blocks.paged_count == 2
    assert rig.engine.state.resident_bytes > 0


def test_a_transaction_of_delayed_messages_fits_into_its_record():
    """The node writes into each when it is due; a record that does not fit stops the node."""
    rig = limited_rig(node={"transaction_bytes_max": 100_000})
    pack = memoryview(pack_messages([(ROW.pack(0, 1, 0, 5000, 4, 0, 0, 0), b"", b"x")] * 100))
    with pytest.raises(TransactionTooLarge):
        _send_until_refused(rig, 13, pack, 100)
    assert rig.engine.state.connections[1].sessions[2].work.sends

    fx = rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))

    assert sum(map(len, fx.records[0].parts)) <= 100_000


def _send_until_refused(rig, producer, pack, count):
    for sequence in range(1, 10_000, count):
        what = producer, sequence, count, True, pack
        rig.run(lambda fx, what=what: rig.engine.send(1, 5, *what, rig.now_ms, fx))


def test_a_temporary_queue_that_ended_with_a_message_in_a_branch_takes_no_memory():
    """The branch outlives the connection; what it gives back has nowhere to go."""
    rig = BranchRig()
    before = rig.engine.state.waiting_bytes
    name = []
    rig.run(lambda fx: name.append(rig.engine.create_temporary(1, "queue", fx)))
    rig.engine.open_producer(1, 99, 1, "queue", name[0])
    rig.send(99)
    rig.begin()
    messages = rig.consume(1, name[0], session=XA)
    rig.acknowledge(1, messages)
    rig.end()
    rig.prepare()
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx, is_final=True))
    assert name[0] not in rig.engine.state.queues

    rig.rollback()

    assert rig.engine.state.waiting_bytes == before


def test_a_crash_in_the_middle_of_a_cold_boot_doubles_nothing_that_a_branch_has_sent():
    """P6: after the next boot, a warm one, a message is in the queue or in its branch."""
    rig = BranchRig()
    rig.sent_in_branch()
    rig.prepare()
    before = len(rig.log)
    rig.start(is_warm=False)
    log = list(rig.log)

    for cut in range(before, len(log) + 1):
        rig.log = log[:cut]
        rig.start(is_warm=True)
        state = rig.engine.state
        sends = [batch.count for b in state.branches.in_doubt() for batch in b.work.sends]
        assert sum(sends) + state.queues["orders"].line.waiting_count <= 1


def test_a_transaction_retains_on_a_topic_that_was_taken_away_since_it_was_sent():
    """Its producer was closed before the commit, and nothing else used the topic."""
    rig = TopicRig(topic_life_ms=1000)
    rig.publish("news/today", "one", retain=True, session=2)
    producer = rig.producers["news/today", 2, ""]
    rig.run(lambda fx: rig.engine.close_producer(1, producer, fx))
    rig.now_ms += 5000
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))

    rig.commit()

    assert rig.subscribe("news/today").bodies == ["one"]
