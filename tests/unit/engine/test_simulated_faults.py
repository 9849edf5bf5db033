"""Faults that the simulator found, each as the few steps that show it."""

import errno
import os
import random
from pathlib import Path

import pytest
from client_link import LOST, new_link, up
from client_link import sent as sent_frames

import hms
from hms.client.send_buffer import PendingSend, Sender, SendOptions
from hms.engine.admin.configured_destinations import define_destinations
from hms.engine.effects import Deliver, Effects, Reply
from hms.engine.engine import ConsumerRequest
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.errors.catalogue import DurableNameInUse
from hms.records import RecordType
from hms.server.effect_release import EffectRelease
from hms.store.journal import Journal
from hms.wire.frames import (
    Kind,
)
from hms.wire.packed_messages import ROW, pack_messages
from tests.sim.disk import SimDisk
from tests.support.engine_rig import EngineRig, delivered


def _pack(ttl_ms=0):
    return pack_messages([(ROW.pack(0, 1, ttl_ms, 0, 4, 0, 0, 0), b"", b"x")])


def test_a_message_that_came_back_expires_once():
    """Expired twice, it was counted twice, and its second record stopped every later boot."""
    rig = EngineRig()
    numbers, is_persistent = (1, 5, 1, 1, 1), True
    pack = memoryview(_pack(500))
    rig.run(lambda fx: rig.engine.send(*numbers, is_persistent, pack, 1000, fx))
    (message,) = rig.consume(9)
    assert message.expires_at_ms == 1500
    rig.run(lambda fx: rig.engine.close_consumer(1, 9, 1000, fx))

    fx = rig.run(lambda fx: rig.engine.tick(2000, fx))

    assert [record.type for record in fx.records] == [RecordType.DISCARDED]
    assert rig.engine.state.queues["orders"].line.waiting_count == 0
    rig.start()
    assert rig.engine.state.waiting_bytes == 0


def test_a_message_that_its_listener_had_is_flagged_when_the_listener_closes():
    """The service has seen it: as if it had never been delivered would be a lie."""
    rig = EngineRig()
    rig.engine.open_session(1, 3, 0, "asynchronous")
    rig.send()
    rig.consume(9, session=3, listener="WORK")
    rig.run(lambda fx: rig.engine.listener_credit(1, 9, 1, rig.now_ms, fx))

    out = rig.engine.state.connections[1].consumers[9].out
    rig.engine.seen(1, 9, 0, [(one, one) for one in out])
    rig.run(lambda fx: rig.engine.close_consumer(1, 9, rig.now_ms, fx))

    assert rig.engine.state.queues["orders"].line.deliveries(rig.consume(10)[0]) == 1


def test_a_message_that_waited_for_its_listeners_service_is_not_flagged():
    """Nobody has seen it: the monitor knows what runs."""
    rig = EngineRig()
    rig.engine.open_session(1, 3, 0, "asynchronous")
    rig.send()
    rig.consume(9, session=3, listener="WORK")
    rig.run(lambda fx: rig.engine.listener_credit(1, 9, 1, rig.now_ms, fx))

    rig.run(lambda fx: rig.engine.close_consumer(1, 9, rig.now_ms, fx))

    assert rig.engine.state.queues["orders"].line.deliveries(rig.consume(10)[0]) == 0


def test_a_subscription_does_not_end_while_a_transaction_holds_its_messages():
    """Ended, it had a message that no record took away, and memory that nobody gave back."""
    rig = EngineRig()
    (message,) = (*rig.consume(9, "news", 2, durable="paper"), *delivered(rig.send(2)))
    rig.acknowledge(9, [message])
    rig.run(lambda fx: rig.engine.close_consumer(1, 9, rig.now_ms, fx))

    with pytest.raises(DurableNameInUse):
        rig.run(lambda fx: rig.engine.unsubscribe("news", "paper", rig.now_ms, fx))
    with pytest.raises(DurableNameInUse):
        rig.consume(10, "news", 1, durable="paper", selector="a = 1")

    rig.run(lambda fx: rig.engine.commit(1, 2, 1, 1, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.unsubscribe("news", "paper", rig.now_ms, fx))
    assert rig.engine.state.waiting_bytes == 0


def test_a_subscription_is_found_although_a_segment_told_of_it_before_the_old_one_ended():
    """A segment's dictionary stands before the records that it already knows of: after a boot the
    subscription got messages and was found by nobody, and another one was made beside it."""
    rig = EngineRig()
    rig.consume(9, "news", durable="paper")
    rig.run(lambda fx: rig.engine.close_consumer(1, 9, rig.now_ms, fx))
    at = len(rig.log)
    rig.consume(9, "news", durable="paper", selector="a = 1")
    known = rig.engine.dictionary()
    rig.log.insert(at, (known.type, b"".join(known.parts)))

    rig.start()
    rig.consume(9, "news", durable="paper", selector="a = 1")

    (subscription,) = rig.engine.state.topics["news"].subscriptions
    assert subscription.consumers


def test_a_topic_that_a_segment_told_of_before_the_old_one_ended_counts_alone():
    """The old one of its name could not be found any more, and its attributes held for ever."""
    rig = EngineRig()

    def administer(verb, **asked):
        asked["name"] = "prices"
        rig.run(lambda fx: rig.engine.administer(verb, asked, rig.now_ms, fx))

    administer("topic.create", redelivery_limit=3)
    at = len(rig.log)
    administer("topic.delete")
    administer("topic.create", redelivery_limit=7)
    known = rig.engine.dictionary()
    rig.log.insert(at, (known.type, b"".join(known.parts)))

    rig.start()

    space = rig.engine.state.space
    assert space.objects.nearest("prices") is space.topics["prices"]
    administer("topic.delete")
    assert space.objects.nearest("prices") is None


def test_a_transaction_without_persistent_messages_is_remembered_over_a_crash():
    """Else a client whose commit got no reply is told that it had no effect, and others saw it."""
    rig = EngineRig()
    rig.send(11, is_persistent=False)
    rig.run(lambda fx: rig.engine.commit(1, 2, 1, 1, rig.now_ms, fx))

    rig.start()

    assert rig.engine.state.memories.last_commit(77, 2) == 1


def test_places_with_equal_delays_are_served_in_the_order_in_which_they_came():
    """P3: the address of an object must not decide."""
    names = [f"q{n}" for n in range(40)]
    state = EngineRig().engine.state
    state.settings = EngineSettings(
        destinations=tuple(DestinationSettings("queue", name) for name in names)
    )
    define_destinations(state)
    wanted = random.Random(5).sample(names, len(names))

    for name in wanted:
        state.wake_at(1000, state.queues[name])

    assert [place.name for _, _, place in sorted(state.due)] == wanted


def test_a_lost_listener_counts_as_before():
    """A lost consumer is no failed attempt, listener or not."""
    rig = EngineRig()
    rig.engine.open_session(1, 3, 0, "asynchronous")
    rig.send()
    rig.consume(9, session=3, listener="WORK")
    rig.run(lambda fx: rig.engine.listener_credit(1, 9, 1, rig.now_ms, fx))
    out = rig.engine.state.connections[1].consumers[9].out
    rig.engine.seen(1, 9, 0, [(one, one) for one in out])
    rig.run(lambda fx: rig.engine.close_connection(1, rig.now_ms, fx))
    line = rig.engine.state.queues["orders"].line
    (message,) = line.in_order()
    assert (line.deliveries(message), line.attempts(message)) == (1, 0)


# ---- what is on its way out


class _Outlet:
    def __init__(self):
        self.sent = []

    def put(self, items):
        self.sent += [peer for peer, _ in items]


def test_what_needs_no_record_does_not_overtake_what_waits_for_one():
    """Messages of one producer arrived in the wrong order."""
    releases = EffectRelease()
    releases.peers.update({1: "one", 2: "two"})
    releases.outlet = _Outlet()
    for connection, must_wait in ((1, True), (1, False), (2, False)):
        fx = Effects()
        fx.out.append(Reply(connection, 5))
        fx.must_wait = must_wait
        releases.add(fx, last_lsn=10)

    releases.release(9)
    assert releases.outlet.sent == ["two"]

    releases.release(10)
    assert releases.outlet.sent == ["two", "one", "one"]
    fx = Effects()
    fx.out.append(Deliver(1, 1, 0, [], None))
    releases.add(fx, last_lsn=11)
    releases.release(10)
    assert releases.outlet.sent[3:] == ["one"]


# ---- the client's link


def test_a_pack_that_waits_for_room_when_the_connection_is_lost_is_sent_behind_the_rest():
    """Failing the frames of a transaction made room; what used it broke the link."""
    link = new_link()
    transacted = Sender(link, 9, hms.Queue("q"), lambda: 0.0, is_transacted=True)
    plain = Sender(link, 8, hms.Queue("q"), lambda: 0.0, is_transacted=False)
    for sender in (transacted, transacted, plain, plain):
        pending = PendingSend(1, [], SendOptions())
        sender.add(hms.Message(b"x").encode(), pending, is_persistent=True)
        sender.push()
    assert plain.has_pack

    link.lose(LOST, is_final=False)
    up(link)

    assert not plain.has_pack
    assert len(sent_frames(link, Kind.SEND)) == 2  # what was on its way, and behind it what waited


# ---- the log


def _journal(disk):
    journal = Journal.open(Path("/store"), segment_bytes=4096, node_uid=7, disk=disk)
    found = [bytes(payload) for _, kind, _, payload, _ in journal.recover() if kind == 3]
    journal.start(lambda: (11, 1, (b"dictionary",)))
    return journal, found


def test_a_batch_whose_sync_failed_is_safe_once_a_boot_has_read_it():
    """The system shows it as clean and never writes it: after the next power cut the log had a
    hole, and the node refused to boot."""
    disk = SimDisk(random.Random(1))
    journal, _ = _journal(disk)
    journal.append(3, 1, (bytes(2000),))

    def refuse(call, _inode):
        if call == "fdatasync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.before = refuse
    with pytest.raises(hms.HmsError):
        journal.commit()
    disk.before = lambda _call, _inode: None
    disk.fail(is_power=False)
    disk.start()
    journal, read = _journal(disk)
    journal.append(3, 1, (b"later",))
    journal.commit()
    disk.fail(is_power=True)
    disk.start()

    assert _journal(disk)[1] == [*read, b"later"]
    assert read == [bytes(2000)]


def test_what_a_commit_brought_is_not_seen_before_the_commit_is_safe():
    """A message that is in memory only was delivered, then the commit was lost with the power and
    its client told that all of it was rolled back."""
    rig = EngineRig()
    rig.send(producer=11, is_persistent=False)
    rig.run(lambda fx: rig.engine.commit(1, 2, 9, 1, rig.now_ms, fx))

    kind = ConsumerRequest(5, 1, "queue", "orders", 10)
    fx = rig.run(lambda fx: rig.engine.open_consumer(1, kind, 1, rig.now_ms, fx))
    assert len(delivered(fx)) == 1
    assert fx.must_wait


def test_an_id_that_was_reserved_just_now_is_not_seen_before_that_is_safe():
    """A consumer had a message in memory only, the power failed, and another got the same id."""
    rig = EngineRig()
    ids = rig.engine.state.ids
    request = ConsumerRequest(5, 1, "queue", "orders", 10)
    rig.send(is_persistent=False)
    fx = rig.run(lambda fx: rig.engine.open_consumer(1, request, 1, rig.now_ms, fx))
    assert (len(delivered(fx)), fx.must_wait) == (1, False)

    rig.run(lambda fx: rig.engine.close_consumer(1, 5, rig.now_ms, fx))
    rig.run(lambda fx: rig.engine.tick(rig.now_ms, fx))
    ids.next_id = ids.reserved_below - 1
    sent = rig.send(is_persistent=False, count=2)
    assert [record.type for record in sent.records] == [RecordType.RESERVED]
    request = ConsumerRequest(6, 1, "queue", "orders", 10)
    fx = rig.run(lambda fx: rig.engine.open_consumer(1, request, 1, rig.now_ms, fx))
    assert (len(delivered(fx)), fx.must_wait) == (3, True)
