"""What is retained is searched for a new subscription in slices, between which others go on (P8).

Counted: topics looked at and copies made under each hold of the lock, never time.
"""

import pytest

from hms.engine.settings import EngineSettings
from hms.engine.topic import retained_search, subscription_begin
from hms.records import RecordType
from hms.wire import structures as wire
from hms.wire.frames import Envelope, Kind, SendHead, encode_send
from hms.wire.packed_messages import FLAG_RETAIN, ROW, Head, encode_head
from tests.support.memory import MemoryNode
from tests.support.memory_peer import Peer

STEPS = 150
SLICE = 10
TOPICS = 60


class Node(MemoryNode):
    """Its own lock, with many retained publications, and others that go on between two turns."""

    def __init__(self):
        super().__init__(EngineSettings(is_topics_open=True))
        self.between = []
        self.copies = []
        self.sequences = {}
        self.steps = []

    def publish(self, peer, topic, body, *, is_persistent=True, text="t"):
        if topic not in self.sequences:
            self.sequences[topic] = [len(self.sequences) + 100, 0]
            handle = self.sequences[topic][0]
            peer.request(wire.OpenProducer(handle, 1, "topic", "", topic=topic))
        self.sequences[topic][1] += 1
        head = encode_head(Head({"text": text}))
        row = ROW.pack(len(head), len(body), 0, 0, 4, 0, FLAG_RETAIN, 0)
        handle, sequence = self.sequences[topic]
        said = SendHead(handle, 1, sequence, is_persistent)
        peer.ask(Kind.SEND, encode_send(said, row + head + body))

    def __enter__(self):
        self.steps.append(0)
        self._before = self.engine.state.next_seq

    def __exit__(self, *_):
        self.copies.append(self.engine.state.next_seq - self._before)

    def ask(self, peer, request):
        """How many turns it took."""
        payload = wire.encode(request)
        items, turns = [(Envelope(Kind.REQUEST, 1, 1, len(payload)), payload)], 0
        while items:
            self.broker.turn(peer.name, items)
            turns += 1
            if self.between and items:
                self.between.pop(0)()
        self.step()
        return turns


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(retained_search, "LOOK_STEPS", STEPS)
    monkeypatch.setattr(subscription_begin, "SEARCHED_AT_ONCE", 10)
    node = Node()
    node.broker._lock = node
    return node


@pytest.fixture
def peer(node):
    peer = Peer(node, 1)
    for n in range(TOPICS):
        node.publish(peer, f"r/{n}", b"old", text="even" if n % 2 == 0 else "odd")
    node.copies.clear()
    return peer


def subscribe(selector="", durable="", pattern="r/#", credit=1000, handle=7, **more):
    return wire.OpenConsumer(
        handle, 1, "topic", "", credit, "", selector, durable, topic=pattern, **more
    )


def received(node, handle=7):
    consumer = node.engine.state.connections[1].consumers[handle]
    return {m.head().node["$Topic"]: m.payload[m.head_bytes :] for m in consumer.out.values()}


@pytest.mark.parametrize("durable", ["", "d"])
def test_a_subscription_to_much_that_is_retained_is_made_in_slices(node, peer, durable):
    """90,000 topics held the lock for 0.6 to 1 s."""
    turns = node.ask(peer, subscribe(durable=durable))

    assert max(node.copies) <= SLICE
    assert turns >= TOPICS // SLICE
    assert received(node) == {f"r/{n}": b"old" for n in range(TOPICS)}


@pytest.mark.parametrize("pattern", ["none/+/x", "#/x", "r/+/x"])
def test_what_does_not_match_is_looked_at_in_slices_too(node, peer, pattern):
    """A pattern with many ways to go finds nothing as slowly as much."""
    walked = node.engine.state.space.tree.walk

    def counted(asked):
        for found in walked(asked):
            node.steps[-1] += 1
            yield found

    node.engine.state.space.tree.walk = counted

    node.ask(peer, subscribe(pattern=pattern))

    assert max(node.steps) <= STEPS
    assert received(node) == {}


def test_it_is_what_is_retained_when_the_subscription_begins(node, peer):
    """Replaced, cleared, or new meanwhile: the client gets what is there when it is subscribed."""
    other = Peer(node, 2)
    node.sequences = {}
    node.between = [
        lambda: node.publish(other, "r/1", b"new"),
        lambda: other.request(wire.Administer("topic.clear_retained", {"name": "r/0"})),
        lambda: node.publish(other, "r/59", b"new"),
        lambda: node.publish(other, "r/more", b"more"),
        lambda: node.publish(other, "r/more", b"most"),
        lambda: node.publish(other, "elsewhere", b"x"),
    ]

    node.ask(peer, subscribe())

    assert not node.between
    expected = {f"r/{n}": b"old" for n in range(1, TOPICS)}
    assert received(node) == expected | {"r/1": b"new", "r/59": b"new", "r/more": b"most"}


def test_its_selector_chooses_what_it_gets(node, peer):
    """As it does for what comes."""
    node.ask(peer, subscribe("text = 'even'"))
    assert received(node) == {f"r/{n}": b"old" for n in range(0, TOPICS, 2)}


def test_a_durable_subscription_and_what_is_retained_for_it_are_one_record(node, peer):
    """A crash leaves neither or both; after it all of it is there."""
    before = len(node.store.records)
    node.ask(peer, subscribe(durable="d", credit=0))
    assert len(node.store.records) == before + 1

    again = MemoryNode(EngineSettings(is_topics_open=True), store=node.store)

    (found,) = again.engine.state.space.subscriptions.values()
    assert found.line.waiting_count == TOPICS


def bodies_in_log(node, place):
    """What the log has where a place's messages are said to lie, by topic."""
    found = {}
    for message in place.line.everything():
        data = bytes(node.store.read(message.block.position(message.slot), message.length))
        assert data == message.payload
        found[message.head().node["$Topic"]] = data[message.head_bytes :]
    return found


@pytest.fixture
def encoded(node, monkeypatch):
    """How many records of copies were encoded under each hold."""
    counts = []
    encode = retained_search.ready_copy

    def counting(*more):
        while len(counts) <= len(node.steps):
            counts.append(0)
        counts[len(node.steps)] += 1
        return encode(*more)

    monkeypatch.setattr(retained_search, "ready_copy", counting)
    return counts


def test_the_records_of_what_is_retained_are_made_in_slices_too(node, peer, encoded):
    """30,000 held the lock for 0.4 s when the command made them all."""
    other = Peer(node, 2)
    node.sequences = {}
    node.between = [lambda: node.publish(other, "r/1", b"new")]

    node.ask(peer, subscribe(durable="d", credit=0))

    assert sum(encoded) == TOPICS + 1
    assert max(encoded) <= SLICE
    expected = {f"r/{n}": b"old" for n in range(TOPICS)} | {"r/1": b"new"}
    again = MemoryNode(EngineSettings(is_topics_open=True), store=node.store)
    for one in (node, again):
        (found,) = one.engine.state.space.subscriptions.values()
        assert bodies_in_log(node, found) == expected


def test_what_is_asked_for_again_is_searched_in_slices(node, peer, encoded):
    """Under one hold it was as much as a subscription, each time that somebody asks."""
    node.ask(peer, subscribe(durable="d", credit=0))
    (place,) = node.engine.state.space.subscriptions.values()
    before, encoded[:] = len(node.store.records), []
    other = Peer(node, 2)
    node.sequences = {}
    node.between = [lambda: node.publish(other, "r/1", b"new")]
    node.copies.clear()

    turns = node.ask(peer, wire.RequestRetained(7))

    assert turns >= TOPICS // SLICE
    assert max(node.copies) <= SLICE
    assert max(encoded) <= SLICE
    groups = [kind for kind, *_ in node.store.records[before:] if kind is RecordType.GROUP]
    assert len(groups) == 2  # of what was published between, too
    expected = {f"r/{n}": b"old" for n in range(TOPICS)} | {"r/1": b"new"}
    assert bodies_in_log(node, place) == expected
    assert place.line.waiting_count == 2 * TOPICS + 1
    assert len({m.id for m in place.line.everything()}) == 2 * TOPICS + 1


@pytest.mark.parametrize("durable", ["", "d"])
def test_a_subscription_into_a_queue_searches_in_slices(node, peer, encoded, durable):
    """What it puts there outlives it, under ids of its own."""
    peer.request(wire.Administer("queue.create", {"name": "box"}))

    turns = node.ask(peer, subscribe(durable=durable, queue="box"))

    assert turns >= TOPICS // SLICE
    assert max(encoded) <= SLICE
    queue = node.engine.state.queues["box"]
    assert bodies_in_log(node, queue) == {f"r/{n}": b"old" for n in range(TOPICS)}
    again = MemoryNode(EngineSettings(is_topics_open=True), store=node.store)
    assert again.engine.state.queues["box"].line.waiting_count == TOPICS
    retained = {m.id for m in node.engine.state.space.place.line.everything()}
    assert not retained & {m.id for m in queue.line.everything()}


def test_a_search_that_nobody_ends_is_forgotten_with_its_connection(node, peer):
    """It would note every publication for ever."""
    payload = wire.encode(subscribe())
    items = [(Envelope(Kind.REQUEST, 1, 1, len(payload)), payload)]
    node.broker.turn(peer.name, items)
    store = node.engine.state.space.retained
    assert items
    assert store._searches

    node.send(peer.name, Kind.GOODBYE, b"")

    assert not store._searches
    assert not node.engine.state.connections


@pytest.mark.parametrize(
    "more", [{"retained": "NEW"}, {"retained": "REQUEST"}, {"pattern": "r/5"}, {"handle": -1}]
)
def test_who_gets_nothing_or_one_searches_nothing(node, peer, more):
    """There is nothing to do before."""
    assert node.ask(peer, subscribe(**more)) == 1
    assert not node.engine.state.space.retained._searches
