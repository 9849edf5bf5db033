"""What nobody waits for is synced with what comes next; what somebody waits for is synced now."""

import pytest

from hms.wire import structures
from hms.wire.branch_requests import AskDecision, BeginGlobal, Decide, ForgetDecision
from hms.wire.frames import (
    Action,
    Envelope,
    Kind,
    SendHead,
    Settlement,
    encode_send,
    encode_settle,
)
from hms.wire.packed_messages import ROW, pack_messages
from hms.wire.structures import (
    CloseConsumer,
    CloseSession,
    OpenConsumer,
    OpenProducer,
    OpenSession,
    Recover,
)
from tests.support.hello import hello_of
from tests.support.memory import SETTINGS, MemoryNode, MemoryStore
from tpmon.xa import decisions
from tpmon.xa.recovery import Recovery

CREDIT = 2


class Node(MemoryNode):
    """It notes how the storage workers are told of work."""

    def __init__(self, store=None):
        self.told = []
        super().__init__(SETTINGS, store)
        self.send("a", Kind.HELLO, structures.encode(hello_of(7)))
        opening = OpenConsumer(3, 1, "queue", "orders", CREDIT)
        for request in (OpenSession(1), OpenProducer(2, 1, "queue", "orders"), opening):
            self.send("a", Kind.REQUEST, structures.encode(request))

    def notify(self):
        self.told.append("now")

    def notify_later(self):
        self.told.append("later")

    def sends(self, first_sequence, count=1):
        """Its messages' ids."""
        rows = [(ROW.pack(0, 1, 0, 0, 4, 0, 0, 0), b"", b"x")] * count
        head = SendHead(2, count, first_sequence, is_persistent=True)
        self.send("a", Kind.SEND, encode_send(head, pack_messages(rows)))
        last = self.engine.state.ids.next_id
        return list(range(last - count, last))

    def hears(self, kind, payload, correlation=0):
        """A frame, handled while no storage worker has a turn; how they were told of it."""
        self.told.clear()
        self.broker.handle("a", [(Envelope(kind, correlation, 1, len(payload)), payload)])
        return list(self.told)

    def acknowledges(self, message_id, correlation=0, credit=0):
        items = [Settlement(Action.ACKNOWLEDGE, 3, 0, 0, [(message_id, message_id)])]
        if credit:
            items.append(Settlement(Action.CREDIT, 3, 0, credit, ()))
        return self.hears(Kind.SETTLE, encode_settle(items), correlation)


@pytest.fixture
def node():
    return Node()


def test_an_acknowledgement_that_nobody_waits_for_has_no_sync_of_its_own(node):
    """At a low rate that was half of all syncs."""
    (first,) = node.sends(1)

    assert node.acknowledges(first) == ["later"]
    assert node.store.backlog_bytes

    node.sends(2)
    assert not node.store.backlog_bytes


def test_an_acknowledgement_whose_sender_waits_is_synced_now(node):
    (first,) = node.sends(1)

    assert node.acknowledges(first, correlation=5) == ["now"]
    assert node.outlet.take("a") == []
    node.step()
    assert [envelope.correlation for envelope, _ in node.outlet.take("a")] == [5]


def test_messages_that_an_acknowledgement_makes_room_for_do_not_linger(node):
    """They are delivered when its record is safe."""
    first, *_ = node.sends(1, CREDIT + 1)
    node.outlet.take("a")

    assert node.acknowledges(first, credit=1) == ["now"]
    node.step()
    assert [envelope.kind for envelope, _ in node.outlet.take("a")] == [Kind.DELIVER]


@pytest.mark.parametrize("asking", [CloseConsumer(3), CloseSession(1), Recover(1)])
def test_who_waits_behind_a_lingering_acknowledgement_does_not_linger(node, asking):
    """Its answer needs no record of its own, but that of the acknowledgement."""
    (first,) = node.sends(1)
    node.acknowledges(first)

    told = node.hears(Kind.REQUEST, structures.encode(asking), 9)

    answered = [envelope.correlation for envelope, _ in node.outlet.take("a")]
    assert told == ["now"] or answered == [9]
    node.step()
    assert [envelope.correlation for envelope, _ in node.outlet.take("a")] == [9] * (not answered)


def test_a_send_beside_acknowledgements_is_synced_now(node):
    first, second = node.sends(1, 2)
    node.acknowledges(first)
    rows = pack_messages([(ROW.pack(0, 1, 0, 0, 4, 0, 0, 0), b"", b"x")])
    sending = encode_send(SendHead(2, 1, 3, is_persistent=True), rows)
    said = encode_settle([Settlement(Action.ACKNOWLEDGE, 3, 0, 0, [(second, second)])])
    node.told.clear()

    node.broker.handle(
        "a",
        [
            (Envelope(Kind.SETTLE, 0, 1, len(said)), said),
            (Envelope(Kind.SEND, 4, 1, len(sending)), sending),
        ],
    )

    assert node.told == ["now"]


def asks(node, request, correlation, peer="a"):
    node.told.clear()
    payload = structures.encode(request)
    node.broker.handle(peer, [(Envelope(Kind.REQUEST, correlation, 1, len(payload)), payload)])
    return list(node.told)


def answers(node, peer="a"):
    return [envelope.correlation for envelope, _ in node.outlet.take(peer)]


def test_a_global_transaction_costs_the_log_one_sync(node):
    """It was two: others waited with it for a word that can be lost."""
    node.outlet.take("a")
    syncs = 0
    for number in range(3):
        gtrid = b"transfer %d" % number
        for at, request in enumerate((BeginGlobal(gtrid), Decide(gtrid), ForgetDecision(gtrid)), 1):
            syncs += asks(node, request, at).count("now")
            if isinstance(request, Decide):
                assert answers(node) == []  # nobody hears of it before it is durable
                node.step()
            assert answers(node) == [at]
    assert syncs == 3
    assert node.store.backlog_bytes


def test_a_transaction_begins_while_another_one_of_its_connection_is_decided(node):
    """Eight threads share a connection, and each one's beginning stood behind the others' syncs."""
    asks(node, BeginGlobal(b"first"), 1)
    asks(node, Decide(b"first"), 2)
    node.outlet.take("a")

    asks(node, BeginGlobal(b"second"), 3)
    assert answers(node) == [3]
    node.step()
    assert answers(node) == [2]


def test_who_asks_for_a_decision_that_was_forgotten_just_now_hears_what_is_durable(node):
    """Else a branch would be rolled back whose decision a crash brings back."""
    asks(node, BeginGlobal(b"transfer"), 1)
    asks(node, Decide(b"transfer"), 2)
    node.step()
    asks(node, ForgetDecision(b"transfer"), 3)
    node.outlet.take("a")

    assert asks(node, AskDecision(b"transfer"), 4) == ["now"]
    assert answers(node) == []
    node.step()
    assert answers(node) == [4]


class Bank:
    """A database in which everything was committed; nothing is prepared any more."""

    name = "bank"
    reason = ""

    def xa_recover(self, _count, **_flags):
        return []


def test_a_lost_word_that_a_decision_is_over_is_said_again_by_recovery(node):
    """The node dies before it is synced: it knows the decision, and its participants are done."""
    gtrid = decisions.new_gtrid(5)
    participant = decisions.Participant("bank", b"branch")
    asks(node, BeginGlobal(gtrid), 1)
    asks(node, Decide(gtrid, decisions.encode([participant])), 2)
    node.step()
    durable = list(node.store.records)
    asks(node, ForgetDecision(gtrid), 3)
    assert node.store.records != durable

    again = Node(MemoryStore(durable))
    asker = Asker(again)
    assert asker.request(AskDecision(gtrid))["state"] == "committed"
    assert Recovery(asker, lambda: 5).round(Bank()).waiting == []
    assert asker.request(AskDecision(gtrid))["state"] == "unknown"


class Asker:
    """A client of the node that waits for each answer."""

    def __init__(self, node):
        self._node = node

    def request(self, request):
        (answer,) = self._node.send("a", Kind.REQUEST, structures.encode(request))
        return structures.decode_reply(answer[1])
