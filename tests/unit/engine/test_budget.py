"""What the largest legal instance of each command costs while it holds the engine's lock (P8).

Steps are calls, counted and not timed, so they are the same on any machine. A command may cost what
its own frame, its transaction or what its consumer has out allows, but not what waits. Beside a
light load on a real node: bench/budget.py.
"""

import pytest

from hms.engine import engine
from hms.engine.admin import destination_figures, operation_slices, status_view
from hms.engine.flow import blocked_sends
from hms.engine.flow.destination_control import LimitBehavior
from hms.engine.groups import scan_order, scan_slices
from hms.engine.groups.message_sort import SortSettings, SortType
from hms.engine.queue import dispatch, pending_list, purge_slices, ready_queue
from hms.engine.settings import DEAD_LETTER_QUEUE, DestinationSettings
from hms.engine.topic import (
    asking,
    audience_draft,
    choices,
    publication_run,
    spreading,
    topic_space,
)
from hms.errors.catalogue import ConsumerLimit
from hms.server import broker
from hms.wire import structures as wire
from hms.wire.frames import RANGE, SETTLE_ITEM, Action, Envelope, Kind, SendHead, encode_send
from hms.wire.packed_messages import ROW
from tests.support import largest
from tests.support.counted import Counted, CountedSteps
from tests.support.largest import LARGEST, commands_of_the_protocol
from tests.support.memory_peer import SETTINGS, Node, Peer

FEW, MANY = 300, 1200
GROWTH_MAX = 1.3
CALLS_MAX = 250_000
"""About 50 ms."""
CALLS_PER_SUBSCRIPTION = 2
"""Only ever lowered."""
ALL = RANGE.pack(0, (1 << 64) - 1)


@pytest.fixture(autouse=True)
def _smaller(monkeypatch):
    """An eighth of what is legal is enough to count what one costs."""
    monkeypatch.setattr(largest, "OUT_MAX", 1024)
    monkeypatch.setattr(largest, "TRANSACTION_BYTES", 1 << 19)
    monkeypatch.setattr(purge_slices, "PURGED_AT_ONCE", 100)


def cost(name, waiting, folder):
    """The most calls under one hold that the command, and what follows from it, takes."""
    node = Node(folder)
    peer = Peer(node, 1)
    kind, payload = LARGEST[name](peer, waiting)
    node.broker._lock = holds = Counted()
    peer = "stranger" if kind is Kind.HELLO else peer.name
    node.send(peer, kind, payload)
    for _ in range(20):  # slices of what is left
        node.now_ms += 1
        node.broker._tick()
        node.step()
    return holds.most


def test_every_command_of_the_protocol_has_a_largest_instance():
    """A new command comes with one, so that somebody has thought of what it may cost."""
    assert set(LARGEST) == commands_of_the_protocol()


@pytest.mark.parametrize("name", sorted(LARGEST))
def test_what_a_command_costs_does_not_grow_with_what_waits(name, tmp_path):
    """What waits is bounded by memory alone; nothing that reads all of it may hold the lock."""
    few = cost(name, FEW, tmp_path / "few")
    many = cost(name, MANY, tmp_path / "many")

    assert many <= CALLS_MAX
    assert many <= GROWTH_MAX * few + 100


def _settling(pairs, folder):
    """The calls under one hold of a frame that gives all back and asks for it again, so often."""
    node = Node(folder)
    peer = Peer(node, 1)
    largest.fill(peer, "long", 600)
    peer.request(wire.OpenConsumer(7, 1, "queue", "long", 500))
    node.broker._lock = holds = Counted()
    back = SETTLE_ITEM.pack(Action.RELEASE, 7, 0, 1) + RANGE.pack(0, (1 << 64) - 1)
    node.send(peer.name, Kind.SETTLE, (back + SETTLE_ITEM.pack(Action.CREDIT, 7, 0, 500)) * pairs)
    return holds.most


def test_a_frame_that_gives_back_and_asks_again_and_again_sends_once(tmp_path):
    """25 pairs in 1,200 bytes held the lock for 0.6 s, 2,048 pairs for minutes."""
    one, four = _settling(1, tmp_path / "one"), _settling(4, tmp_path / "four")
    many = _settling(200, tmp_path / "many")

    assert many - one <= 200 * 60
    assert four - one <= 1_000  # 38,000 when each pair sends


def _closing(consumers, folder):
    node = Node(folder)
    peer = Peer(node, 1)
    largest.fill(peer, "long", 50)
    peer.request(wire.OpenSession(9))
    for handle in range(100, 100 + consumers):
        peer.request(wire.OpenConsumer(handle, 9, "queue", "long", 1, selector=f"a = {handle}"))
    node.broker._lock = holds = Counted()
    peer.request(wire.CloseSession(9))
    return holds.most


def test_closing_a_session_costs_what_it_has_open_and_not_its_square(tmp_path):
    """20,000 consumers with selectors of one session were not closed in 20 s."""
    few, many = _closing(100, tmp_path / "few"), _closing(400, tmp_path / "many")

    assert many <= 6 * few


RETURNS = {
    "Rollback": lambda session: (Kind.REQUEST, wire.encode(wire.Rollback(session))),
    "Recover": lambda session: (Kind.REQUEST, wire.encode(wire.Recover(session))),
    "CloseSession": lambda session: (Kind.REQUEST, wire.encode(wire.CloseSession(session))),
    "GOODBYE": lambda _: (Kind.GOODBYE, b""),
    "SETTLE": lambda _: (
        Kind.SETTLE,
        b"".join(SETTLE_ITEM.pack(Action.FAIL, h, 0, 1) + ALL for h in range(100, 200)),
    ),
}


def _returning(name, consumers, folder):
    """The most calls under a hold when so many consumers of a session have 1,000 messages each."""
    node = Node(folder)
    peer = Peer(node, 1)
    is_transacted = name == "Rollback"
    peer.request(wire.OpenSession(9, 0 if is_transacted else 2, is_transacted=is_transacted))
    for handle in range(100, 100 + consumers):
        largest.fill(peer, "long", 1000)
        peer.request(wire.OpenConsumer(handle, 9, "queue", "long", 1000))
        if is_transacted:
            node.send(
                peer.name, Kind.SETTLE, SETTLE_ITEM.pack(Action.ACKNOWLEDGE, handle, 0, 1) + ALL
            )
    assert node.engine.state.queues["long"].line.out_count == 1000 * consumers
    node.broker._lock = holds = Counted()
    node.send(peer.name, *RETURNS[name](9))
    return holds.most


@pytest.mark.parametrize("name", RETURNS)
def test_what_comes_back_does_not_cost_more_under_one_hold_the_more_is_in_flight(name, tmp_path):
    """In flight is what applications have not settled yet, of all their consumers together: 300,000
    messages came back in 1.5 s."""
    few, many = _returning(name, 3, tmp_path / "few"), _returning(name, 8, tmp_path / "many")

    assert many <= GROWTH_MAX * few
    assert many <= CALLS_MAX


def _asking(selectors, folder):
    """The calls of a lone SEND, and the most under a hold of 20 that come together."""
    node = Node(folder)
    peer = Peer(node, 1)
    for handle in range(100, 100 + selectors):
        peer.request(wire.OpenConsumer(handle, 1, "queue", "work", 1, selector=f"a = {handle}"))
    producer = largest.fill(peer, "work", 1)
    node.broker._lock = holds = Counted()
    node.send(peer.name, *largest.send(producer, 2, 1, largest.pack(1)))
    one, holds.most = holds.most, 0
    batch = []
    for first in range(3, 23):
        kind, payload = largest.send(producer, first, 1, largest.pack(1))
        batch.append((Envelope(kind, first, 1, len(payload)), payload))
    node.broker.handle(peer.name, batch)
    return one, holds.most


def test_sends_that_ask_many_selectors_do_not_share_a_hold(tmp_path, monkeypatch):
    """100 frames to a queue with 1,000 selectors, in one portion, were 0.5 s."""
    monkeypatch.setattr(broker, "EFFORT_MAX", 300)
    one, together = _asking(200, tmp_path)

    assert one * 1000 / 200 <= CALLS_MAX
    assert together <= 3 * one


def test_a_queue_has_so_many_consumers_with_selectors_and_no_more(tmp_path):
    """Each message is shown to all of them: with 60,000 a SEND held the lock for 0.4 s."""
    node = Node(tmp_path, selectors_max=3)
    peer = Peer(node, 1)
    for handle in range(100, 103):
        peer.request(wire.OpenConsumer(handle, 1, "queue", "work", 1, selector=f"a = {handle}"))

    one_more = wire.OpenConsumer(103, 1, "queue", "work", 1, selector="a = 1")
    answers = node.send(peer.name, Kind.REQUEST, wire.encode(one_more))

    (error,) = [wire.decode_error(data) for kind, data in _kinds(answers) if kind is Kind.ERROR]
    assert isinstance(error, ConsumerLimit)
    assert error.fields["limit"] == 3
    assert "max_selectors" in str(error)
    peer.request(wire.OpenConsumer(104, 1, "queue", "work", 1))
    peer.request(wire.CloseConsumer(100))
    peer.request(one_more)
    assert set(node.engine.state.connections[1].consumers) == {101, 102, 103, 104}


def _kinds(answers):
    return [(envelope.kind, data) for envelope, data in answers]


def test_publications_that_ask_many_selectors_do_not_share_a_hold(tmp_path, monkeypatch):
    """Ten frames to 1,000 selectors, in one portion, held the lock ten times as long as one."""
    monkeypatch.setattr(broker, "EFFORT_MAX", 150)
    node = Node(tmp_path)
    peer = Peer(node, 1)
    for handle in range(100, 200):
        selector = f"a LIKE '%{handle}'"
        peer.request(wire.OpenConsumer(handle, 1, "topic", "news", 1, selector=selector))
    producer = largest.fill(peer, "news", 1, kind="topic")
    node.broker._lock = holds = Counted()
    node.send(peer.name, *largest.send(producer, 2, 5, largest.pack(5, a="x")))
    one, holds.most = holds.most, 0
    batch = []
    for first in range(7, 57, 5):
        kind, payload = largest.send(producer, first, 5, largest.pack(5, a="x"))
        batch.append((Envelope(kind, first, 5, len(payload)), payload))
    node.broker.handle(peer.name, batch)

    assert holds.most <= 2.5 * one


def test_a_tick_looks_at_so_many_places_and_leaves_the_rest(tmp_path, monkeypatch):
    """60,000 subscriptions that may have something expired took a tick 90 ms, each second."""
    monkeypatch.setattr(engine, "SWEPT_AT_ONCE", 20)
    node = Node(tmp_path, is_topics_open=True)
    peer = Peer(node, 1)
    for handle in range(100, 200):
        peer.request(wire.OpenConsumer(handle, 1, "topic", "", 0, topic=f"t/{handle}"))
    producer = 900
    peer.request(wire.OpenProducer(producer, 1, "topic", "", topic="t/190"))
    row = ROW.pack(0, 0, 10, 0, 4, 0, 0, 0)
    peer.ask(Kind.SEND, encode_send(SendHead(producer, 1, 1, is_persistent=False), row))
    looked = []
    monkeypatch.setattr(
        engine.settlement, "bury_incomplete", lambda _state, place, _fx: looked[-1].append(place)
    )
    node.now_ms += 1000

    for _ in range(20):
        looked.append([])
        node.broker._tick()
        if not node.engine.is_behind:
            break

    assert max(len(places) for places in looked) == 20
    places = [place for places in looked for place in places]
    assert places == node.engine.state.every_place()
    assert sum(place.line.counters.expired for place in places) == 1


@pytest.mark.parametrize("credit", [10, 0])
def test_a_publication_goes_out_at_so_many_places_and_at_the_rest_by_ticks(
    tmp_path, monkeypatch, credit
):
    """Each of 25,000 subscriptions was looked at under its hold, though 2,048 may be sent; and all
    of them where nobody had room."""
    monkeypatch.setattr(dispatch, "DELIVERED_AT_ONCE", 20)
    node = Node(tmp_path)
    peer = Peer(node, 1)
    for handle in range(100, 200):
        peer.request(wire.OpenConsumer(handle, 1, "topic", "news", credit))
    looked = []
    plain = dispatch._dispatch_plain
    monkeypatch.setattr(dispatch, "_dispatch_plain", lambda *more: looked.append(0) or plain(*more))

    largest.fill(peer, "news", 1, kind="topic")
    assert len(looked) == 20
    most = 0
    while node.engine.is_behind:
        before = len(looked)
        node.broker._tick()
        most = max(most, len(looked) - before)

    assert most == 20
    consumers = node.engine.state.connections[1].consumers.values()
    assert all(len(consumer.out) == bool(credit) for consumer in consumers)


def _publishing(subscriptions, folder):
    """The most calls under a hold that a publication takes, and the ticks behind it."""
    node = Node(folder)
    peer = Peer(node, 1)
    for n in range(subscriptions):
        peer.request(wire.OpenConsumer(7, 1, "topic", "news", 0, durable=f"d{n}"))
        peer.request(wire.CloseConsumer(7))
    node.broker._lock = holds = Counted()
    largest.fill(peer, "news", 1, kind="topic")
    while node.engine.is_behind:
        node.broker._tick()
    places = node.engine.state.space.subscriptions.values()
    assert [place.line.waiting_count for place in places] == [1] * subscriptions
    return holds.most


def test_a_publication_takes_no_calls_for_each_of_many_durable_subscriptions(tmp_path, monkeypatch):
    """It is taken whole or refused whole: to 65,535 that was one hold of 160 ms. What is left of
    each is to name it where its audience is made, in its record, and in a tick's list of places."""
    monkeypatch.setattr(spreading, "SPREAD_MIN", 50)
    monkeypatch.setattr(spreading, "SPREAD_AT_ONCE", 50)
    monkeypatch.setattr(engine, "SWEPT_AT_ONCE", 50)
    few, many = _publishing(100, tmp_path / "few"), _publishing(400, tmp_path / "many")

    assert many - few <= 300 * CALLS_PER_SUBSCRIPTION


def _losing(clients, folder):
    """The most calls under a hold, when all of so many clients at one queue are lost."""
    node = Node(folder)
    peers = [Peer(node, number) for number in range(1, clients + 1)]
    for peer in peers:
        peer.request(wire.OpenConsumer(7, 1, "queue", "work", 10))
    largest.fill(peers[0], "work", clients)
    node.broker._lock = holds = Counted()
    for peer in peers[:-1]:
        node.broker.handle(peer.name, [broker.Lost("gone")])
    return holds.most


def test_the_loss_of_a_client_does_not_cost_more_the_more_others_there_are(tmp_path):
    """What came back was offered to each of 4,000 consumers, though one had taken all of it."""
    few, many = _losing(30, tmp_path / "few"), _losing(120, tmp_path / "many")

    assert many <= 1.5 * few


def _publishing_rows(row, subscriptions, folder, later_ms, **options):
    """The most calls under a hold of 256 such messages to so many subscriptions, of the ticks
    behind it, and of those that come so much later; and the subscriptions."""
    node = Node(folder)
    peer = Peer(node, 1)
    for handle in range(100, 100 + subscriptions):
        peer.request(wire.OpenConsumer(handle, 1, "topic", "news", 0, **options))
    producer = largest.fill(peer, "news", 1, kind="topic")
    node.broker._lock = holds = Counted()
    node.send(peer.name, *largest.send(producer, 2, 256, row * 256))
    for ms in (0, later_ms):
        node.now_ms += ms
        node.broker._tick()
        while node.engine.is_behind:
            node.broker._tick()
    return holds.most, node.engine.state.every_place()


@pytest.mark.parametrize("delay_ms", [0, 1000])
def test_a_batch_to_many_subscriptions_goes_there_and_wakes_there_in_slices(
    tmp_path, monkeypatch, delay_ms
):
    """1,024 delayed messages to 100 subscriptions were 115 ms, to 2,000 2 s, and again when they
    were due; 1,024 that are not, 0.1 s to 2,000."""
    monkeypatch.setattr(spreading, "STEPS_AT_ONCE", 500)
    monkeypatch.setattr(spreading, "SPREAD_AT_ONCE", 500)
    row = ROW.pack(0, 0, 0, delay_ms, 4, 0, 0, 0)
    few, _ = _publishing_rows(row, 40, tmp_path / "few", 2000)
    many, places = _publishing_rows(row, 120, tmp_path / "many", 2000)

    each = 60 if delay_ms else 6  # it is opened, named and looked at
    assert many <= few + 80 * each
    assert [p.line.waiting_count for p in places if p.kind == "subscription"] == [257] * 120


def test_what_expires_at_many_places_expires_in_slices(tmp_path, monkeypatch):
    """1,024 messages at 100 subscriptions kept a tick for 130 ms, what waited at 2,000 for 2 s."""
    monkeypatch.setattr(engine, "EXPIRED_AT_ONCE", 500)
    monkeypatch.setattr(spreading, "STEPS_AT_ONCE", 500)
    monkeypatch.setattr(spreading, "SPREAD_AT_ONCE", 500)
    row = ROW.pack(0, 0, 1000, 0, 4, 0, 0, 0)
    few, _ = _publishing_rows(row, 10, tmp_path / "few", 2000)
    many, places = _publishing_rows(row, 40, tmp_path / "many", 2000)

    assert many <= few + 40 * 100
    gone = [p.line.counters.expired for p in places if p.kind == "subscription"]
    assert gone == [256] * 40


def test_what_a_large_message_pushes_out_goes_in_slices(tmp_path):
    """15 MiB at a subscription that is not durable discarded 63,000 small ones, 65 ms."""

    def pushed_out(size):
        folder = tmp_path / str(size)
        node = Node(folder, passing_bytes_max=size, message_bytes_max=1 << 23)
        peer = Peer(node, 1)
        peer.request(wire.OpenConsumer(7, 1, "topic", "news", 0))
        largest.fill(peer, "news", 8192, kind="topic")
        (place,) = node.engine.state.space.subscriptions.values()
        before = place.line.waiting_count
        producer = largest.fill(peer, "news", 0, kind="topic")
        node.broker._lock = holds = Counted()
        node.send(peer.name, *largest.send(producer, 1, 1, largest.pack(1, bytes(size - 4096))))
        while node.engine.is_behind:
            node.broker._tick()
        assert place.line.size_bytes <= size
        assert before - place.line.waiting_count >= size // 1000
        return holds.most

    few, many = pushed_out(1 << 20), pushed_out(1 << 22)

    assert many <= GROWTH_MAX * few


def test_a_consumer_passes_over_so_many_that_have_expired_under_one_hold(tmp_path):
    """300,000 messages whose time was over before a tick came, and one that anybody may have."""

    def receiving(count):
        node = Node(tmp_path / str(count))
        peer = Peer(node, 1)
        producer = largest.fill(peer, "work", 0)
        row = ROW.pack(0, 0, 1000, 0, 4, 0, 0, 0)
        for first in range(1, count, 1024):
            peer.ask(*largest.send(producer, first, 1024, row * 1024))
        peer.ask(*largest.send(producer, count + 1, 1, largest.pack(1)))
        node.now_ms += 2000
        node.broker._lock = holds = Counted()
        peer.request(wire.OpenConsumer(7, 1, "queue", "work", 0))
        peer.ask(Kind.SETTLE, SETTLE_ITEM.pack(Action.CREDIT, 7, 0, 1))
        assert peer.wait_for(1)
        return holds.most

    assert receiving(1 << 14) <= GROWTH_MAX * receiving(1 << 13)


@pytest.mark.parametrize("shape", ["a LIKE '%{}_'", "k = 'x' AND a LIKE '%{}_'"])
@pytest.mark.parametrize("is_transacted", [False, True])
def test_selectors_of_subscriptions_are_asked_in_slices(
    tmp_path, monkeypatch, shape, is_transacted
):
    """1,000 of which no table finds any, of 1,024 messages, were 0.25 s under one hold, 200 with 64
    LIKEs each of 64 messages 0.85 s; a commit had 32 MiB of such batches."""
    for module in (asking, publication_run):
        monkeypatch.setattr(module, "LOOK_STEPS", 2000)

    def publishing(selectors):
        node = Node(tmp_path / str(selectors))
        peer = Peer(node, 1)
        for handle in range(100, 100 + selectors):
            selector = shape.format(handle)
            peer.request(wire.OpenConsumer(handle, 1, "topic", "news", 1, selector=selector))
        session = 1
        if is_transacted:
            session = 2
            peer.request(wire.OpenSession(2, 0, is_transacted=True))
        peer.request(wire.OpenProducer(7, session, "topic", "news"))
        node.broker._lock = holds = Counted()
        for first in (1, 65):
            node.send(peer.name, *largest.send(7, first, 64, largest.pack(64, a="z100z", k="x")))
        if is_transacted:
            peer.request(wire.Commit(2, 1))
        places = node.engine.state.space.subscriptions.values()
        assert max(p.line.waiting_count + p.line.out_count for p in places) == 128
        return holds.most

    few, many = publishing(60), publishing(180)

    assert many <= few + 120 * 35  # the audience is made under one hold


def _resuming(sends, folder):
    """The most calls under a hold when a queue is resumed for which so many sends wait; and how
    many wait in it then."""
    node = Node(folder)
    peer = Peer(node, 1)
    producer = largest.fill(peer, "work", 0)
    peer.request(wire.Administer("queue.pause", {"name": "work", "what": "PRODUCTION"}))
    batch = []
    for first in range(1, sends + 1):
        kind, payload = largest.send(producer, first, 1, largest.pack(1))
        batch.append((Envelope(kind, first, 1, len(payload)), payload))
    node.broker.handle(peer.name, batch)
    assert not node.engine.state.queues["work"].line.waiting_count
    node.broker._lock = holds = Counted()
    peer.request(wire.Administer("queue.resume", {"name": "work", "what": "PRODUCTION"}))
    while node.engine.is_behind:
        node.broker._tick()
    line = node.engine.state.queues["work"].line
    messages = list(line.in_order())
    assert [m.id for m in messages] == sorted(m.id for m in messages)
    return holds.most, line.waiting_count


def test_what_waits_for_a_paused_queue_goes_on_in_slices(tmp_path, monkeypatch):
    """64 MiB of small sends were 400,000, 12 µs each."""
    monkeypatch.setattr(blocked_sends, "TAKEN_AT_ONCE", 250)
    (few, _), (many, waiting) = _resuming(130, tmp_path / "few"), _resuming(400, tmp_path / "many")

    assert waiting == 400
    assert many <= GROWTH_MAX * few


def test_selectors_of_what_waited_for_room_are_asked_in_slices(tmp_path, monkeypatch):
    """They were asked under the hold of the tick that found room."""
    for module in (asking, publication_run):
        monkeypatch.setattr(module, "LOOK_STEPS", 2000)

    def resuming(selectors):
        node = Node(tmp_path / str(selectors))
        peer = Peer(node, 1)
        for handle in range(100, 100 + selectors):
            selector = f"a LIKE '%{handle}_'"
            peer.request(wire.OpenConsumer(handle, 1, "topic", "news", 1, selector=selector))
        peer.request(wire.OpenProducer(7, 1, "topic", "news"))
        asked = {"name": "news", "what": "PRODUCTION"}
        peer.request(wire.Administer("topic.pause", asked))
        for first in (1, 65):
            node.send(peer.name, *largest.send(7, first, 64, largest.pack(64, a="z100z")))
        assert len(node.engine.state.blocked.lines["topic", "news"]) == 2
        node.broker._lock = holds = Counted()
        peer.request(wire.Administer("topic.resume", asked))
        while node.engine.is_behind:
            node.broker._tick()
        assert not node.engine.state.blocked.lines
        places = node.engine.state.space.subscriptions.values()
        assert max(p.line.waiting_count + p.line.out_count for p in places) == 128
        return holds.most

    few, many = resuming(60), resuming(180)

    assert many <= few + 120 * 40


@pytest.mark.parametrize("groups", [10, 1 << 30])
@pytest.mark.parametrize("way", ["browse", "browse on", "in flight", "list"])
def test_a_page_beside_messages_of_groups_costs_what_it_shows(tmp_path, way, groups):
    """200,000 messages of groups were all sorted for it, 160 ms."""

    def looking(count):
        node = Node(tmp_path / str(count))
        peer = Peer(node, 1)
        producer = largest.fill(peer, "work", 0)
        for n in range(1, count + 1):
            packed = largest.pack(1, JMSXGroupID=str(n % groups))
            peer.ask(*largest.send(producer, n, 1, packed))
        line = node.engine.state.queues["work"].line
        middle = next(m.seq for n, m in enumerate(line.in_order()) if n == count // 2)
        peer.request(wire.OpenConsumer(7, 1, "queue", "work", 10))
        assert line.groups.waiting_count == count - 10
        listed = {"place": "queue:work", "limit": 10, "after": middle}
        asked = {
            "browse": wire.Browse("work", count_max=10),
            "browse on": wire.Browse("work", after=middle, count_max=10),
            "in flight": wire.Browse("work", after=middle, count_max=10, is_in_flight=True),
            "list": wire.Administer("message.list", listed),
        }[way]
        node.broker._lock = holds = Counted()
        answers = node.send(peer.name, Kind.REQUEST, wire.encode(asked))
        assert Kind.ERROR not in [envelope.kind for envelope, _ in answers]
        return holds.most

    few, many = looking(FEW), looking(MANY)

    assert many <= GROWTH_MAX * few


SORTED = DestinationSettings("queue", "sorted", sort=SortSettings("n", SortType.INTEGER))
LISTED = {"place": "queue:sorted", "limit": 10}


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("way", ["list", "list on", "newest", "move", "browse on", "oldest"])
def test_a_page_of_a_sorted_queue_costs_what_it_shows(tmp_path, way, is_grouped):
    """All of it was looked at for a page in the order of arrival: 200,000 took 71 to 181 ms; and
    for the place of the message behind which a page begins."""

    def looking(count):
        destinations = (DestinationSettings("queue", "work"), SORTED)
        node = Node(tmp_path / str(count), destinations=destinations)
        peer = Peer(node, 1)
        producer = largest.fill(peer, "sorted", 0)
        for n in range(1, count + 1):
            group = {"JMSXGroupID": str(n % 7)} if is_grouped else {}
            packed = largest.pack(1, n=n * 7919 % 1009, **group)
            peer.ask(*largest.send(producer, n, 1, packed))
        place = node.engine.state.queues["sorted"]
        middle = sorted(m.seq for m in place.line.in_order())[count // 2]
        asked = {
            "list": wire.Administer("message.list", LISTED),
            "list on": wire.Administer("message.list", LISTED | {"after": middle}),
            "newest": wire.Administer("message.list", LISTED | {"is_newest": True}),
            "move": wire.Administer("message.move", LISTED | {"to": "work", "after": middle}),
            "browse on": wire.Browse("sorted", after=middle, count_max=10),
            "oldest": None,
        }[way]
        holds = CountedSteps()
        if asked is None:
            with holds:
                assert destination_figures.oldest_ms(place) == node.now_ms
            return holds.most
        node.broker._lock = holds
        answers = node.send(peer.name, Kind.REQUEST, wire.encode(asked))
        assert Kind.ERROR not in [envelope.kind for envelope, _ in answers]
        return holds.most

    few, many = looking(FEW), looking(MANY)

    assert many <= GROWTH_MAX * few


@pytest.mark.parametrize("name", ["work", "sorted"])
def test_a_move_to_a_long_queue_learns_its_ids_in_slices(tmp_path, monkeypatch, name):
    """500,000 messages there were indexed under the hold of the first that came, 60 to 830 ms."""
    monkeypatch.setattr(pending_list, "INDEXED_AT_ONCE", 50)

    def moving(count):
        destinations = (*SETTINGS.destinations, SORTED)
        node = Node(tmp_path / str(count), destinations=destinations)
        peer = Peer(node, 1)
        largest.fill(peer, name, count)
        largest.fill(peer, "long", 3)
        node.broker._lock = holds = CountedSteps()
        asked = {"place": "queue:long", "to": name, "is_all": True}
        assert peer.request(wire.Administer("message.move", asked))["count"] == 3
        line = node.engine.state.queues[name].line
        assert line.open_index().keys() == {m.id for m in line.in_order()}
        return holds.most

    few, many = moving(FEW), moving(MANY)

    assert many <= GROWTH_MAX * few


POISON = DestinationSettings("queue", "poison", redelivery_limit=1, dead_letter="work")


@pytest.mark.parametrize("action", [Action.FAIL, Action.REJECT])
def test_the_first_dead_letter_of_a_long_queue_learns_its_ids_in_slices(
    tmp_path, monkeypatch, action
):
    """500,000 that waited there were 61 ms under the hold of the settlement."""
    monkeypatch.setattr(pending_list, "INDEXED_AT_ONCE", 50)

    def dying(count):
        node = Node(tmp_path / str(count), destinations=(*SETTINGS.destinations, POISON))
        peer = Peer(node, 1)
        largest.fill(peer, "work", count)
        largest.fill(peer, "poison", 1)
        peer.request(wire.OpenConsumer(7, 1, "queue", "poison", 1))
        (poison,) = peer.wait_for(1)
        node.broker._lock = holds = CountedSteps()
        item = SETTLE_ITEM.pack(action, 7, 0, 1) + RANGE.pack(poison, poison)
        peer.ask(Kind.SETTLE, item)
        while node.engine.is_behind:
            node.broker._tick()
        line = node.engine.state.queues["work"].line
        assert poison in line.open_index()
        assert line.waiting_count == count + 1
        assert not node.engine.state.awaiting_ids
        return holds.most

    few, many = dying(FEW), dying(MANY)

    assert many <= GROWTH_MAX * few


def test_a_long_queue_that_is_deleted_becomes_dead_letters_in_slices_of_its_own(
    tmp_path, monkeypatch
):
    """All that was left was looked through in each of the slices, and before the first."""
    monkeypatch.setattr(operation_slices, "BURIED_AT_ONCE", 50)
    monkeypatch.setattr(operation_slices, "LOOKED_AT_ONCE", 50)
    monkeypatch.setattr(pending_list, "INDEXED_AT_ONCE", 50)

    def deleting(count):
        node = Node(tmp_path / str(count))
        peer = Peer(node, 1)
        peer.request(wire.Administer("queue.create", {"name": "gone"}))
        largest.fill(peer, "gone", count)
        node.engine.state.blocks.paged_count = 1  # of another queue
        node.broker._lock = holds = CountedSteps()
        peer.request(wire.Administer("queue.delete", {"name": "gone", "force": True}))
        assert node.engine.state.queues[DEAD_LETTER_QUEUE].line.waiting_count == count
        assert "gone" not in node.engine.state.queues
        return holds.most

    few, many = deleting(FEW), deleting(MANY)

    assert many <= GROWTH_MAX * few


def test_the_order_that_selectors_needed_is_let_go_in_slices(tmp_path, monkeypatch):
    """When the last consumer with a selector left, 500,000 keys were freed under its hold: 27 ms,
    152 in a sorted queue."""
    monkeypatch.setattr(scan_slices, "RELEASED_AT_ONCE", 600)
    node = Node(tmp_path)
    peer = Peer(node, 1)
    largest.fill(peer, "work", 3000)
    peer.request(wire.OpenConsumer(7, 1, "queue", "work", 1, selector="n = 1"))
    while node.engine.is_behind:
        node.broker._tick()
    released, release = [], scan_order.ScanOrder.release

    def counted(scan, count):
        before = sum(map(len, scan._chunks))
        has_more = release(scan, count)
        released.append(before - sum(map(len, scan._chunks)))
        return has_more

    monkeypatch.setattr(scan_order.ScanOrder, "release", counted)
    peer.request(wire.CloseConsumer(7))
    while node.engine.is_behind:
        node.broker._tick()

    assert sum(released) == 3000
    assert max(released) <= 2 * 600
    assert not node.engine.state.looking.left


@pytest.mark.parametrize("verb", ["purge", "delete", "bury"])
def test_what_waits_for_its_time_is_discarded_in_slices(tmp_path, monkeypatch, verb):
    """200,000 delayed messages were purged under one hold, 136 ms; as dead letters of a deleted
    queue they took seconds."""
    monkeypatch.setattr(purge_slices, "DELAYED_AT_ONCE", 100)
    monkeypatch.setattr(operation_slices, "BURIED_AT_ONCE", 100)

    def discarding(count):
        node = Node(tmp_path / str(count))
        peer = Peer(node, 1)
        peer.request(wire.Administer("queue.create", {"name": "late"}))
        producer = largest.fill(peer, "late", 0)
        for first in range(1, count, 100):
            peer.ask(*largest.send(producer, first, 100, ROW.pack(0, 0, 0, 9000, 4, 0, 0, 0) * 100))
        line = node.engine.state.queues["late"].line
        assert (line.waiting_count, line.delayed_count) == (0, count)
        peer.request(wire.CloseProducer(producer))
        node.broker._lock = holds = CountedSteps()
        asked = {"name": "late", "force": True, "discard": verb == "delete"}
        if verb == "purge":
            assert peer.request(wire.Administer("queue.purge", {"name": "late"})) == count
        else:
            peer.request(wire.Administer("queue.delete", asked))
            assert "late" not in node.engine.state.queues
        letters = node.engine.state.queues[DEAD_LETTER_QUEUE].line.waiting_count
        assert letters == (count if verb == "bury" else 0)
        assert not line.delayed_count
        return holds.most

    few, many = discarding(FEW), discarding(MANY)

    assert many <= GROWTH_MAX * few


def test_a_topic_is_purged_some_subscriptions_at_a_time(tmp_path, monkeypatch):
    """20,000 subscriptions took 218 ms, with nothing to discard."""
    monkeypatch.setattr(operation_slices, "EMPTIED_STEPS", 5)  # of 100, as PURGED_AT_ONCE is here

    def purging(count):
        node = Node(tmp_path / str(count))
        peer = Peer(node, 1)
        for handle in range(100, 100 + count):
            peer.request(wire.OpenConsumer(handle, 1, "topic", "news", 0))
        largest.fill(peer, "news", 2, kind="topic")
        node.broker._lock = holds = CountedSteps()
        assert peer.request(wire.Administer("topic.purge", {"name": "news"})) == 2 * count
        places = node.engine.state.space.subscriptions.values()
        assert not any(place.line.waiting_count for place in places)
        return holds.most

    few, many = purging(FEW), purging(MANY)

    assert many <= GROWTH_MAX * few


def test_a_purge_of_a_sorted_queue_has_slices_of_its_own(tmp_path, monkeypatch):
    """Each message leaves two orders: 10,000 of 300,000 took 160 to 180 ms."""
    monkeypatch.setattr(purge_slices, "PURGED_AT_ONCE", 10_000)
    monkeypatch.setattr(purge_slices, "GROUPED_AT_ONCE", 100)

    def purging(count):
        node = Node(tmp_path / str(count), destinations=(SORTED,))
        peer = Peer(node, 1)
        largest.fill(peer, "sorted", count)
        node.broker._lock = holds = CountedSteps()
        assert peer.request(wire.Administer("queue.purge", {"name": "sorted"})) == count
        assert not node.engine.state.queues["sorted"].line.waiting_count
        return holds.most

    few, many = purging(FEW), purging(MANY)

    assert many <= GROWTH_MAX * few


def test_a_full_sorted_queue_that_removes_the_oldest_is_not_sorted_for_each(tmp_path):
    """What came next to a full one sorted all that waited there."""

    def sending(count):
        full = DestinationSettings(
            *("queue", "full"),
            messages_max=count,
            sort=SORTED.sort,
            limit_behavior=LimitBehavior.REMOVE_OLDEST,
        )
        node = Node(tmp_path / str(count), destinations=(full,))
        peer = Peer(node, 1)
        producer = largest.fill(peer, "full", 0)
        for n in range(1, count + 1):
            peer.ask(*largest.send(producer, n, 1, largest.pack(1, n=n * 7919 % 1009)))
        line = node.engine.state.queues["full"].line
        before = {m.seq for m in line.in_order()}
        node.broker._lock = holds = CountedSteps()
        peer.ask(*largest.send(producer, count + 1, 1, largest.pack(1, n=5)))
        assert before - {m.seq for m in line.in_order()} == {min(before)}
        return holds.most

    few, many = sending(FEW), sending(MANY)

    assert many <= GROWTH_MAX * few


def test_a_status_costs_no_more_where_there_are_many_queues_or_subscriptions(tmp_path, monkeypatch):
    """All queues were added up under one hold, 53 ms of 65,000; subscriptions are looked at in
    slices."""
    monkeypatch.setattr(status_view, "LOOKED_AT_ONCE", 50)

    def asking(count):
        node = Node(tmp_path / str(count), abandoned_after_ms=0)
        peer = Peer(node, 1)
        for n in range(count):
            peer.request(wire.Administer("queue.create", {"name": f"q{n}"}))
            peer.request(wire.OpenConsumer(7, 1, "topic", "news", 0, durable=f"d{n}"))
            peer.request(wire.CloseConsumer(7))
        largest.fill(peer, "news", 1, kind="topic")
        largest.fill(peer, "q7", 3)
        peer.request(wire.OpenConsumer(8, 1, "queue", "q7", 2))
        node.broker._lock = holds = Counted()
        status = peer.request(wire.Administer("status", {}))
        assert len(status["abandoned_subscriptions"]) == count
        assert (status["queues"], status["waiting"], status["in_flight"]) == (
            count + 3,
            count + 1,
            2,
        )
        return holds.most

    few, many = asking(100), asking(400)

    assert many <= GROWTH_MAX * few


@pytest.mark.parametrize("is_first", [False, True])
def test_selectors_that_are_not_alike_are_learned_in_slices_and_once(
    tmp_path, monkeypatch, is_first
):
    """20,000 were learned anew under one hold whenever one of them had changed, 70 to 116 ms; then
    all of them were looked at for it, and in each of the slices."""
    monkeypatch.setattr(spreading, "PREPARED_AT_ONCE", 20)
    monkeypatch.setattr(topic_space, "KEPT_MIN", 1 << 20 if is_first else 50)
    monkeypatch.setattr(audience_draft, "SORTED_AT_ONCE", 16)
    monkeypatch.setattr(choices, "LOOKED_AT_ONCE", 16)

    def publishing(selectors):
        node = Node(tmp_path / str(selectors))
        peer = Peer(node, 1)
        for handle in range(100, 100 + selectors):
            peer.request(wire.OpenConsumer(handle, 1, "topic", "news", 0, selector=f"a = {handle}"))
        producer = largest.fill(peer, "news", 0, kind="topic")
        if not is_first:
            peer.ask(*largest.send(producer, 1, 1, largest.pack(1, a=0)))
            peer.request(wire.CloseConsumer(150))
            peer.request(wire.OpenConsumer(150, 1, "topic", "news", 0, selector="a = 150 OR a = 7"))
        node.broker._lock = holds = CountedSteps()
        node.send(peer.name, *largest.send(producer, 2, 1, largest.pack(1, a=150)))
        places = node.engine.state.space.subscriptions.values()
        assert [p.line.waiting_count for p in places if "150" in p.definition.selector] == [1]
        assert sum(place.line.waiting_count for place in places) == 1
        return holds.most

    few, many = publishing(200), publishing(800)

    assert many <= GROWTH_MAX * few


@pytest.mark.parametrize("name", ["work", "sorted"])
def test_what_expires_in_its_order_leaves_nothing_to_sweep(tmp_path, monkeypatch, name):
    """All that stood there was swept when half of it had expired: of 1,000,000 that was a tick of
    59 ms."""
    swept = []
    sweep = ready_queue.ReadyQueue._sweep
    monkeypatch.setattr(ready_queue.ReadyQueue, "_sweep", lambda s: swept.append(0) or sweep(s))
    monkeypatch.setattr(ready_queue, "_GONE_MAX", 16)
    own = DestinationSettings("queue", "sorted", sort=SortSettings("n"))
    node = Node(tmp_path, destinations=(DestinationSettings("queue", "work"), own))
    peer = Peer(node, 1)
    producer = largest.fill(peer, name, 0)
    row = ROW.pack(0, 0, 1000, 0, 4, 0, 0, 0)
    peer.ask(*largest.send(producer, 1, 1024, row * 1024))
    line = node.engine.state.queues[name].line
    taken = line.take(200, 1 << 20, 0, [])
    for message in taken:
        line.put_back(message, 1, 0)
    assert line.waiting_count == 1024

    monkeypatch.setattr(engine, "EXPIRED_AT_ONCE", 100)
    node.now_ms += 2000
    node.broker._tick()
    while node.engine.is_behind:
        node.broker._tick()

    assert not line.waiting_count
    assert not swept
    assert not line._ready._gone
