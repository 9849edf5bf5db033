"""What is made in slices has all that waits, whatever comes and goes between two of them."""

import pytest

from hms.engine.admin import operation_slices
from hms.engine.effects import Effects
from hms.engine.groups.message_groups import MessageGroups
from hms.engine.messages import StoredMessage
from hms.engine.queue.delays import Delayed
from hms.engine.queue.pending_list import PendingList
from hms.wire import structures as wire
from hms.wire.commands import order
from hms.wire.packed_messages import Head, encode_head
from tests.support import largest
from tests.support.memory_peer import Node, Peer

MANY = 3000
FAR_MS = 10_000_000


def message(number, group="", priority=4):
    head = encode_head(Head(properties={"JMSXGroupID": group})) if group else b""
    args = (number, number, 0, 0, priority, 0, len(head), head + b"body")
    return StoredMessage.of(*args, is_persistent=False)


@pytest.fixture
def line():
    made = PendingList(0, "q")
    made.groups = MessageGroups(made)
    made.add([message(number, f"g{number}") for number in range(1, MANY + 1)])
    return made


def test_a_message_that_its_group_holds_back_meanwhile_stays_in_the_order(line):
    """One of a higher priority came for its group before the growth had come to it."""
    scan = line.open_scan()
    scan.grow(MANY // 3)
    line.add([message(MANY + 1, "g2500", 9)])
    while scan.grow(MANY // 3):
        pass

    assert len(line.open_index()) == line.waiting_count == MANY + 1
    assert 2500 in line.open_index()


def test_a_message_that_its_group_holds_back_meanwhile_stays_in_the_index(line):
    """As for the order."""
    line.index_some(MANY // 3)
    line.add([message(MANY + 1, "g2500", 9)])
    while line.index_some(MANY // 3):
        pass

    assert len(line.open_index()) == MANY + 1


def test_an_index_that_nobody_waits_for_keeps_nothing(line):
    """It kept the id of everything that left."""
    line.index_some(MANY // 3)
    line.give_up_index()
    line.remove_everything()

    assert not line._left
    assert not line.open_index()


def test_nothing_is_left_of_delayed_messages_that_are_gone():
    """Their due times were popped one by one, at once, later."""
    delayed = Delayed()
    for number in range(MANY):
        delayed.add(message(number), FAR_MS)
    for number in range(MANY):
        delayed.remove(number)

    assert not delayed._heap
    assert delayed.next_ms() is None


def test_nobody_begins_to_use_a_queue_that_is_looked_through_before_it_is_deleted(
    tmp_path, monkeypatch
):
    """Its messages were on their way to the dead letters when the deletion was refused."""
    monkeypatch.setattr(operation_slices, "LOOKED_AT_ONCE", 20)
    monkeypatch.setattr(operation_slices, "BURIED_AT_ONCE", 10)
    node = Node(tmp_path)
    one, other = Peer(node, 1), Peer(node, 2)
    one.request(wire.Administer("queue.create", {"name": "gone"}))
    largest.fill(one, "gone", 60)
    engine = node.engine
    engine.state.blocks.paged_count = 1
    engine.state.queues["gone"].producers = 0
    asked = order("queue.delete", {"name": "gone", "force": True})
    number = next(iter(engine.state.connections))

    assert engine.operate_some(number, asked, node.now_ms, Effects())
    other.request(wire.OpenConsumer(7, 1, "queue", "gone", 0))
    assert not engine.state.queues["gone"].consumers
    while engine.operate_some(number, asked, node.now_ms, Effects()):
        pass
    engine.operate(asked, node.now_ms, Effects(), number)

    assert "gone" not in engine.state.queues
