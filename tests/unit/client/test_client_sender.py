"""Sender, sans-IO: the pack, the window, what a lost connection does to both."""

from concurrent.futures import Future

import pytest
from client_link import LOST, answer, confirm, sent, up

import hms
from hms.client.core.link import Link
from hms.client.pack_building import frames_of
from hms.client.send_buffer import FRAME_MESSAGES_MAX, PendingSend, Sender, SendOptions
from hms.wire import frames
from hms.wire.frames import Kind
from hms.wire.structures import Hello, encode_error


def make_sender(link: Link, *, is_transacted: bool = False) -> Sender:
    return Sender(link, 9, hms.Queue("q"), lambda: 0.0, is_transacted=is_transacted)


def add(sender: Sender, *, is_persistent: bool = True) -> PendingSend:
    pending = PendingSend(1, [], SendOptions(is_persistent))
    sender.add(hms.Message(b"x").encode(), pending, is_persistent=is_persistent)
    return pending


def test_messages_wait_in_the_pack_until_a_frame_is_confirmed(link):
    """The busier the connection, the fuller its frames."""
    sender = make_sender(link)
    for _ in range(2):
        add(sender)
        sender.push()
    sends = [add(sender) for _ in range(10)]
    sender.push()
    assert len(sent(link, Kind.SEND)) == 2
    assert not sender.has_room

    confirm(link, 0, 1, 1)

    assert frames.decode_send(sent(link, Kind.SEND)[2]).message_count == 10
    confirm(link, 2, 50, 10)
    assert [pending.receipts[0].message_id for pending in sends][-1] == f"{59:012x}"


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
    pending = add(sender)
    sender.push()

    link.lose(LOST, is_final=False)

    assert isinstance(pending.error, hms.TransactionRolledBack)
    assert link.sends_in_flight == 0


def test_other_sends_keep_their_place_in_the_window(link):
    """F-D9: they are on their way again as soon as the link is up."""
    sender = make_sender(link)
    pending = add(sender)
    sender.push()
    frame = link.outbox[0]

    link.lose(LOST, is_final=False)
    up(link)

    assert frame in link.outbox
    assert not pending.is_done
    assert link.sends_in_flight == 1


def test_a_send_given_up_makes_no_room_before_those_in_front_of_it(link):
    """The node remembers a window of last frames: with one more a repeat would be stored twice."""
    sender = make_sender(link)
    sends = [add(sender)]
    sender.push()
    sends.append(add(sender))
    sender.push()
    link.lose(LOST, is_final=False)

    sender.withdraw(sends[1])

    assert sends[1].is_done
    assert not sender.has_room
    up(link)
    confirm(link, 0, 1, 1)
    assert link.sends_in_flight == 0
    assert sender.is_idle


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


def test_what_is_sent_before_the_producer_is_granted_waits(link):
    """A SEND before the node knows its producer would be refused with the wrong reason."""
    sender = make_sender(link)
    sender.is_granted = False
    pending = add(sender)
    sender.push()
    assert sent(link, Kind.SEND) == []

    sender.granted(None)

    assert len(sent(link, Kind.SEND)) == 1
    assert not pending.is_done


def test_what_waits_is_refused_with_the_producer(link):
    """It must not wait for ever, nor be lost without a word."""
    sender = make_sender(link)
    sender.is_granted = False
    pending = add(sender)

    sender.granted(hms.DestinationNotFound(kind="queue", destination="q"))

    assert isinstance(pending.error, hms.DestinationNotFound)
    assert sender.is_idle
    assert link.on_room == {}


REFUSALS = {
    "not open": hms.HandleUnknown(what="producer", handle=9),
    "not allowed": hms.NotAuthorized(user="u", action="send", resource="queue:q"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_what_came_again_is_in_doubt_when_its_producer_is_refused(link, refusal):
    """The node says so before it looks whether the one before had stored it."""
    sender = make_sender(link)
    pending = add(sender)
    sender.push()
    link.lose(LOST, is_final=False)
    later = add(sender)
    sender.push()
    up(link)
    repeated, new = link.outbox
    sender.granted(gone := hms.DestinationNotFound(kind="queue", destination="q"))

    answer(link, repeated, Kind.ERROR, encode_error(refusal))
    answer(link, new, Kind.ERROR, encode_error(refusal))

    assert isinstance(pending.error, hms.SendInDoubt)
    assert str(gone) in str(pending.error)
    assert type(later.error) in (type(gone), type(refusal))
    assert sender.is_idle


def test_what_came_again_is_confirmed_although_its_producer_is_refused(link):
    """The node remembers it."""
    sender = make_sender(link)
    pending = add(sender)
    sender.push()
    link.lose(LOST, is_final=False)
    up(link)
    sender.granted(hms.DestinationNotFound(kind="queue", destination="q"))

    confirm(link, 0, 7, 1)

    assert pending.error is None
    assert pending.receipts[0].message_id == f"{7:012x}"


def test_what_came_for_the_first_time_is_refused_with_its_reason(link):
    """Nothing is in doubt that no node had before."""
    sender = make_sender(link)
    pending = add(sender)
    sender.push()

    answer(link, link.outbox[0], Kind.ERROR, encode_error(REFUSALS["not allowed"]))

    assert isinstance(pending.error, hms.NotAuthorized)


def test_packs_line_up_when_nobody_waits_for_room(link):
    """In an event loop nobody can block: what does not fit goes into further packs, in order."""
    sender = make_sender(link)
    sender.is_granted = False
    for _ in range(2 * FRAME_MESSAGES_MAX + 1):
        add(sender)
    assert sender.waiting_count == 2 * FRAME_MESSAGES_MAX + 1

    sender.granted(None)

    counts = [frames.decode_send(one).message_count for one in sent(link, Kind.SEND)]
    assert counts == [FRAME_MESSAGES_MAX, FRAME_MESSAGES_MAX]  # the window of two
    assert sender.waiting_count == 1


def test_the_listener_hears_of_a_send_that_its_caller_gave_up(link):
    """F-E10: the call raised a timeout; that the message was refused is told later."""
    told = []
    link.on_error = told.append
    sender = make_sender(link)
    pending = add(sender)
    sender.push()

    sender.withdraw(pending)
    answer(link, link.outbox[0], Kind.ERROR, encode_error(hms.StoreFull(path="p", detail="d")))
    for call in link.calls:
        call()

    assert isinstance(told[0].__cause__, hms.StoreFull)
    assert link.unattended == 0


class Clock:
    """Stands still until it is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def timed():
    """A link whose requests have 10 s, and a sender on it with its clock."""
    link = Link(Hello(1, request_timeout_ms=10_000))
    up(link)
    clock = Clock()
    return link, clock, Sender(link, 9, hms.Queue("q"), clock, is_transacted=False)


def promise(link: Link, sender: Sender) -> Future:
    """The future of a message that is sent."""
    future: Future = Future()
    pending = PendingSend(1, [], SendOptions(), future, is_unattended=True)
    sender.add(hms.Message(b"x").encode(), pending, is_persistent=True)
    sender.push()
    return future


def tick(link: Link) -> list[float]:
    """What is due; after how long it wants to be asked again."""
    due, link.ticking = link.ticking, []
    for one in due:
        one.tick()
    for call in link.calls:
        call()
    link.calls.clear()
    return [one.tick_s for one in link.ticking]


def test_each_future_is_told_by_its_own_deadline(timed):
    """request_timeout_s begins with the send; one tick is planned for all of a producer."""
    link, clock, sender = timed
    told = []
    link.on_error = told.append
    first = promise(link, sender)
    clock.now_s = 4.0
    second = promise(link, sender)
    assert [one.tick_s for one in link.ticking] == [10.0]

    clock.now_s = 10.0
    assert tick(link) == [4.0]
    assert isinstance(first.exception(0), hms.SendInDoubt)
    assert not second.done()
    assert len(told) == 1

    confirm(link, 1, 5, 1)
    clock.now_s = 14.0
    assert tick(link) == []
    assert second.result(0).message_id == "000000000005"
    confirm(link, 0, 4, 1)
    assert link.unattended == 0
    assert sender.is_idle


def test_a_future_that_never_left_is_taken_back(timed):
    """It is known not to be sent, and must not be sent later."""
    link, clock, sender = timed
    futures = [promise(link, sender) for _ in range(3)]  # the window has room for two frames
    clock.now_s = 10.0
    tick(link)

    assert [type(one.exception(0)) for one in futures] == [
        hms.SendInDoubt,
        hms.SendInDoubt,
        hms.RequestTimeout,
    ]
    assert not sender.has_pack
    confirm(link, 0, 1, 1)
    assert len(sent(link, Kind.SEND)) == 2


@pytest.mark.parametrize("is_written", [True, False])
def test_a_future_of_an_outage_is_in_doubt_only_when_it_had_left(timed, is_written):
    """P11; in both cases it is not sent later, as nobody else is in its frame."""
    link, clock, sender = timed
    told = []
    link.on_error = told.append
    if not is_written:
        link.lose(LOST, is_final=False)
    future = promise(link, sender)
    link.lose(LOST, is_final=False)

    clock.now_s = 10.0
    tick(link)

    assert isinstance(future.exception(0), hms.SendInDoubt if is_written else hms.ConnectionLost)
    assert link.asked == {}
    assert len(told) == 1


def test_what_was_confirmed_and_is_not_there_any_more_is_told_once(link):
    """An older store answers: its last number is below what it had confirmed."""
    sender = make_sender(link)
    for number, first in enumerate((100, 200)):
        add(sender)
        sender.push()
        confirm(link, number, first, 1)

    assert sender.lost_of(b"another", 0) is None
    assert sender.lost_of(link.log, 2) is None
    lost = sender.lost_of(link.log, 1)
    assert (lost.count, lost.message_ids) == (1, ("0000000000c8",))
    assert sender.lost_of(link.log, 1) is None
