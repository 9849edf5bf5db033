"""The side link, sans-IO: who goes to another log, who waits for the one before, the way back."""

import pytest
from client_link import LOST, answer, sent, up

import hms
from hms.client.core.link import Link, State
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.core.side_link import SideLink
from hms.client.pending_sends import PendingSend, SendOptions
from hms.client.send_buffer import Sender
from hms.wire import frames
from hms.wire.frames import CONFIRM_BODY, Kind
from hms.wire.structures import Browse, Hello, OpenProducer, OpenSession, encode_error

L, M = b"L" * 16, b"M" * 16
AT_L, AT_M = "tcp://l:1", "tcp://m:1"


def make_sender(link: Link, number: int) -> Sender:
    opening = OpenSession(4), OpenProducer(number, 4, "queue", "q")
    return Sender(link, number, hms.Queue("q"), lambda: 0.0, is_transacted=False, opening=opening)


def send(sender: Sender, *, is_persistent: bool = True) -> PendingSend:
    pending = PendingSend(1, [], SendOptions(is_persistent))
    sender.add(hms.Message(b"x").encode(), pending, is_persistent=is_persistent)
    sender.push()
    return pending


def reach(link: Link, address: str, log: bytes, **told) -> None:
    link.address = address
    up(link, log=log, **told)


def frames_of(link: Link, kind: Kind) -> list:
    return [one for one in link.outbox if frames.decode_envelope(one, 1 << 30).kind is kind]


def confirm(link: Link, which: int = 0) -> None:
    answer(link, frames_of(link, Kind.SEND)[which], Kind.CONFIRM, CONFIRM_BODY.pack(7, 5, 1))


@pytest.fixture
def parted():
    """A link at M, and one beside it that looks for L, which may hold the frame of producer 9."""
    link = Link(Hello(1))
    reach(link, AT_L, L)

    def part(log):
        link.side = SideLink.beside(link, log)
        return link.side is not None

    link.on_part = part
    one, other = make_sender(link, 9), make_sender(link, 10)
    held = send(one)
    link.lose(LOST, is_final=False)
    link.looks_until = float("inf")
    behind, elsewhere = send(one), send(other)
    reach(link, AT_M, M)
    return link, link.side, one, other, held, behind, elsewhere


def test_others_go_to_the_other_log_and_what_is_held_and_behind_it_waits(parted):
    """13, 14. It is looked for where it was found, never where the link is now."""
    link, side, one, other, held, behind, elsewhere = parted
    assert link.state is State.UP
    assert side.addresses == [AT_L]
    assert len(sent(link, Kind.SEND)) == 1
    confirm(link)
    assert (held.is_done, behind.is_done, elsewhere.is_done) == (False, False, True)
    later = send(one)

    reach(side, AT_L, L)

    kinds = [frames.decode_envelope(parts, 1 << 30).kind for parts in side.outbox]
    assert kinds == [Kind.REQUEST, Kind.REQUEST, *[Kind.SEND] * 2]  # opened before they come
    for which in range(3):
        confirm(side, which)
    assert [one.error for one in (held, behind, later)] == [None] * 3
    assert (link.side, one.link, other.link) == (None, link, link)
    assert (link.sends_in_flight, link.send_bytes_in_flight, link.unattended) == (0, 0, 0)
    assert (side.sends_in_flight, side.send_bytes_in_flight, side.unattended) == (0, 0, 0)
    link.outbox.clear()
    send(one)
    assert len(sent(link, Kind.SEND)) == 1


def test_a_third_log_is_turned_away(parted):
    """A node there has another store by now."""
    _, side, *_ = parted

    with pytest.raises(hms.ConnectionLost, match="another log than the one that is looked for"):
        reach(side, AT_L, b"K" * 16)

    assert len(side.asked) == 2


def test_the_main_link_that_comes_back_has_it_again(parted):
    """And what the other log may hold now is looked for beside."""
    link, side, one, _, held, behind, _ = parted
    link.lose(LOST, is_final=False)

    reach(link, AT_L, L)

    assert (side.state, one.link, side.asked) == (State.OFF, link, {})
    assert link.side.addresses == [AT_M]
    assert len(sent(link, Kind.SEND)) == 2  # the one for M may be there
    for which in range(2):
        confirm(link, which)
    assert (held.error, behind.error) == (None, None)
    assert (held.is_done, behind.is_done) == (True, True)


def test_at_the_end_what_may_be_there_is_in_doubt(parted):
    """What never left is not."""
    link, side, one, _, held, behind, _ = parted

    link.lose(hms.ConnectionClosed(what="connection"), is_final=True)

    assert isinstance(held.error, hms.SendInDoubt)
    assert isinstance(behind.error, hms.ConnectionClosed)
    assert (side.state, link.side, one.link) == (State.ENDED, None, link)


def test_one_that_ends_by_itself_leaves_the_rest_to_the_main_link(parted):
    """Its time to reconnect is over, say: nobody knows of the first; the second was written
    nowhere, and goes to the other log."""
    link, side, one, _, held, behind, _ = parted
    confirm(link)
    link.outbox.clear()

    side.lose(LOST, is_final=True)

    assert isinstance(held.error, hms.SendInDoubt)
    assert (link.side, one.link) == (None, link)
    confirm(link)
    assert (behind.is_done, behind.error) == (True, None)


def test_a_producer_that_the_log_before_refuses_goes_on_at_the_other(parted):
    """What that log may have is in doubt; what it cannot have is sent where the link is."""
    link, side, one, _, held, behind, _ = parted
    confirm(link)
    link.outbox.clear()
    reach(side, AT_L, L)
    _session, opening = frames_of(side, Kind.REQUEST)
    gone = hms.DestinationNotFound(kind="queue", destination="q")

    answer(side, opening, Kind.ERROR, encode_error(gone))

    assert isinstance(held.error, hms.SendInDoubt)
    assert str(gone) in str(held.error)
    assert (link.side, one.link) == (None, link)
    confirm(link)
    assert (behind.is_done, behind.error) == (True, None)
    assert (link.sends_in_flight, side.sends_in_flight) == (0, 0)


def test_what_waits_behind_a_send_that_was_given_up_goes_to_the_other_log(parted):
    """Nothing of the producer may be in the log before any more."""
    link, _, one, _, held, behind, _ = parted
    confirm(link)
    link.outbox.clear()
    held.error = one.give_up(held, hms.RequestTimeout(what="send()", timeout_s=1))
    assert isinstance(held.error, hms.SendInDoubt)

    assert (link.side, one.link) == (None, link)
    confirm(link)
    assert (behind.is_done, behind.error) == (True, None)


def test_a_later_epoch_repeats_only_what_the_log_knows():
    """18: the epoch counts for both links."""
    link = Link(Hello(1))
    reach(link, AT_L, L, epoch=3, replicas=["tcp://r:1"])
    sender = make_sender(link, 9)
    pending = send(sender, is_persistent=False)
    link.on_part = lambda log: bool(setattr(link, "side", SideLink.beside(link, log))) or True
    link.lose(LOST, is_final=False)
    reach(link, AT_M, M)
    side = link.side
    assert side.addresses == [AT_L, "tcp://r:1"]

    with pytest.raises(hms.ConnectionLost, match="epoch 2 of its log"):
        reach(side, AT_L, L, epoch=2)
    side.lose(LOST, is_final=False)
    reach(side, "tcp://r:1", L, epoch=4)

    assert isinstance(pending.error, hms.SendInDoubt)
    assert sent(side, Kind.SEND) == []


def test_what_is_more_than_sends_is_waited_for_as_before():
    """A commit, an XA step: the link looks for their log itself."""
    link = Link(Hello(1))
    reach(link, AT_L, L)
    link.request(Browse("q"), Pending("XaCommit", OnLoss.REPEAT, is_bound=True))
    send(make_sender(link, 9))
    link.lose(LOST, is_final=False)

    assert SideLink.beside(link, M) is None


def test_a_frame_that_was_said_to_be_in_doubt_is_never_sent_again(link):
    """H20, also where several sends share it."""
    first = make_sender(link, 9)
    send(first)
    send(first)
    sends = [PendingSend(1, [], SendOptions()) for _ in range(2)]
    for one in sends:  # they wait in a pack, and share a frame
        first.add(hms.Message(b"x").encode(), one, is_persistent=True)
    confirm(link)
    link.lose(LOST, is_final=False)
    late = hms.RequestTimeout(what="send()", timeout_s=1)
    for one in sends:
        one.error = first.give_up(one, late)
        assert isinstance(one.error, hms.SendInDoubt)

    up(link)

    assert len(sent(link, Kind.SEND)) == 1


def test_a_refusal_by_the_other_log_does_not_touch_what_is_held(parted):
    """Its queue is not there, say."""
    link, side, one, _, held, behind, _ = parted
    one.granted(hms.DestinationNotFound(name="q"))

    reach(side, AT_L, L)
    for which in range(2):
        confirm(side, which)

    assert (held.error, behind.error) == (None, None)
    assert link.side is None
