"""A commit of very much: one record, and many holds of the engine's lock.

Counted: messages for each hold, never time (P8).
"""

import random
from dataclasses import replace

import pytest

from hms.engine.messages import OF_COMMIT
from hms.engine.queue import queue_send, settled_rest
from hms.engine.queue.pending_list import PendingList
from hms.engine.session import receipts, transactions
from hms.engine.session.receipts import Received
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.engine.topic import asking, publication, publication_run
from hms.engine.xa import branch_commands
from hms.errors.catalogue import NodeFull, TransactionTooLong
from hms.records import RecordType
from hms.server.broker import INTERNAL, TICK, Lost
from hms.wire import branch_requests as tx
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Action, Envelope, Kind, SendHead, Settlement
from hms.wire.packed_messages import FLAG_RETAIN, ROW, pack_messages
from tests.sim.judge import wrong_totals
from tests.support import largest
from tests.support.counted import Counted
from tests.support.memory import MemoryNode, MemoryStore
from tests.support.memory_peer import Peer

SLICE, MANY = 20, 300
EVERYTHING = [(0, (1 << 64) - 1)]
SETTINGS = EngineSettings(
    redelivery_limit=-1,
    destinations=(
        *(DestinationSettings("queue", name) for name in ("work", "other")),
        DestinationSettings("topic", "news"),
    ),
)


class Watched(MemoryNode):
    """Its own lock, that knows how many messages were touched under each hold."""

    def __init__(self, store=None, settings=SETTINGS):
        super().__init__(settings, store)
        self.touched, self.most = 0, 0
        self.broker._lock = self

    def __enter__(self):
        self.touched = 0

    def __exit__(self, *_):
        self.most = max(self.most, self.touched)

    def tick(self):
        """Until nothing is left for ticks."""
        while self.engine.is_behind:
            self.broker.handle(INTERNAL, [TICK])
        self.step()


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(receipts, "READIED_AT_ONCE", SLICE)
    monkeypatch.setattr(transactions, "READIED_AT_ONCE", SLICE)
    monkeypatch.setattr(branch_commands, "READIED_AT_ONCE", SLICE)
    for module in (settled_rest, transactions):
        monkeypatch.setattr(module, "FORGOTTEN_AT_ONCE", SLICE)
    node = Watched()
    for owner, name in ((PendingList, "forget_settled"), (Received, "take")):
        monkeypatch.setattr(owner, name, _counting(getattr(owner, name), node))
    make = queue_send.make_messages

    def counting(rows, *more):
        node.touched += len(rows)
        return make(rows, *more)

    for module in (queue_send, publication):
        monkeypatch.setattr(module, "make_messages", counting)
    return node


def _counting(method, node):
    def counting(self, messages, *more):
        node.touched += len(messages)
        return method(self, messages, *more)

    return counting


@pytest.fixture
def peer(node):
    return Peer(node, 1)


def send(peer, queue, count, producer):
    """Persistent messages."""
    peer.request(wire.OpenProducer(producer, 1, "queue", queue))
    head = SendHead(producer, count, 1, is_persistent=True)
    peer.ask(Kind.SEND, frames.encode_send(head, largest.pack(count, text="t")))


def receive(node, peer, places=("work", "other")):
    """A transaction that has received so many of each, every second one of each in turn."""
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    for handle, queue in enumerate(places, 7):
        send(peer, queue, MANY, 100 + handle)
        peer.request(wire.OpenConsumer(handle, 9, "queue", queue, MANY))
    node.tick()
    node.outlet.take(peer.name)
    for handle in range(7, 7 + len(places)):
        every = [Settlement(Action.ACKNOWLEDGE, handle, 0, 0, EVERYTHING)]
        peer.ask(Kind.SETTLE, frames.encode_settle(every))
    assert [line_of(node, queue).out_count for queue in places] == [MANY] * len(places)
    node.most = 0


def line_of(node, queue="work"):
    return node.engine.state.queues[queue].line


def test_a_commit_is_one_record_and_no_hold_touches_all_of_it(node, peer):
    """500,000 receipts, about as many as a transaction may have, were 2.1 s under one hold."""
    receive(node, peer)
    before = len(node.store.records)

    assert peer.request(wire.Commit(9, 1)) is True
    node.tick()

    kinds = [kind for kind, _, _ in node.store.records[before:]]
    assert kinds.count(RecordType.GROUP) == 1
    assert RecordType.ACKNOWLEDGED not in kinds
    assert node.most <= 2 * SLICE  # the command itself readies the last ones
    for queue in ("work", "other"):
        assert line_of(node, queue).counters.acknowledged == MANY
        assert line_of(node, queue).out_count == line_of(node, queue).size_bytes == 0
    assert node.engine.state.waiting_bytes == 0
    assert node.engine.live_bytes() == 0


def test_all_counts_are_right_as_soon_as_the_commit_is_answered(node, peer):
    """Else a limit would refuse what follows, and a queue could not be deleted."""
    peer.request(wire.Administer("queue.create", {"name": "mine"}))
    receive(node, peer, ["mine"])
    peer.request(wire.Commit(9, 1))

    assert node.engine.state.settled_rest
    assert (line_of(node, "mine").out_count, line_of(node, "mine").size_bytes) == (0, 0)
    assert node.engine.state.waiting_bytes == 0
    peer.request(wire.CloseSession(9))
    peer.request(wire.CloseProducer(107))
    peer.request(wire.Administer("queue.delete", {"name": "mine"}))
    assert "mine" not in node.engine.state.queues
    node.tick()
    assert node.engine.live_bytes() == 0


def test_what_was_made_ready_for_a_commit_that_never_comes_is_given_back(node, peer):
    """A connection that ends in between is one that ended before it."""
    receive(node, peer)
    asked = wire.encode(wire.Commit(9, 1))
    items = [(Envelope(Kind.REQUEST, 1, 1, len(asked)), asked)]
    for _ in range(3):
        node.broker.turn(peer.name, items)
    assert items
    node.broker.handle(peer.name, [Lost("gone")])
    node.tick()

    assert line_of(node).waiting_count == line_of(node, "other").waiting_count == MANY
    assert line_of(node).counters.acknowledged == 0


def test_what_the_log_says_has_left_is_never_told_again(node, peer):
    """Cleaning that moved such a message would bring it back at the next boot."""
    receive(node, peer)
    state = node.engine.state
    peer.request(wire.Commit(9, 1))
    node.broker.handle(INTERNAL, [TICK])
    assert state.settled_rest
    newest = len(node.store.records)

    while found := node.engine.next_to_move(newest):
        bodies = [(message, message.payload) for message in found]
        node.broker.command(lambda fx, now, b=bodies: node.engine.move(newest, b, now, fx))

    assert RecordType.MOVED not in [kind for kind, _, _ in node.store.records]
    node.tick()
    assert not state.settled_rest
    again = Watched(MemoryStore(node.store.records))
    assert [line_of(again, queue).waiting_count for queue in ("work", "other")] == [0, 0]


def test_what_the_log_says_has_left_is_never_pinned(node, peer):
    """A pinned segment that named such a message would bring it back, too."""
    receive(node, peer)
    state = node.engine.state
    peer.request(wire.Commit(9, 1))
    node.broker.handle(INTERNAL, [TICK])
    assert state.settled_rest
    before = len(node.store.records)

    for segment in range(1, before + 1):
        blocks = node.engine.blocks_in(segment)
        if blocks:
            node.broker.command(lambda fx, _, s=segment, b=blocks: node.engine.pin(s, 0, b, fx))

    assert RecordType.PINNED not in [kind for kind, _, _ in node.store.records[before:]]


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_crash_between_two_slices_leaves_all_or_nothing(node, peer, is_committed):
    """Before the record nothing was received, behind it everything."""
    receive(node, peer)
    asked = wire.encode(wire.Commit(9, 1))
    items = [(Envelope(Kind.REQUEST, 1, 1, len(asked)), asked)]
    while items:
        records = list(node.store.records)
        node.broker.turn(peer.name, items)
    if is_committed:
        records = node.store.records

    again = Watched(MemoryStore(records))

    left = 0 if is_committed else MANY
    assert [line_of(again, queue).waiting_count for queue in ("work", "other")] == [left, left]


def test_the_rest_is_done_behind_what_waits_now(node, peer):
    """Each slice of what is left to ticks waited up to a second for the node's next look."""
    ticks = []
    node.broker.begin(replace(node.broker.around, go_on=lambda: ticks.append(TICK)))
    receive(node, peer, ["work"])
    peer.request(wire.Commit(9, 1))
    ticks.clear()
    node.broker.handle(INTERNAL, [TICK])

    assert ticks == [TICK]


XA_SUCCESS = 0x04000000
XID = bytes([0, 0, 0, 1, 1, 1]) + b"gb"


def in_branch(node, peer, queue="work"):
    """A branch that has received and sent very much, and waits for its end."""
    peer.request(wire.OpenSession(9, 0, is_xa=True))
    peer.request(tx.XaStart(9, XID))
    send(peer, queue, MANY, 107)
    peer.request(wire.OpenConsumer(7, 9, "queue", queue, MANY))
    node.tick()
    node.outlet.take(peer.name)
    peer.ask(
        Kind.SETTLE, frames.encode_settle([Settlement(Action.ACKNOWLEDGE, 7, 0, 0, EVERYTHING)])
    )
    send_in(peer, 9, "other", 120)
    peer.request(tx.XaEnd(9, XID, XA_SUCCESS))
    node.most = 0


def send_in(peer, session, queue, producer):
    """Batches of ten in a transaction."""
    peer.request(wire.OpenProducer(producer, session, "queue", queue))
    for first in range(1, MANY, 10):
        head = SendHead(producer, 10, first, is_persistent=True)
        peer.ask(Kind.SEND, frames.encode_send(head, largest.pack(10, text="t")))


def test_no_hold_of_a_commit_makes_all_that_was_sent_in_it(node, peer):
    """100,000 messages, sent in a transaction, were read and made under one hold: 0.12 s."""
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    send_in(peer, 9, "other", 120)
    node.most = 0
    before = len(node.store.records)

    assert peer.request(wire.Commit(9, 1)) is True

    assert [kind for kind, _, _ in node.store.records[before:]] == [RecordType.GROUP]
    assert node.most <= 2 * SLICE
    messages = list(line_of(node, "other").in_order())
    assert [m.seq for m in messages] == list(range(messages[0].seq, messages[0].seq + MANY))
    again = Watched(MemoryStore(node.store.records))
    found = list(line_of(again, "other").in_order())
    assert [(m.id, m.seq, m.payload) for m in found] == [(m.id, m.seq, m.payload) for m in messages]


@pytest.mark.parametrize("is_one_phase", [False, True])
def test_no_hold_of_a_branch_touches_all_of_it(node, peer, is_one_phase):
    """A vote about 100,000 receipts was 27 ms, and the commit of as many messages 125 ms."""
    in_branch(node, peer)
    if not is_one_phase:
        assert peer.request(tx.XaPrepare(XID))["code"] == 0
    assert peer.request(tx.XaCommit(XID, is_one_phase=is_one_phase))["code"] == 0
    node.tick()

    assert node.most <= 2 * SLICE
    for one in (node, Watched(MemoryStore(node.store.records))):
        assert line_of(one).out_count == line_of(one).waiting_count == 0
        assert line_of(one, "other").waiting_count == MANY


def test_no_hold_of_an_operators_commit_touches_all_of_it(node, peer):
    """Nor is anything kept ready for an operator who is gone."""
    in_branch(node, peer)
    assert peer.request(tx.XaPrepare(XID))["code"] == 0
    work = node.engine.state.branches.by_xid[XID].work
    asked = wire.encode(wire.Administer("transaction.commit", {"xid": XID.hex()}))
    items = [(Envelope(Kind.REQUEST, 1, 1, len(asked)), asked)]
    other = Peer(node, 2)
    while not work.ready_count:
        node.broker.turn(other.name, items)
    node.broker.handle(other.name, [Lost("gone")])
    assert not work.ready_count
    node.most = 0

    Peer(node, 3).request(wire.Administer("transaction.commit", {"xid": XID.hex()}))
    node.tick()

    assert node.most <= 2 * SLICE
    for one in (node, Watched(MemoryStore(node.store.records))):
        assert line_of(one).out_count == line_of(one).waiting_count == 0
        assert line_of(one, "other").waiting_count == MANY


def test_a_branch_that_was_made_ready_and_is_not_committed_is_as_it_was(node, peer):
    """Else a client could have each of its branches in memory twice."""
    in_branch(node, peer)
    branch = node.engine.state.branches.by_xid[XID]

    assert peer.request(tx.XaCommit(XID))["code"] < 0  # it has not voted

    assert all(batch.made is None and batch.incoming is None for batch in branch.work.sends)
    assert peer.request(tx.XaRollback(XID))["code"] == 0
    node.tick()
    assert line_of(node).waiting_count == MANY
    assert line_of(node, "other").waiting_count == 0


def mixed(at_once, monkeypatch):
    """A node after the commit of frames of many kinds, and what it was given."""
    for module in (receipts, transactions):
        monkeypatch.setattr(module, "READIED_AT_ONCE", at_once)
    node = Watched()
    peer = Peer(node, 1)
    rng = random.Random(7)
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    peer.request(wire.OpenConsumer(70, 1, "queue", "other", 5, selector="JMSPriority > 4"))
    places = [("queue", "work"), ("queue", "other"), ("topic", "news")]
    for handle, (kind, name) in enumerate(places, 20):
        peer.request(wire.OpenProducer(handle, 9, kind, name))
    firsts = dict.fromkeys(range(20, 23), 1)
    for _ in range(120):
        handle = rng.choice((20, 20, 20, 21, 22))
        count = rng.choice((1, 1, 3, 40))
        ttl_ms, delay_ms = rng.choice(((0, 0), (0, 0), (60_000, 0), (0, 500)))
        rows = [
            (ROW.pack(0, 2, ttl_ms, delay_ms, rng.choice((4, 7)), 0, 0, 0), b"", b"%02d" % n)
            for n in range(count)
        ]
        head = SendHead(handle, count, firsts[handle], is_persistent=rng.random() < 0.9)
        firsts[handle] += count
        peer.ask(Kind.SEND, frames.encode_send(head, pack_messages(rows)))
    before = len(node.store.records)
    peer.request(wire.Commit(9, 1))
    node.tick()
    return node, node.store.records[before:]


def test_what_is_made_ready_before_a_commit_gives_the_same_log(monkeypatch):
    """Byte for byte (P3), whatever slices there were, and the same queues."""
    (ready, records), (other, expected) = mixed(SLICE, monkeypatch), mixed(1 << 20, monkeypatch)

    assert records == expected
    assert len(records) > 1
    found = []
    for one in (ready, other, Watched(MemoryStore(ready.store.records))):
        assert not list(wrong_totals(one.engine.state))
        messages = [line_of(one, name).everything() for name in ("work", "other")]
        found.append([[(m.id, m.seq, m.payload) for m in line] for line in messages])
    assert found[0] == found[1]
    kept = [m for m in line_of(ready).everything() if m.is_persistent]
    assert found[2][0] == [(m.id, m.seq, m.payload) for m in kept]
    assert len(kept) > MANY


def test_what_was_made_ready_for_a_queue_that_is_gone_becomes_dead_letters(node, peer):
    """A branch that has voted keeps its promise, wherever its messages have to go (P9)."""
    peer.request(wire.Administer("queue.create", {"name": "mine"}))
    peer.request(wire.OpenSession(9, 0, is_xa=True))
    peer.request(tx.XaStart(9, XID))
    send_in(peer, 9, "mine", 120)
    peer.request(tx.XaEnd(9, XID, XA_SUCCESS))
    assert peer.request(tx.XaPrepare(XID))["code"] == 0
    peer.request(wire.CloseProducer(120))
    asked = wire.encode(tx.XaCommit(XID))
    items = [(Envelope(Kind.REQUEST, 1, 1, len(asked)), asked)]
    while not node.engine.state.branches.by_xid[XID].work.ready_count:
        node.broker.turn(peer.name, items)
    assert any(batch.run for batch in node.engine.state.branches.by_xid[XID].work.sends)
    node.engine.state.queues["mine"].control.end()  # as where a configuration has it no more
    node.broker.handle(peer.name, items)

    assert line_of(node, "HMS.DLQ").waiting_count == MANY
    again = Watched(MemoryStore(node.store.records))
    assert line_of(again, "HMS.DLQ").waiting_count == MANY
    assert line_of(again, "mine").waiting_count == 0


def test_a_transaction_may_send_so_many_batches_and_no_more(node, peer, monkeypatch):
    """A commit puts all of them into their places under one hold: 131,000 frames of one message
    took 0.11 s, 40,000 to a topic 1.4 s."""
    monkeypatch.setattr(queue_send, "STEPS_MAX", 5 * (queue_send.BATCH_STEPS + 2))
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    peer.request(wire.OpenProducer(900, 9, "queue", "work"))
    errors = []
    for first in range(1, 8):
        head = SendHead(900, 1, first, is_persistent=first % 2 > 0)
        answers = node.send(peer.name, Kind.SEND, frames.encode_send(head, largest.pack(1)))
        errors += [wire.decode_error(data) for e, data in answers if e.kind is Kind.ERROR]

    assert [type(error) for error in errors] == [TransactionTooLong] * 2
    assert errors[0].fields["count"] == 6
    assert peer.request(wire.Commit(9, 1)) is True
    assert line_of(node).waiting_count == 5
    node.send(peer.name, Kind.SEND, frames.encode_send(head, largest.pack(1)))
    assert peer.request(wire.Commit(9, 2)) is True
    assert line_of(node).waiting_count == 6


@pytest.mark.parametrize("is_persistent", [True, False])
def test_frames_to_a_queue_are_put_there_together_whatever_they_outlive(
    node, peer, monkeypatch, is_persistent
):
    """Those that the log is not told of took 2.5 µs each, three times what others did."""
    monkeypatch.setattr(transactions, "READIED_AT_ONCE", 200)
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    peer.request(wire.OpenProducer(900, 9, "queue", "work"))
    for first in range(1, 51):
        head = SendHead(900, 1, first, is_persistent=is_persistent)
        peer.ask(Kind.SEND, frames.encode_send(head, largest.pack(1, n=first)))
    added, add = [], PendingList.add
    monkeypatch.setattr(
        PendingList, "add", lambda self, *more: added.append(len(more[0])) or add(self, *more)
    )
    assert peer.request(wire.Commit(9, 1)) is True

    assert added == [23, 23, 1, 1, 1, 1]
    assert [m.head().properties["n"] for m in line_of(node).in_order()] == list(range(1, 51))
    assert {m.slot == OF_COMMIT for m in line_of(node).in_order()} == {not is_persistent}
    assert (node.engine.live_bytes() > 0) is is_persistent


def test_many_publications_of_a_commit_reach_their_subscriptions_in_slices(node, peer, monkeypatch):
    """Each of 1,800 was put into each subscription under the commit's hold."""
    monkeypatch.setattr(transactions, "SPREAD_BATCHES", 3)
    for name in ("one", "two"):
        peer.request(wire.OpenConsumer(7, 1, "topic", "news", 0, durable=name))
        peer.request(wire.CloseConsumer(7))
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    peer.request(wire.OpenProducer(900, 9, "topic", "news"))
    for first in range(1, 11):
        head = SendHead(900, 1, first, is_persistent=True)
        peer.ask(Kind.SEND, frames.encode_send(head, largest.pack(1, n=first)))
    assert peer.request(wire.Commit(9, 1)) is True
    places = list(node.engine.state.space.subscriptions.values())
    assert [place.line.waiting_count for place in places] == [0, 0]
    again = Watched(node.store)
    node.tick()

    for engine in (node.engine, again.engine):
        for place in engine.state.space.subscriptions.values():
            numbers = [m.head().properties["n"] for m in place.line.in_order()]
            assert numbers == list(range(1, 11))


class Publisher:
    """Publishes in a transaction; its commit is done turn by turn."""

    def __init__(self, count, is_persistent=True, node=None):
        self.node = node or Watched()
        self.peer = Peer(self.node, 1)
        self.peer.request(wire.OpenSession(9, 0, is_transacted=True))
        self.peer.request(wire.OpenProducer(900, 9, "topic", "news"))
        self.subscribe("before")
        self.publish(count, is_persistent)
        asked = wire.encode(wire.Commit(9, 1))
        self.items = [(Envelope(Kind.REQUEST, 7, 1, len(asked)), asked)]

    def publish(self, count, is_persistent=True, flags=0):
        for first in range(1, count + 1):
            head = SendHead(900, 1, first, is_persistent=is_persistent)
            property_head = largest.encode_head(largest.Head({"n": first}))
            row = ROW.pack(len(property_head), 0, 0, 0, 4, 0, flags, 0)
            self.peer.ask(Kind.SEND, frames.encode_send(head, row + property_head))

    def subscribe(self, name, peer=None, **options):
        peer = peer or self.peer
        peer.request(wire.OpenConsumer(7, 1, "topic", "news", 0, durable=name, **options))
        peer.request(wire.CloseConsumer(7))

    def turn(self):
        self.node.broker.turn(self.peer.name, self.items)

    def commit(self):
        while self.items:
            self.turn()
        self.node.step()
        self.node.tick()
        answers = [e for e in self.node.outlet.take(self.peer.name) if e[0].correlation == 7]
        return answers[0]

    def received(self, node=None):
        """By subscription, the numbers that wait there."""
        places = (node or self.node).engine.state.space.subscriptions.values()
        return {
            place.name: [m.head().properties["n"] for m in place.line.in_order()]
            for place in places
        }


@pytest.fixture
def small(monkeypatch):
    """Slices of a few publications."""
    monkeypatch.setattr(transactions, "SPREAD_BATCHES", 3)
    for module in (asking, publication_run):
        monkeypatch.setattr(module, "LOOK_STEPS", 1000)


def _calls(count, *, is_persistent=True, flags=0):
    one = Publisher(0, node=MemoryNode(SETTINGS))
    one.publish(1, flags=flags)  # the first one that is retained makes its place
    one.peer.request(wire.Commit(9, 1))
    one.publish(count, is_persistent, flags)
    one.node.broker._lock = holds = Counted()
    assert one.peer.request(wire.Commit(9, 2)) is True
    return holds.most


@pytest.mark.parametrize("is_persistent", [True, False])
def test_a_commit_takes_few_calls_for_each_of_many_publications(is_persistent):
    """4,500 of them were 105 ms under one hold, 220 ms to ten durable subscriptions."""
    few, many = (_calls(count, is_persistent=is_persistent) for count in (1000, 2000))

    assert many - few <= 1000 * 6


def test_what_a_commit_retains_takes_no_more_than_it_is_counted():
    """2,000 were 100 ms."""
    few, many = (_calls(count, flags=FLAG_RETAIN) for count in (400, 800))

    assert many - few <= 400 * 80


def test_who_subscribes_while_a_commit_is_made_ready_gets_all_of_it_or_nothing(small):
    """As the commit finds them, not as its slices did; the log says the same."""
    one = Publisher(40)
    other = Peer(one.node, 2)
    one.subscribe("ends", other)
    for _ in range(2):
        one.turn()
    one.subscribe("comes", other, selector="n > 20")
    other.request(wire.Unsubscribe("news", "ends"))
    assert one.items
    one.commit()

    expected = {"before": list(range(1, 41)), "comes": list(range(21, 41))}
    assert one.received() == expected
    again = Watched(MemoryStore(one.node.store.records))
    assert one.received(again) == expected
    assert not list(wrong_totals(one.node.engine.state))


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_crash_while_publications_are_made_ready_leaves_all_or_nothing(small, is_committed):
    one = Publisher(40)
    while one.items:
        records = list(one.node.store.records)
        one.turn()
    records = one.node.store.records if is_committed else records

    again = Watched(MemoryStore(records))
    assert one.received(again) == {"before": list(range(1, 41)) if is_committed else []}


def test_a_commit_ends_though_somebody_subscribes_between_all_of_its_slices(small):
    """Each made it begin anew: for half a second who subscribes waits for it, then it goes on."""
    one = Publisher(200)
    other = Peer(one.node, 2)
    turns = waited = 0
    rest = []
    while one.items:
        assert turns < 500
        turns += 1
        one.turn()
        if not rest:
            request = wire.encode(wire.OpenConsumer(100 + turns, 1, "topic", "news", 0))
            rest = [(Envelope(Kind.REQUEST, turns, 1, len(request)), request)]
        one.node.broker.turn(other.name, rest)
        waited += bool(rest)
    assert waited > 0
    while rest:
        one.node.broker.turn(other.name, rest)
    one.node.tick()

    assert one.received()["before"] == list(range(1, 201))
    assert one.node.engine.state.space.still is None


def test_a_commit_that_is_not_made_holds_nobody_up_for_long(small):
    """Its client is gone, or asks for something else."""
    one = Publisher(40)
    state, other = one.node.engine.state, Peer(one.node, 2)
    state.space.hold_still(state.connections[1].sessions[9].work, one.node.now_ms)
    request = wire.encode(wire.OpenConsumer(7, 1, "topic", "news", 0))
    items = [(Envelope(Kind.REQUEST, 1, 1, len(request)), request)]
    one.node.broker.turn(other.name, items)
    assert items
    one.node.now_ms += 500
    one.node.broker.turn(other.name, items)

    assert not items


def test_a_commit_that_more_get_than_memory_has_room_for_is_refused_and_stays_open(small):
    """4,500 publications went to 10,000 who had subscribed since, and so came 45,000,000 times."""
    one = Publisher(40, node=Watched(settings=replace(SETTINGS, memory_bytes_max=100_000)))
    for name in map(str, range(20)):
        one.subscribe(name)
    waiting = one.node.engine.state.waiting_bytes
    envelope, data = one.commit()

    assert envelope.kind is Kind.ERROR
    assert isinstance(wire.decode_error(data), NodeFull)
    assert one.node.engine.state.waiting_bytes == waiting
    for name in map(str, range(20)):
        one.peer.request(wire.Unsubscribe("news", name))
    assert one.peer.request(wire.Commit(9, 1)) is True
    one.node.tick()
    assert one.received() == {"before": list(range(1, 41))}


def test_a_commit_of_what_came_to_take_long_is_refused_and_stays_open(small, monkeypatch):
    """Somebody subscribed with a queue, into which each publication is put by itself."""
    monkeypatch.setattr(queue_send, "STEPS_MAX", 20 * queue_send.PUBLICATION_STEPS)
    one = Publisher(40)
    asked = {"topic": "news", "name": "into", "queue": "work"}
    one.peer.request(wire.Administer("subscription.create", asked))
    envelope, data = one.commit()

    assert envelope.kind is Kind.ERROR
    assert isinstance(wire.decode_error(data), TransactionTooLong)
    one.peer.request(wire.Rollback(9))
    one.publish(10)
    assert one.peer.request(wire.Commit(9, 1)) is True
    assert line_of(one.node).waiting_count == 10


def test_a_commit_that_waited_for_room_is_made_ready_in_slices(node, peer):
    """It went under the hold of the tick that found room: 54,000 frames of one message were 0.48 s,
    38,000 publications 0.86 s."""
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    send_in(peer, 9, "other", 120)
    asked = {"name": "other", "what": "PRODUCTION"}
    peer.request(wire.Administer("queue.pause", asked))
    assert peer.request(wire.Commit(9, 1)) is None
    line = node.engine.state.blocked.lines["queue", "other"]
    assert all(batch.made is None for batch in line[0].work.sends)
    node.most = 0

    peer.request(wire.Administer("queue.resume", asked))
    node.tick()

    assert not node.engine.state.blocked.lines
    assert line_of(node, "other").waiting_count == MANY
    assert node.most <= 2 * SLICE


def test_what_was_made_ready_while_a_commit_waited_is_let_go_of_when_it_waits_on(node, peer):
    """Else each that waits would be in memory twice."""
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    send_in(peer, 9, "other", 120)
    asked = {"name": "other", "what": "PRODUCTION"}
    peer.request(wire.Administer("queue.pause", asked))
    peer.request(wire.Commit(9, 1))
    work = node.engine.state.blocked.lines["queue", "other"][0].work
    peer.request(wire.Administer("queue.resume", asked))
    assert work.ready_count
    peer.request(wire.Administer("queue.pause", asked))
    node.tick()

    assert not work.ready_count
    assert all(batch.made is batch.run is None for batch in work.sends)
    peer.request(wire.Administer("queue.resume", asked))
    node.tick()
    assert line_of(node, "other").waiting_count == MANY


def test_no_hold_of_a_decision_makes_what_all_its_branches_sent(node, peer):
    """Each of 400 branches left less than a slice to the command: together 0.39 s."""
    gtrid = b"gggg"
    xids = [bytes([0, 0, 0, 1, 4, 1]) + gtrid + bytes([n]) for n in range(30)]
    for n, xid in enumerate(xids):
        peer.request(wire.OpenSession(20 + n, 0, is_xa=True))
        peer.request(tx.XaStart(20 + n, xid))
        peer.request(wire.OpenProducer(200 + n, 20 + n, "queue", "other"))
        head = SendHead(200 + n, 5, 1, is_persistent=True)
        peer.ask(Kind.SEND, frames.encode_send(head, largest.pack(5, text="t")))
        peer.request(tx.XaEnd(20 + n, xid, XA_SUCCESS))
    peer.request(tx.BeginGlobal(gtrid))
    node.most = 0

    assert peer.request(tx.Decide(gtrid, b"", xids))["at_ms"]

    assert line_of(node, "other").waiting_count == 150
    assert node.most <= 2 * SLICE


def test_a_decision_commits_so_many_batches_of_all_its_branches_and_no_more(
    node, peer, monkeypatch
):
    """Each branch may have as much as one commit may: 40 of them would be two seconds."""
    monkeypatch.setattr(queue_send, "STEPS_MAX", 100 * (queue_send.BATCH_STEPS + 2))
    gtrid = b"gggg"
    xids = [bytes([0, 0, 0, 1, 4, 1]) + gtrid + bytes([n]) for n in range(2)]
    for n, xid in enumerate(xids):
        peer.request(wire.OpenSession(20 + n, 0, is_xa=True))
        peer.request(tx.XaStart(20 + n, xid))
        peer.request(wire.OpenProducer(200 + n, 20 + n, "queue", "other"))
        for first in range(1, 61):
            head = SendHead(200 + n, 1, first, is_persistent=True)
            peer.ask(Kind.SEND, frames.encode_send(head, largest.pack(1)))
        peer.request(tx.XaEnd(20 + n, xid, XA_SUCCESS))
    peer.request(tx.BeginGlobal(gtrid))
    request = wire.encode(tx.Decide(gtrid, b"", xids))
    answers = node.send(peer.name, Kind.REQUEST, request)

    (error,) = [wire.decode_error(data) for e, data in answers if e.kind is Kind.ERROR]
    assert isinstance(error, TransactionTooLong)
    assert error.fields["count"] == 120
    assert line_of(node, "other").waiting_count == 0
    assert peer.request(tx.XaCommit(xids[0], is_one_phase=True))["code"] == 0
    assert line_of(node, "other").waiting_count == 60
