"""What gives back or settles much takes many holds of the engine's lock, and others go on between.

Counted: messages for each hold, never time (P8). The client sees one rollback, recover or ACK.
"""

import pytest

from hms.engine.queue import dispatch, settlement
from hms.engine.session import partial_returns, transactions
from hms.engine.settings import DestinationSettings, EngineSettings
from hms.server.broker import TICK
from hms.wire import branch_requests as tx
from hms.wire import frames
from hms.wire import structures as wire
from hms.wire.frames import Action, Envelope, Kind, Settlement
from tests.support import largest
from tests.support.memory import MemoryNode
from tests.support.memory_peer import Peer

SLICE = 20
MANY = 300
EVERYTHING = [(0, (1 << 64) - 1)]
SETTINGS = EngineSettings(
    redelivery_limit=-1,
    destinations=tuple(DestinationSettings("queue", name) for name in ("work", "other")),
)


class Watched(MemoryNode):
    """Its own lock, that knows how many messages moved under each hold; lets others go between two
    holds."""

    def __init__(self):
        super().__init__(SETTINGS)
        self.moved = []
        self.between = lambda: None

    def __enter__(self):
        self._before = self._out()

    def __exit__(self, *_):
        self.moved.append(abs(self._out() - self._before))

    def _out(self):
        return sum(queue.line.out_count for queue in self.engine.state.queues.values())

    def in_turns(self, peer, kind, payload):
        """As send(), with what others do between the turns; how many turns it took."""
        items, turns = [(Envelope(Kind(kind), 1, 1, len(payload)), payload)], 0
        while items:
            self.broker.turn(peer, items)
            turns += 1
            self.between()
        self.step()
        return turns


@pytest.fixture
def node(monkeypatch):
    for module in (settlement, partial_returns, transactions):
        monkeypatch.setattr(module, "SLICE", SLICE)
    monkeypatch.setattr(dispatch, "DELIVERED_AT_ONCE", 2 * SLICE)
    monkeypatch.setattr(dispatch, "CHUNK_MESSAGES", SLICE)
    node = Watched()
    node.broker._lock = node
    return node


@pytest.fixture
def peer(node):
    return Peer(node, 1)


def take(node, peer, session, handle=7, count=MANY):
    """A consumer that has so many messages."""
    largest.fill(peer, "work", count)
    peer.request(wire.OpenConsumer(handle, session, "queue", "work", count))
    tick(node)
    assert node.engine.state.queues["work"].line.out_count == count


def tick(node):
    """Until nothing is left for ticks."""
    while node.engine.is_behind:
        node.broker.handle("internal", [TICK])
    node.step()


def settle(*items):
    return frames.encode_settle(
        [Settlement(action, 7, epoch, credit, spans) for action, epoch, credit, spans in items]
    )


def request(node, peer, what):
    node.moved.clear()
    turns = node.in_turns(peer.name, Kind.REQUEST, wire.encode(what))
    return turns, max(node.moved)


def line_of(node):
    return node.engine.state.queues["work"].line


@pytest.mark.parametrize("what", ["rollback", "recover", "consumer", "session", "goodbye", "lost"])
def test_what_comes_back_comes_in_slices(node, peer, what):
    """300,000 messages that came back at once held the lock for 1.5 s."""
    peer.request(wire.OpenSession(9, 0, is_transacted=what == "rollback"))
    take(node, peer, 9)
    command = {
        "rollback": wire.Rollback(9),
        "recover": wire.Recover(9),
        "consumer": wire.CloseConsumer(7),
    }.get(what, wire.CloseSession(9))
    if what == "rollback":
        peer.ask(Kind.SETTLE, settle((Action.ACKNOWLEDGE, 0, 0, EVERYTHING)))
    if what in ("rollback", "recover"):
        node.engine.state.queues["work"].control.is_receiving_paused = True
    node.moved.clear()

    if what == "lost":
        node.broker.handle(peer.name, [_lost()])
    elif what == "goodbye":
        node.send(peer.name, Kind.GOODBYE, b"")
    else:
        request(node, peer, command)

    assert max(node.moved) <= SLICE
    assert len(node.moved) >= MANY // SLICE
    assert line_of(node).waiting_count == MANY


def _lost():
    from hms.server.broker import Lost

    return Lost("gone")


def test_a_rollback_in_slices_is_one_to_its_client(node, peer):
    """One attempt for each message, one reply behind all of them, and everything comes again."""
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    take(node, peer, 9)
    peer.ask(Kind.SETTLE, settle((Action.ACKNOWLEDGE, 0, 0, EVERYTHING)))

    turns, _ = request(node, peer, wire.Rollback(9))

    replies = [e for e, _ in node.outlet.take(peer.name) if e.kind is Kind.REPLY]
    assert turns >= MANY // SLICE
    assert len(replies) == 1
    tick(node)
    line = line_of(node)
    assert line.out_count == MANY
    assert set(line.history.values()) == {(1, 1)}


def test_what_comes_back_of_a_rollback_goes_to_others_and_not_to_its_own_consumer(node, peer):
    """Else it would be given back once more, with another attempt."""
    other = Peer(node, 2)
    peer.request(wire.OpenSession(9, 0, is_transacted=True))
    take(node, peer, 9)
    peer.ask(
        Kind.SETTLE, settle((Action.CREDIT, 0, MANY, []), (Action.ACKNOWLEDGE, 0, 0, EVERYTHING))
    )
    asked = []

    def once():
        if not asked:
            asked.append(other.request(wire.OpenConsumer(5, 1, "queue", "work", 30)))

    node.between = once
    request(node, peer, wire.Rollback(9))
    tick(node)

    states = node.engine.state.connections
    (own,), (others,) = (states[n].consumers.values() for n in (1, 2))
    assert len(others.out) == 30
    assert len(own.out) == MANY - 30
    assert set(line_of(node).history.values()) == {(1, 1)}


@pytest.mark.parametrize("action", [Action.ACKNOWLEDGE, Action.FAIL, Action.RELEASE])
@pytest.mark.parametrize("spans", [EVERYTHING, None, [(0, 5), *EVERYTHING]])
def test_a_settlement_is_done_in_slices_and_answered_once(node, peer, action, spans):
    """Each message once, though the consumer has credit and gets the first ones again meanwhile."""
    peer.request(wire.OpenSession(9, 2))
    take(node, peer, 9)
    if spans is None:
        consumer = node.engine.state.connections[1].consumers[7]
        spans = [(one, one) for one in consumer.out]
    peer.ask(Kind.SETTLE, settle((Action.CREDIT, 0, 50, [])))
    node.moved.clear()

    turns = node.in_turns(peer.name, Kind.SETTLE, settle((action, 0, 0, spans)))

    answers = [
        wire.decode_reply(data) for e, data in node.outlet.take(peer.name) if e.kind is Kind.REPLY
    ]
    assert answers == [MANY]
    assert turns >= MANY // SLICE
    tick(node)
    line = line_of(node)
    assert line.counters.acknowledged == (MANY if action is Action.ACKNOWLEDGE else 0)
    assert set(line.history.values()) == ({(1, 1)} if action is Action.FAIL else set())


def test_what_is_said_behind_a_settlement_waits_for_all_of_it(node, peer):
    """A connection's commands are applied in the order in which they were sent (P4)."""
    peer.request(wire.OpenSession(9, 2))
    take(node, peer, 9)
    settled = settle((Action.ACKNOWLEDGE, 0, 0, EVERYTHING))
    closing = wire.encode(wire.CloseSession(9))
    items = [
        (Envelope(Kind.SETTLE, 0, 1, len(settled)), settled),
        (Envelope(Kind.REQUEST, 2, 1, len(closing)), closing),
    ]
    while items:
        node.broker.turn(peer.name, items)

    assert line_of(node).counters.acknowledged == MANY
    assert line_of(node).waiting_count == 0


def test_a_frame_of_many_settlements_lets_messages_go_out_at_its_end(node, peer):
    """Between its turns nothing goes out that it would give back again."""
    peer.request(wire.OpenSession(9, 2))
    take(node, peer, 9)
    pair = (Action.RELEASE, 0, 0, EVERYTHING), (Action.CREDIT, 0, MANY, [])
    delivered = line_of(node).counters.delivered

    node.in_turns(peer.name, Kind.SETTLE, settle(*pair * 20))
    tick(node)

    assert line_of(node).counters.delivered - delivered <= MANY
    assert line_of(node).out_count == MANY


def test_a_client_that_comes_again_waits_until_all_of_its_older_connection_is_back(node, peer):
    """Its messages are there when it is let in."""
    peer.request(wire.OpenSession(9, 2))
    take(node, peer, 9)
    node.moved.clear()

    again = Peer(node, 1)
    again.name = "again"
    from tests.support.hello import hello_of

    node.send("again", Kind.HELLO, wire.encode(hello_of(1)))

    assert max(node.moved) <= SLICE
    assert line_of(node).waiting_count == MANY


def test_one_command_delivers_so_much_and_ticks_the_rest(node, peer):
    """36 consumers that may have 8,192 each got 300,000 messages under one hold."""
    largest.fill(peer, "work", MANY)
    node.moved.clear()

    peer.request(wire.OpenConsumer(7, 1, "queue", "work", MANY))
    assert line_of(node).out_count == 2 * SLICE
    tick(node)

    assert max(node.moved) <= 2 * SLICE
    assert line_of(node).out_count == MANY


def test_a_poll_is_answered_behind_all_that_its_consumer_may_have(node, peer):
    """None means that the node has nothing for this consumer now."""
    largest.fill(peer, "work", MANY)
    peer.request(wire.OpenConsumer(7, 1, "queue", "work", MANY))
    peer.delivered.clear()

    peer.request(wire.Poll(7))

    assert line_of(node).out_count == MANY


XID = bytes([0, 0, 0, 1, 8, 8]) + b"12345678" * 2


def _branch(node, peer):
    """An XA session whose branch has acknowledged everything."""
    peer.request(wire.OpenSession(9, 0, is_xa=True))
    peer.request(tx.XaStart(9, XID))
    take(node, peer, 9)
    peer.ask(Kind.SETTLE, settle((Action.ACKNOWLEDGE, 0, 0, EVERYTHING)))
    node.moved.clear()


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_branch_that_is_rolled_back_is_undone_by_ticks(node, peer, is_prepared):
    """Its outcome is in the log at once; the messages come back in slices, one attempt each."""
    _branch(node, peer)
    peer.request(tx.XaEnd(9, XID, 0x04000000))
    if is_prepared:
        peer.request(tx.XaPrepare(XID))

    peer.request(tx.XaRollback(XID))
    assert node.engine.is_behind
    tick(node)

    assert max(node.moved) <= 2 * SLICE  # what comes back, or goes out again
    line = line_of(node)
    assert line.waiting_count == MANY
    assert set(line.history.values()) == {(1, 1)}
    assert node.engine.state.branches.by_xid == {}


def test_a_session_that_ends_within_a_branch_leaves_the_rest_to_ticks(node, peer):
    """Closing it has no slices of its own for what its branch holds."""
    _branch(node, peer)
    request(node, peer, wire.CloseSession(9))
    tick(node)

    assert max(node.moved) <= SLICE
    assert line_of(node).waiting_count == MANY
    assert set(line_of(node).history.values()) == {(1, 0)}
