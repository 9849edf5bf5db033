"""Operations that look at or discard very much take many holds of the engine's lock (P8)."""

import pytest

from hms.engine.admin import operation_slices, topic_operations
from hms.engine.effects import Effects
from hms.engine.queue import purge_slices
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.engine.xa import branch_commands
from hms.server.broker import INTERNAL, TICK
from hms.wire import branch_requests as tx
from hms.wire import structures as wire
from hms.wire.frames import Envelope, Kind, SendHead, encode_send
from hms.wire.packed_messages import FLAG_RETAIN, ROW, Head, encode_head
from tests.support import largest
from tests.support.memory import MemoryNode
from tests.support.memory_peer import Peer

TOPICS = 40
WALKED, PURGED = 10, 50
SETTINGS = EngineSettings(
    is_topics_open=True,
    destinations=(DestinationSettings("queue", "work"), DestinationSettings("topic", "news")),
)


class Node(MemoryNode):
    """Its own lock, that counts what waits, and what is retained, under each hold."""

    def __init__(self, store=None):
        super().__init__(SETTINGS, store=store)
        self.went = []

    def _here(self):
        state = self.engine.state
        return sum(place.line.waiting_count for place in state.every_place())

    def __enter__(self):
        self._before = self._here()

    def __exit__(self, *_):
        self.went.append(self._before - self._here())

    def operate(self, peer, verb, between=lambda: None, **arguments):
        """Its answer, and how many turns it took."""
        return self.request(peer, wire.Administer(verb, arguments), between)

    def request(self, peer, request, between=lambda: None):
        """The same, of any request."""
        payload = wire.encode(request)
        items, turns = [(Envelope(Kind.REQUEST, 1, 1, len(payload)), payload)], 0
        self.went.clear()
        while items:
            self.broker.turn(peer.name, items)
            turns += 1
            between()
        self.step()
        for envelope, data in self.outlet.take(peer.name):
            if envelope.kind is Kind.REPLY:
                return wire.decode_reply(data), turns
            if envelope.kind is Kind.ERROR:
                return wire.decode_error(data), turns
        return None, turns


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(operation_slices, "WALKED_AT_ONCE", WALKED)
    monkeypatch.setattr(purge_slices, "PURGED_AT_ONCE", PURGED)
    node = Node()
    node.broker._lock = node
    return node


@pytest.fixture
def peer(node):
    peer = Peer(node, 1)
    for n in range(TOPICS):
        peer.request(wire.OpenProducer(100 + n, 1, "topic", "", topic=f"r/{n}"))
        row = ROW.pack(0, 0, 0, 0, 4, 0, FLAG_RETAIN, 0)
        peer.ask(Kind.SEND, encode_send(SendHead(100 + n, 1, 1, is_persistent=True), row))
        peer.request(wire.CloseProducer(100 + n))
    return peer


def test_the_tree_is_shown_in_slices(node, peer):
    """90,000 topics held the lock for half a second."""
    rows, turns = node.operate(peer, "topic.tree", pattern="r/#")

    assert [row["topic"] for row in rows] == ["r", *(f"r/{n}" for n in range(TOPICS))]
    assert turns >= TOPICS // WALKED


def test_what_is_retained_is_cleared_in_slices_and_counted_as_one(node, peer):
    """And after a crash it is gone."""
    count, turns = node.operate(peer, "topic.clear_retained", pattern="#")

    assert count == TOPICS
    assert max(node.went) <= WALKED
    assert turns >= TOPICS // WALKED
    assert node.engine.state.space.retained.count == 0
    assert Node(store=node.store).engine.state.space.retained.count == 0


@pytest.mark.parametrize("verb", ["queue.purge", "topic.purge"])
def test_what_waits_is_purged_in_slices_and_counted_as_one(node, peer, verb):
    """300,000 messages held the lock for 0.1 s."""
    name = "work" if verb == "queue.purge" else "news"
    for durable in ("a", "b"):
        peer.request(wire.OpenConsumer(7, 1, "topic", "news", 0, durable=durable))
        peer.request(wire.CloseConsumer(7))
    largest.fill(peer, name, 220, kind=verb.partition(".")[0])

    count, turns = node.operate(peer, verb, name=name)

    assert count == (220 if name == "work" else 440)
    assert max(node.went) <= 2 * PURGED
    assert turns >= count // (2 * PURGED)
    again = Node(store=node.store).engine.state
    places = [*node.engine.state.every_place(), *again.every_place()]
    assert not [
        p.line.waiting_count for p in places if p.kind != "retained" and p.line.waiting_count
    ]


def test_what_comes_between_the_slices_is_purged_too(node, peer):
    """Whoever asks for it is told when nothing waits."""
    other = Peer(node, 2)
    producer = largest.fill(other, "work", 220)
    sent = [1]

    def send_more():
        if len(sent) < 4:
            other.ask(*largest.send(producer, 220 + len(sent), 1, largest.pack(1)))
            sent.append(1)

    count, _ = node.operate(peer, "queue.purge", send_more, name="work")

    assert count == 223
    assert node.engine.state.queues["work"].line.waiting_count == 0


def test_what_is_out_stays(node, peer):
    """A purge discards what waits."""
    largest.fill(peer, "work", 220)
    peer.request(wire.OpenConsumer(7, 1, "queue", "work", 30))

    count, _ = node.operate(peer, "queue.purge", name="work")

    assert count == 190
    assert node.engine.state.queues["work"].line.out_count == 30


def test_a_refusal_leaves_nothing_behind(node, peer):
    """The next operation of the connection begins anew."""
    error, turns = node.operate(peer, "queue.purge", name="nowhere")
    assert (type(error).__name__, turns) == ("DestinationNotFound", 1)
    assert not node.engine._progress

    assert node.operate(peer, "queue.purge", name="work") == (0, 1)
    assert not node.engine._progress


def test_an_operation_ends_with_its_connection(node, peer):
    """What was purged so far is gone, and nothing of it is kept."""
    largest.fill(peer, "work", 220)
    payload = wire.encode(wire.Administer("queue.purge", {"name": "work"}))
    node.broker.turn(peer.name, [(Envelope(Kind.REQUEST, 1, 1, len(payload)), payload)])
    assert node.engine._progress

    node.send(peer.name, Kind.GOODBYE, b"")

    assert not node.engine._progress
    assert node.engine.state.queues["work"].line.waiting_count == 170


WAITING = 220


def _queue(peer):
    peer.request(wire.Administer("queue.create", {"name": "mine"}))
    largest.fill(peer, "mine", WAITING)
    return wire.Administer("queue.delete", {"name": "mine", "force": True, "discard": True})


def _subscription(peer):
    peer.request(wire.OpenConsumer(7, 1, "topic", "news", 0, durable="d"))
    peer.request(wire.CloseConsumer(7))
    largest.fill(peer, "news", WAITING, kind="topic")


def _unsubscribe(peer):
    _subscription(peer)
    return wire.Unsubscribe("news", "d")


def _delete_subscription(peer):
    _subscription(peer)
    return wire.Administer("subscription.delete", {"name": "d"})


ENDINGS = [_queue, _unsubscribe, _delete_subscription]


def _replace(peer, selector="a = 1", handle=8):
    _subscription(peer)
    return wire.OpenConsumer(handle, 1, "topic", "news", 0, durable="d", selector=selector)


def test_a_durable_subscription_that_chooses_otherwise_takes_what_waits_with_it_in_slices(
    node, peer
):
    """200,000 messages of the one that it replaces were 72 ms under one hold."""
    asked = _replace(peer)
    answer, turns = node.request(peer, asked)

    assert answer is not None
    assert max(node.went) <= PURGED
    assert turns >= WAITING // PURGED
    assert _waiting(node) == 0
    for state in (node.engine.state, Node(store=node.store).engine.state):
        (made,) = [s for s in state.space.subscriptions.values() if s.is_durable]
        assert made.selector.text == "a = 1"
    assert not node.engine.state.endings


@pytest.mark.parametrize(
    "wrong", [{"selector": "a ="}, {"handle": 20}, {"selector": ""}], ids=["selector", "handle", ""]
)
def test_one_that_is_refused_or_chooses_the_same_discards_nothing(node, peer, wrong):
    """A slice comes before the command, so it looks for what the command will say."""
    peer.request(wire.OpenConsumer(20, 1, "queue", "work", 1))
    answer, _ = node.request(peer, _replace(peer, **wrong))

    assert (type(answer) is dict) is (wrong == {"selector": ""})
    assert _waiting(node) == WAITING
    assert not node.engine.state.endings


def _grouped(peer, queue, groups, count=WAITING):
    """So many messages of so many groups, in turn."""
    producer = next(largest._handles)
    peer.request(wire.OpenProducer(producer, 1, "queue", queue))
    heads = [encode_head(Head({"JMSXGroupID": f"g{n % groups}"})) for n in range(count)]
    rows = b"".join(ROW.pack(len(head), 0, 0, 0, 4, 0, 0, 0) for head in heads)
    head = SendHead(producer, count, 1, is_persistent=True)
    peer.ask(Kind.SEND, encode_send(head, rows + b"".join(heads)))
    peer.request(wire.CloseProducer(producer))


@pytest.mark.parametrize("groups", [1, 7, WAITING])
@pytest.mark.parametrize("verb", ["queue.purge", "queue.delete"])
def test_what_waits_in_groups_goes_in_slices(node, peer, monkeypatch, groups, verb):
    """200,000 messages of 5,000 groups were purged under one hold of 1.0 s."""
    monkeypatch.setattr(purge_slices, "GROUPED_AT_ONCE", PURGED)
    peer.request(wire.Administer("queue.create", {"name": "mine"}))
    _grouped(peer, "mine", groups)
    more = {} if verb == "queue.purge" else {"force": True, "discard": True}
    answer, turns = node.operate(peer, verb, name="mine", **more)

    assert answer in (WAITING, {"messages": WAITING})
    assert max(node.went) <= PURGED
    assert turns >= WAITING // PURGED
    assert _waiting(node) == 0
    again = Node(store=node.store)
    assert _waiting(again) == 0
    assert ("mine" in again.engine.state.queues) is (verb == "queue.purge")


def _waiting(node):
    places = node.engine.state.every_place()
    return sum(p.line.waiting_count for p in places if p.kind != "retained")


@pytest.mark.parametrize("make", ENDINGS)
def test_what_waits_where_something_ends_goes_in_slices(node, peer, make):
    """300,000 messages of a durable subscription that ended held the lock for 0.38 s."""
    asked = make(peer)
    answer, turns = node.request(peer, asked)

    assert max(node.went) <= PURGED
    assert turns >= WAITING // PURGED
    assert answer in (None, WAITING, {"messages": WAITING})
    assert _waiting(node) == 0
    assert node.engine.state.waiting_bytes == node.engine.state.space.place.line.size_bytes
    for state in (node.engine.state, Node(store=node.store).engine.state):
        assert "mine" not in state.queues
        assert not [s for s in state.space.subscriptions.values() if s.is_durable]
    assert not node.engine.state.endings


@pytest.mark.parametrize("make", ENDINGS)
def test_nobody_begins_to_use_what_is_about_to_end(node, peer, make):
    """Else the command would be refused after it had discarded a part."""
    other, asked = Peer(node, 2), make(peer)
    said = []

    def use():
        if make is _queue:
            said.append(node.request(other, wire.OpenConsumer(8, 1, "queue", "mine", 1))[0])
        else:
            said.append(node.request(other, wire.OpenConsumer(8, 1, "topic", "news", 1))[0])
            client = next(iter(node.engine.state.connections.values())).client_id
            node.engine.state.connections[2].client_id = client
            again = wire.OpenConsumer(9, 1, "topic", "news", 1, durable="d")
            said.append(node.request(other, again)[0])

    items = [_item(asked)]
    node.broker.turn(peer.name, items)
    assert items
    use()
    expected = "DestinationNotFound" if make is _queue else "DurableNameInUse"
    assert type(said[-1]).__name__ == expected
    while items:
        node.broker.turn(peer.name, items)
    assert _waiting(node) == 0


def _item(asked):
    payload = wire.encode(asked)
    return Envelope(Kind.REQUEST, 1, 1, len(payload)), payload


@pytest.mark.parametrize("make", ENDINGS)
def test_what_is_left_when_the_connection_ends_can_be_used_again(node, peer, make):
    """A crash, or the loss of who asked, in between is one before the command."""
    other, asked = Peer(node, 2), make(peer)
    node.broker.turn(peer.name, [_item(asked)])

    node.send(peer.name, Kind.GOODBYE, b"")

    assert not node.engine.state.endings
    assert _waiting(node) == WAITING - PURGED
    if make is _queue:
        largest.fill(other, "mine", 1)
        other.request(wire.OpenConsumer(8, 1, "queue", "mine", 1000))
        assert node.engine.state.queues["mine"].line.out_count == WAITING - PURGED + 1


def test_a_temporary_queue_is_gone_at_once_and_its_messages_by_and_by(node, peer):
    """The log knows nothing of it, so there is nothing to be in order with."""
    name = peer.request(wire.CreateTemporary("queue"))["name"]
    largest.fill(peer, name, WAITING)
    went = []
    node.went = went

    peer.request(wire.DeleteTemporary("queue", name))

    assert name not in node.engine.state.queues
    _tick(node)
    assert node.engine.state.waiting_bytes == node.engine.state.space.place.line.size_bytes


def test_the_end_of_a_passing_subscription_leaves_what_waits_to_ticks(node, peer):
    """As when a client that did not keep up is gone."""
    peer.request(wire.OpenConsumer(7, 1, "topic", "news", 0))
    largest.fill(peer, "news", WAITING, kind="topic")
    before = node.engine.state.waiting_bytes

    peer.request(wire.CloseConsumer(7))

    each = before // WAITING
    assert before - node.engine.state.waiting_bytes <= 2 * PURGED * each
    _tick(node)
    assert node.engine.state.waiting_bytes == node.engine.state.space.place.line.size_bytes


def _tick(node):
    while node.engine.is_behind:
        node.broker.handle(INTERNAL, [TICK])


def test_a_list_of_branches_takes_many_holds_and_names_each_that_is_there_still(monkeypatch):
    """A node may have 100,000, which took 0.2 s; one that ends meanwhile is not told."""
    monkeypatch.setattr(operation_slices, "LISTED_AT_ONCE", 10)
    node = Node()
    peer = Peer(node, 1)
    peer.request(wire.OpenSession(9, 0, is_xa=True))
    xids = [bytes([0, 0, 0, 1, 1, 1]) + bytes([65, n]) for n in range(35)]
    for xid in xids:
        peer.request(tx.XaStart(9, xid))
        peer.request(tx.XaEnd(9, xid, 0x04000000))
    branches = node.engine.state.branches
    ended = branches.by_xid[xids[-1]]

    found, turns = node.operate(peer, "transaction.list", lambda: branches.forget(ended))

    assert [row["xid"] for row in found] == [xid.hex() for xid in xids[:-1]]
    assert turns == 4


def test_a_list_of_subscriptions_takes_many_holds(monkeypatch):
    """20,000 took 68 ms, and there may be more."""
    monkeypatch.setattr(operation_slices, "LISTED_AT_ONCE", 10)
    node = Node()
    peer = Peer(node, 1)
    names = [f"d{n}" for n in range(25)]
    for handle, name in enumerate(names, 100):
        peer.request(wire.OpenConsumer(handle, 1, "topic", "news", 0, durable=name))

    found, turns = node.operate(peer, "subscription.list")

    assert [row["name"] for row in found] == names
    assert turns == 3


SHOWN = {
    "queue.list": {},
    "topic.list": {},
    "session.list": {},
    "consumer.list": {},
    "producer.list": {"destination": "topic:news"},
    "subscription.list": {},
    "schedule.list": {"limit": 15},
    "topic.show": {"name": "news"},
}


@pytest.mark.parametrize("verb", SHOWN)
def test_what_only_shows_takes_many_holds_and_shows_the_same(monkeypatch, verb):
    """100,000 delayed messages held the lock for 0.16 s, 20,000 queues for 0.1, 20,000 consumers
    of one client for 55 ms."""
    monkeypatch.setattr(operation_slices, "LISTED_AT_ONCE", 10)
    monkeypatch.setattr(topic_operations, "LOOKED_AT_ONCE", 10)
    node = Node()
    peer = Peer(node, 1)
    for n in range(25):
        peer.request(wire.Administer("queue.create", {"name": f"q{n}"}))
        peer.request(wire.Administer("topic.create", {"name": f"t{n}"}))
        peer.request(wire.OpenSession(10 + n, 0))
        peer.request(wire.OpenConsumer(100 + n, 1, "topic", "news", 0, durable=f"d{n}"))
        peer.request(wire.OpenProducer(100 + n, 10 + n, "topic", "news"))
    late = ROW.pack(0, 0, 0, 90_000, 4, 0, 0, 0)
    peer.request(wire.OpenProducer(7, 1, "queue", "work"))
    for n in range(1, 25):
        peer.ask(Kind.SEND, encode_send(SendHead(7, 1, n, is_persistent=True), late))
    whole = node.engine.administer(verb, SHOWN[verb], node.now_ms, Effects())

    found, turns = node.operate(peer, verb, **SHOWN[verb])

    assert found == whole
    assert turns >= 3
    assert len(whole) >= 15


def test_global_transactions_are_listed_in_slices_as_long_as_they_are_active(monkeypatch):
    """There may be 100,000; the list of a connection that is gone is not kept."""
    monkeypatch.setattr(branch_commands, "LISTED_AT_ONCE", 10)
    node = Node()
    peer, other = Peer(node, 1), Peer(node, 2)
    for n in range(35):
        peer.request(tx.BeginGlobal(b"%d" % n))

    found, turns = node.request(
        other, tx.ListActive(), lambda: node.engine.branches.end_global(1, b"34", 0, Effects())
    )

    assert [row[0] for row in found] == [b"%d" % n for n in range(34)]
    assert turns == 4
    node.broker.turn(other.name, [_item(tx.ListActive())])
    assert node.engine.branches._active
    node.send(other.name, Kind.GOODBYE, b"")
    assert not node.engine.branches._active


def test_a_list_of_queues_has_only_what_is_asked_for(monkeypatch):
    """10,000 are 3.4 MB with all fields."""
    monkeypatch.setattr(operation_slices, "LISTED_AT_ONCE", 10)
    node = Node()
    peer = Peer(node, 1)
    names = [f"q{n:02}" for n in range(25)]
    for name in names:
        node.operate(peer, "queue.create", name=name)
    queues = node.engine.state.queues

    def between():
        queues.pop("q21", None)  # another one has deleted it

    asked = {"names": "q*1 q*2 q24", "fields": "waiting nothing"}
    found, turns = node.operate(peer, "queue.list", between, **asked)

    wanted = ["q01", "q02", "q11", "q12", "q22", "q24"]
    assert found == [{"name": name, "waiting": 0} for name in wanted]
    assert turns >= 3
    whole, _ = node.operate(peer, "queue.list")
    assert {row["name"] for row in whole} >= set(names) - {"q21"}
    assert all("redelivery_limit" in row for row in whole)
