"""What nobody waits for is synced with what comes next; what somebody waits for is synced now."""

import pytest

from hms.wire import structures
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
from tests.support.memory import SETTINGS, MemoryNode

CREDIT = 2


class Node(MemoryNode):
    """It notes how the storage workers are told of work."""

    def __init__(self):
        self.told = []
        super().__init__(SETTINGS)
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
