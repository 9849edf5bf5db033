"""Paging: bodies that are in the log only come back whole, in order, and to the right place."""

from dataclasses import replace

import pytest

from hms.constants import AckMode
from hms.engine.log import paging
from hms.engine.log.live_index import Block
from hms.engine.messages import StoredMessage
from hms.engine.queue.settlement import Return
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.server.payloads import Payloads
from hms.store.interface import SegmentGoneError
from hms.store.journal.segment_manager import LogLimits
from hms.wire import structures as wire
from hms.wire.frames import DELIVER_HEAD, Kind
from tests.support.hello import hello_of
from tests.support.journal_node import JournalNode

MEMORY = 30_000
SETTINGS = EngineSettings(
    memory_bytes_max=MEMORY,
    message_bytes_max=10_000,
    transaction_bytes_max=16_000,
    redelivery_limit=2,
    destinations=(
        DestinationSettings("queue", "orders", expired_to="late"),
        DestinationSettings("queue", "late"),
        DestinationSettings("topic", "news"),
    ),
)
BODIES = [b"%03d" % i * 300 for i in range(40)]

HIGH = "JMSPriority = 7"
OLDEST_FIRST = (True, 0, 100)


def life(path, settings=SETTINGS, **options):
    node = JournalNode(path, settings, **options)
    node.broker.registry.numbers["peer"] = 1
    node.broker.releases.peers[1] = "peer"
    node.open_client()
    return node


def fill(node, bodies=BODIES, **row):
    for i in range(0, len(bodies), 4):
        node.publish(1 + i, bodies[i : i + 4], **row)


def paged(node, queue="orders"):
    return [m.is_paged for m in node.engine.state.queues[queue].line.in_order()]


def said(node, kind):
    """Payloads of the frames of a kind that the peer got."""
    return [data for envelope, data in node.outlet.take("peer") if envelope.kind is kind]


def bodies_in(payload, extra=0):
    """Bodies of a DELIVER or BROWSED frame; the test's messages have no heads."""
    count = DELIVER_HEAD.unpack_from(payload)[2]
    body = bytes(payload[DELIVER_HEAD.size + extra + 48 * count :])
    size = len(body) // count
    return [body[i : i + size] for i in range(0, len(body), size)]


def test_what_is_delivered_is_whole_although_it_was_not_in_memory(tmp_path):
    """Three quarters full, a node must not lose a byte of what arrives."""
    node = life(tmp_path)
    fill(node)
    flags = paged(node)
    assert not flags[0]
    assert flags[-1]
    assert node.engine.state.resident_bytes <= MEMORY

    node.consume(1, 100)

    assert [b for data in said(node, Kind.DELIVER) for b in bodies_in(data)] == BODIES
    node.acknowledge(list(node.engine.state.connections[1].consumers[1].out.values()))
    assert node.engine.state.blocks.paged_bytes == 0
    assert node.engine.state.resident_bytes == 0
    node.close()


def test_a_boot_takes_no_more_memory_than_the_node_may(tmp_path):
    """A node that went down with a full log must come up again, with all of it."""
    node = life(tmp_path, replace(SETTINGS, memory_bytes_max=1 << 30))
    fill(node)
    assert not any(paged(node))
    node.close()

    again = life(tmp_path)
    assert again.engine.state.resident_bytes <= MEMORY
    again.consume(1, 100)
    assert [b for data in said(again, Kind.DELIVER) for b in bodies_in(data)] == BODIES
    again.close()


def test_a_browser_sees_bodies_that_are_in_the_log_only(tmp_path):
    """Looking must not depend on how full the memory is."""
    node = life(tmp_path)
    fill(node)
    node.run(lambda fx, _now: node.engine.browse(1, 7, "orders", "", *OLDEST_FIRST, fx))
    (page,) = said(node, Kind.BROWSED)
    assert bodies_in(page, extra=8) == BODIES
    node.close()


def test_a_dead_letter_waits_for_its_body_and_has_it_then(tmp_path):
    """A poison message at the end of a long queue must not arrive empty in the dead letters."""
    node = life(tmp_path)
    fill(node)
    node.consume(1, 100)
    out = list(node.engine.state.connections[1].consumers[1].out.values())
    last = out[-1]
    assert last.is_paged
    span = [(last.id, last.id)]
    for _ in range(2):
        node.run(lambda fx, now: node.engine.give_back(1, 1, 0, span, Return.FAILED, now, fx))
        node.credit(1)
    assert [body for _, body, _, _ in node.waiting("HMS.DLQ")] == [BODIES[-1]]
    node.close()

    again = life(tmp_path, replace(SETTINGS, memory_bytes_max=1 << 30))
    assert [body for _, body, _, _ in again.waiting("HMS.DLQ")] == [BODIES[-1]]
    assert len(again.waiting()) == len(BODIES) - 1
    again.close()


@pytest.mark.parametrize("verb", ["move", "copy", "alter"])
def test_what_an_operator_moves_waits_for_its_body_and_has_it_then(tmp_path, verb):
    """Paged or not, every message arrives whole, once, and a crash leaves it in one place."""
    node = life(tmp_path)
    fill(node)
    to = {"priority": 9} if verb == "alter" else {"to": "late"}
    asked = {"place": "queue:orders", "is_all": True, **to}
    later, at = 0, {}
    while True:
        answers = []

        def ask(fx, now, asked=asked, at=at, answers=answers):
            answers.append(node.engine.administer(f"message.{verb}", asked | at, now, fx))

        node.run(ask)
        node.step()
        later += answers[0]["later"]
        if not answers[0]["has_more"]:
            break
        at = {"after": answers[0]["after"], "end": answers[0]["end"]}
    where = "orders" if verb == "alter" else "late"
    stay = BODIES if verb == "copy" else []

    assert later > 0
    assert sorted(body for _, body, _, _ in node.waiting(where)) == BODIES
    assert node.engine.state.queues["orders"].line.out_count == 0
    node.close()

    again = life(tmp_path, replace(SETTINGS, memory_bytes_max=1 << 30))
    assert sorted(body for _, body, _, _ in again.waiting(where)) == BODIES
    if where == "late":
        assert [body for _, body, _, _ in again.waiting()] == stay
    again.close()


def test_a_message_that_failed_too_often_is_not_tried_again_after_a_crash(tmp_path):
    """The node died while a dead letter waited for its body: one attempt more than allowed came."""
    node = life(tmp_path)
    fill(node)
    node.consume(1, 100)
    last = list(node.engine.state.connections[1].consumers[1].out.values())[-1]
    span = [(last.id, last.id)]
    for _ in range(2):
        node.broker._change(
            lambda fx, now: node.engine.give_back(1, 1, 0, span, Return.FAILED, now, fx)
        )
        node.broker._change(lambda fx, now: node.engine.credit(1, 1, 0, 1, now, fx))
    assert node.engine.state.awaiting_page_in
    node.store.commit()
    node.close()

    again = life(tmp_path)
    again.step()
    assert last.id not in [id_ for id_, _, _, _ in again.waiting()]
    assert [body for _, body, _, _ in again.waiting("HMS.DLQ")] == [BODIES[-1]]
    again.close()


def test_cleaning_tells_how_often_a_message_failed_that_waits_to_be_a_letter(tmp_path):
    """Its failures were told with the record that cleaning made superfluous: after a crash it was
    tried as often again."""
    node = life(tmp_path)
    fill(node)
    node.consume(1, 100)
    last = list(node.engine.state.connections[1].consumers[1].out.values())[-1]
    for _ in range(2):
        node.broker._change(
            lambda fx, now: node.engine.give_back(
                1, 1, 0, [(last.id, last.id)], Return.FAILED, now, fx
            )
        )
        node.broker._change(lambda fx, now: node.engine.credit(1, 1, 0, 1, now, fx))
    assert [one.message for one in node.engine.state.awaiting_page_in] == [last]
    segment, found = node.store.newest_segment, [(last, node.broker._bodies.of(last))]
    node.broker._change(lambda fx, now: node.engine.move(segment, found, now, fx))
    node.store.commit()
    node.close()

    again = life(tmp_path)
    again.step()
    assert last.id not in [id_ for id_, _, _, _ in again.waiting()]
    (letter,) = again.engine.state.queues["HMS.DLQ"].line.in_order()
    assert letter.head().node["$DeadCount"] == 2
    assert again.engine.state.queues["orders"].line.history.keys().isdisjoint({last.id})
    again.close()


def test_expired_messages_go_where_they_should_with_their_bodies(tmp_path):
    """And a node that dies while they wait for them has them where they were."""
    node = life(tmp_path)
    fill(node, ttl_ms=1000)
    node.now_ms += 2000
    node.broker._change(lambda fx, now: node.engine.tick(now, fx))
    assert node.engine.state.awaiting_page_in
    node.close()

    again = life(tmp_path)
    again.now_ms += 2000
    again.run(lambda fx, now: again.engine.tick(now, fx))
    again.close()
    last = life(tmp_path, replace(SETTINGS, memory_bytes_max=1 << 30))
    assert sorted(body for _, body, _, _ in last.waiting("late")) == BODIES
    assert last.waiting() == []
    last.close()


class _Gone:
    """A store that has let go of everything below a position."""

    def __init__(self, first):
        self.first = first

    def read(self, position, size):
        if position < self.first:
            raise SegmentGoneError(position)
        return b"%d" % position * size


def test_a_body_is_looked_for_again_where_its_message_was_moved():
    """Its old place may be another's by then; where it is, only the engine's lock can say."""
    message = StoredMessage.of(1, 1, 0, 0, 4, 0, 0, b"whole", is_persistent=True)
    message.payload = b""
    told = iter([3, 3, 7])

    assert Payloads(_Gone(5), lambda _: [next(told)]).of_all([message]) == [b"77777"]
    with pytest.raises(SegmentGoneError):
        Payloads(_Gone(5), lambda _: [3]).of_all([message])


def test_a_listeners_message_is_read_before_its_segment_may_go(tmp_path, monkeypatch):
    """Its consumer could be lost and its queue purged before it was read, and the node stopped."""
    node = life(tmp_path)
    fill(node)
    node.publish(100, [b"for a listener"], priority=7)
    assert list(node.engine.state.queues["orders"].line.everything())[-1].is_paged
    release, bodies = node.broker.releases.release, []

    def over(durable_lsn):
        calls = release(durable_lsn)
        bodies.extend(body for _, body in calls)
        return calls

    read = node.store.read

    def locked(position, size):
        if not node.broker.releases._lock.locked():
            raise SegmentGoneError(position)
        return read(position, size)

    monkeypatch.setattr(node.broker.releases, "release", over)
    monkeypatch.setattr(node.store, "read", locked)
    node.send("server", Kind.HELLO, wire.encode(hello_of(1, is_server=True)))
    node.send("server", Kind.REQUEST, wire.encode(wire.Advertise("WORK")))
    node.send("client", Kind.HELLO, wire.encode(hello_of(3)))
    node.send("client", Kind.REQUEST, wire.encode(wire.OpenSession(1, 1, is_asynchronous=True)))
    request = wire.OpenConsumer(
        1, 1, "queue", "orders", 0, selector="JMSPriority = 7", listener="WORK"
    )
    node.send("client", Kind.REQUEST, wire.encode(request))

    assert bodies == [b"for a listener"]
    node.close()


def test_where_a_message_lies_is_asked_under_the_engines_lock(tmp_path):
    """Block and slot change one after the other: read in between they name another's body."""
    node = life(tmp_path)
    fill(node)
    asked, position = [], Block.position

    def watched(block, slot):
        asked.append(node.broker._lock.locked())
        return position(block, slot)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Block, "position", watched)
        node.waiting()
    assert asked
    assert all(asked)
    node.close()


def test_a_body_that_is_moved_stays_in_memory_until_its_new_place_can_be_read(tmp_path):
    """Its delivery was read back from a place that was not synced yet, and the node stopped."""
    node = life(tmp_path)
    fill(node)
    waiting = list(node.engine.state.queues["orders"].line.in_order())
    found = [(m, node.broker._bodies.of(m)) for m in waiting if m.is_paged]
    segment = node.store.newest_segment

    node.broker._change(lambda fx, now: node.engine.move(segment, found, now, fx))

    assert found
    assert node.broker._bodies.of_all(waiting) == BODIES
    node.close()


def test_what_had_left_before_the_boot_does_not_count_as_paged(tmp_path):
    """A batch that memory had no room for counted for ever: sends were refused for nothing."""
    node = life(tmp_path, replace(SETTINGS, memory_bytes_max=1 << 30))
    node.publish(1, BODIES)
    asked = {"name": "orders"}
    node.run(lambda fx, now: node.engine.administer("queue.purge", asked, now, fx))
    node.close()

    again = life(tmp_path)
    blocks = again.engine.state.blocks
    assert again.waiting() == []
    assert (blocks.paged_count, blocks.paged_bytes) == (0, 0)
    assert (blocks.live_bytes, blocks.held_count) == (0, 0)
    again.close()


def delayed_and_paged(node, handle=1, name="orders", delay_ms=60_000):
    """The last message that a consumer has waits for its time, and its body is in the log only."""
    last = node.consume(handle, 100, name=name)[-1]
    span = [(last.id, last.id)]
    node.run(
        lambda fx, now: node.engine.give_back(
            1, handle, 0, span, Return.FAILED, now, fx, delay_ms=delay_ms
        )
    )
    if not last.is_paged:
        paging.page_out(node.engine.state, [last])
    line = node.engine.state.queues[name].line
    assert last.is_paged
    assert line.delayed.find(last.id) is last
    return last, line


def test_what_waits_for_its_time_in_the_log_alone_is_not_copied(tmp_path):
    """It was counted as waiting, came before its time, and once more at its time."""
    node = life(tmp_path)
    fill(node)
    last, line = delayed_and_paged(node)
    node.publish(1001, [b"next"])
    asked, answers = {"place": "queue:orders", "is_all": True, "to": "late"}, []

    node.run(lambda fx, now: answers.append(node.engine.administer("message.copy", asked, now, fx)))

    assert answers[0]["skipped_ordered"] == 1
    assert line.delayed_count == 1
    assert line.waiting_count + line.out_count == len(BODIES)
    consumer = node.engine.state.connections[1].consumers[1]
    node.acknowledge(list(consumer.out.values()))
    node.credit(100)
    node.acknowledge(list(consumer.out.values()))
    assert line.waiting_count == line.out_count == 0
    node.now_ms += 60_000
    node.tick()
    assert list(consumer.out) == [last.id]
    node.close()


def test_a_letter_that_waits_for_its_time_in_the_log_alone_is_not_sent_back(tmp_path):
    """The same of dead letters: it stays, and is counted."""
    node = life(tmp_path)
    node.publish(1, [b"one" * 100, b"two" * 100])
    span = [(m.id, m.id) for m in node.consume(1, 100)]
    node.run(lambda fx, now: node.engine.give_back(1, 1, 0, span, Return.REJECTED, now, fx))
    last, line = delayed_and_paged(node, 2, "HMS.DLQ")
    asked, answers = {"place": "queue:HMS.DLQ", "is_all": True}, []

    node.run(lambda fx, now: answers.append(node.engine.administer("dlq.return", asked, now, fx)))

    assert (answers[0]["count"], answers[0]["skipped_ordered"]) == (0, 1)
    assert line.delayed.find(last.id) is last
    assert (line.waiting_count, line.out_count) == (0, 1)
    node.close()


def test_bodies_that_are_on_their_way_are_read_before_their_segment_goes(tmp_path, monkeypatch):
    """Whoever acknowledges nothing has messages that ended with their delivery: the node stopped
    when their segment was given back before they were sent."""
    node = life(tmp_path, limits=LogLimits(history_bytes_max=0))
    node.engine.open_session(1, 3, AckMode.NONE, "")
    node.engine.open_producer(1, 9, 1, "queue", "late")
    fill(node)
    node.consume(9, 8, name="late")
    for n in range(200):
        node.publish(1 + 4 * n, [bytes(900)] * 4, producer=9)
        node.acknowledge(node.credit(0, 9), 9)
        node.credit(4, 9)
    node.outlet.take("peer")
    (pinned,) = tmp_path.glob("*.pinned")

    with monkeypatch.context() as patch:
        patch.setattr(node, "step", lambda: None)
        node.consume(1, 100, session=3)
    node.store.commit()
    node.broker._clean()
    node.broker.maintain()
    node.broker.release(node.store.durable_lsn)

    assert [b for data in said(node, Kind.DELIVER) for b in bodies_in(data)] == BODIES
    node.broker.maintain()
    assert not pinned.exists()
    node.close()
