"""Sender, inbox and session state, sans-IO: windows, credit, epochs, transactions."""

import pytest

import hms
from field_buffer.packing import DELIVERED_ROW
from hms.client.inbox import Inbox
from hms.client.sending import FRAME_MESSAGES_MAX, Sender, SendOptions, Ticket
from hms.client.session_state import SessionState
from hms.client.settling import ACKNOWLEDGEMENTS_MAX
from hms.client.streaming import frames_of
from tpmon.link import Link
from tpmon.protocol import frames, structures
from tpmon.protocol.frames import CONFIRM_BODY, DELIVER_HEAD, Action, Kind
from tpmon.protocol.structures import Hello, Limits, OpenConsumer, Welcome

LIMITS = Limits(1 << 20, 1 << 22, 2, 1000, 30.0)
LOST = hms.ConnectionLost(address="a", reason="cut")


@pytest.fixture
def link() -> Link:
    link = Link(Hello(1))
    up(link)
    return link


def up(link: Link) -> None:
    link.greet(0.0)
    welcome = structures.encode(Welcome(1, "node", 7, LIMITS))
    link.receive(frames.frame(Kind.WELCOME, welcome, 1), 0.0)
    link.outbox.clear()


def sent(link: Link, kind: Kind) -> list:
    """The payloads of that kind in the outbox."""
    return [
        parts[1] for parts in link.outbox if frames.decode_envelope(parts, 1 << 30).kind is kind
    ]


def answer(link: Link, parts, kind: Kind, payload: bytes = b"") -> None:
    correlation = frames.decode_envelope(parts, 1 << 30).correlation
    link.receive(frames.frame(kind, payload, correlation), 1.0)


def confirm(link: Link, number: int, first: int, count: int) -> None:
    answer(link, link.outbox[number], Kind.CONFIRM, CONFIRM_BODY.pack(first, 5, count))


# ---- sending


def make_sender(link: Link, *, is_transacted: bool = False) -> Sender:
    return Sender(link, 9, hms.Queue("q"), lambda: 0.0, is_transacted=is_transacted)


def add(sender: Sender, *, is_persistent: bool = True) -> Ticket:
    ticket = Ticket(1, [], SendOptions(is_persistent))
    sender.add(hms.Message(b"x").encode(), ticket, is_persistent=is_persistent)
    return ticket


def test_messages_wait_in_the_pack_until_a_frame_is_confirmed(link):
    """The busier the connection, the fuller its frames."""
    sender = make_sender(link)
    for _ in range(2):
        add(sender)
        sender.push()
    tickets = [add(sender) for _ in range(10)]
    sender.push()
    assert len(sent(link, Kind.SEND)) == 2
    assert not sender.has_room

    confirm(link, 0, 1, 1)

    assert frames.decode_send(sent(link, Kind.SEND)[2]).message_count == 10
    confirm(link, 2, 50, 10)
    assert [ticket.receipts[0].message_id for ticket in tickets][-1] == f"{59:012x}"


def test_a_full_pack_leaves_by_itself(link):
    """A frame has a limit (P8)."""
    sender = make_sender(link)
    for _ in range(FRAME_MESSAGES_MAX + 1):
        add(sender)

    assert [frames.decode_send(one).message_count for one in sent(link, Kind.SEND)] == [
        FRAME_MESSAGES_MAX
    ]


def test_a_transactions_sends_fail_with_the_connection(link):
    """The node has dropped the transaction; repeating them would put them into the next one."""
    sender = make_sender(link, is_transacted=True)
    ticket = add(sender)
    sender.push()

    link.lose(LOST, is_final=False)

    assert isinstance(ticket.error, hms.TransactionRolledBack)
    assert link.sends_in_flight == 0


def test_other_sends_keep_their_place_in_the_window(link):
    """F-D9: they are on their way again as soon as the link is up."""
    sender = make_sender(link)
    ticket = add(sender)
    sender.push()
    frame = link.outbox[0]

    link.lose(LOST, is_final=False)
    up_again = link.greet(1.0)
    welcome = structures.encode(Welcome(1, "node", 7, LIMITS))
    link.receive(frames.frame(Kind.WELCOME, welcome, 1), 1.0)

    assert up_again is None
    assert frame in link.outbox
    assert not ticket.is_done
    assert link.sends_in_flight == 1


def test_frames_begin_small_and_grow():
    """The node is busy while the next, larger frame is packed."""
    counts = [len(one) for one, _ in frames_of([b"x"] * 1_000, SendOptions(), 100)]

    assert counts == [32, 64, 128, 256, 256, 256, 8]


def test_an_error_comes_after_the_frame_with_what_was_good():
    """What was before it in the order is sent."""
    made = frames_of([b"x", b"y", b"too long"], SendOptions(), 3)

    assert len(next(made)[0]) == 2
    with pytest.raises(hms.MessageTooLarge):
        next(made)


# ---- receiving


def make_inbox(link: Link, state: SessionState, credit: int = 10) -> Inbox:
    opening = OpenConsumer(5, state.number, "queue", "q", credit)
    inbox = Inbox(link, opening, hms.Queue("q"), lambda: 1_000, None)
    link.receivers[5] = inbox
    state.inboxes[5] = inbox
    return inbox


def make_state(link: Link, ack: hms.AckMode = hms.AckMode.AUTO, **kind: bool) -> SessionState:
    return SessionState(
        link, ack, is_transacted=kind.get("transacted", False), is_asynchronous=False
    )


def deliver(link: Link, *message_ids: int, epoch: int = 0, expires_at_ms: int = 0) -> None:
    rows = [DELIVERED_ROW.pack(one, 1, expires_at_ms, 1, 0, 0, 4, 0, 1) for one in message_ids]
    head = DELIVER_HEAD.pack(5, epoch, len(rows), 0)
    link.receive(frames.frame(Kind.DELIVER, head + b"".join(rows)), 1.0)


def consume(state: SessionState, inbox: Inbox) -> int:
    message_id = inbox.take()[0].message_id
    state.consumed(inbox, message_id)
    return message_id


def settlements(link: Link) -> list:
    items = [item for one in sent(link, Kind.SETTLE) for item in frames.decode_settle(one)]
    return [(item.action, item.credit or list(item.ranges)) for item in items]


def test_acknowledgements_are_sent_together_as_ranges(link):
    """One item instead of 64."""
    state = make_state(link)
    inbox = make_inbox(link, state, credit=1_000)
    deliver(link, *range(1, ACKNOWLEDGEMENTS_MAX + 1))

    for _ in range(ACKNOWLEDGEMENTS_MAX):
        consume(state, inbox)

    assert settlements(link) == [(Action.ACKNOWLEDGE, [(1, ACKNOWLEDGEMENTS_MAX)])]


def test_a_tick_sends_what_is_held_back(link):
    """A single message must not stay unacknowledged because none follows."""
    state = make_state(link)
    inbox = make_inbox(link, state)
    deliver(link, 1)
    consume(state, inbox)
    assert link.ticking == [state]
    assert settlements(link) == []

    state.tick()

    assert settlements(link) == [(Action.ACKNOWLEDGE, [(1, 1)])]


def test_credit_is_given_when_half_of_it_is_used(link):
    """And only for the consumer from which more is wanted."""
    state = make_state(link)
    inbox = make_inbox(link, state, credit=4)
    deliver(link, 1, 2)
    consume(state, inbox)
    state.settle(inbox)
    consume(state, inbox)
    state.settle(inbox)

    assert settlements(link) == [
        (Action.ACKNOWLEDGE, [(1, 1)]),
        (Action.ACKNOWLEDGE, [(2, 2)]),
        (Action.CREDIT, 2),
    ]


def test_an_expired_message_is_released_and_its_credit_given_back(link):
    """F-D2, and the consumer must not starve on expired messages."""
    state = make_state(link)
    inbox = make_inbox(link, state, credit=100)
    deliver(link, 1, expires_at_ms=1_000)

    assert inbox.take() is None
    state.settle(inbox)
    state.settle(inbox)

    assert settlements(link) == [(Action.RELEASE, [(1, 1)]), (Action.CREDIT, 1)]


def test_a_delivery_of_an_older_epoch_is_dropped(link):
    """It crossed the Recover on the wire; the node has it back already."""
    state = make_state(link, hms.AckMode.CLIENT)
    inbox = make_inbox(link, state)
    deliver(link, 1, 2)
    consume(state, inbox)

    state.recover()
    deliver(link, 3, epoch=0)
    deliver(link, 1, epoch=1)

    assert settlements(link) == [(Action.FAIL, [(1, 1)])]
    assert [delivered[0].message_id for delivered in inbox.buffer] == [1]
    assert inbox.stamp.epoch == 1


def test_unsent_acknowledgements_are_reported_when_the_connection_is_lost(link):
    """F-K9: message by message, to the exception listener."""
    told = []
    link.on_error = told.append
    state = make_state(link)
    link.participants.append(state)
    inbox = make_inbox(link, state)
    deliver(link, 1, 2)
    consume(state, inbox)

    link.lose(LOST, is_final=False)
    for call in link.calls:
        call()

    assert [error.message_id for error in told] == ["000000000001"]
    assert not inbox.buffer


def test_everything_said_in_a_transaction_is_said_before_its_commit(link):
    """F-B5: otherwise the receipts would belong to the next one."""
    state = make_state(link, transacted=True)
    inbox = make_inbox(link, state)
    deliver(link, 1, 2)
    consume(state, inbox)

    state.commit()

    kinds = [frames.decode_envelope(parts, 1 << 30).kind for parts in link.outbox]
    assert kinds == [Kind.SETTLE, Kind.REQUEST]
    assert state.commit() is None  # nothing happened since


def test_only_work_that_was_lost_dooms_a_transaction(link):
    """F-K7: an empty transaction loses nothing."""
    state = make_state(link, transacted=True)
    link.participants.append(state)
    link.lose(LOST, is_final=False)
    assert not state.is_doomed
    up(link)

    state.has_work = True
    link.lose(LOST, is_final=False)

    assert state.is_doomed
