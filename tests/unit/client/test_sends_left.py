"""Sends that nobody waits for any more when their transaction, producer or session ends during an
outage, sans-IO."""

import pytest
from client_link import LOST, answer, sent, up
from client_session import make_state

import hms
from hms.client.core.link import Link
from hms.client.opening_steps import (
    close_prefetch_buffer,
    close_sender,
    open_prefetch_buffer,
    open_sender,
)
from hms.client.pending_sends import PendingSend, SendOptions
from hms.client.session_steps import SessionSteps
from hms.wire import structures
from hms.wire.frames import Kind
from hms.wire.structures import CloseConsumer, CloseSession, OpenConsumer, OpenSession


class _Requests:
    """As much of them as an end needs that waits for nothing."""

    is_ended = is_connected = False

    def __init__(self, link: Link) -> None:
        self.link = link

    def settled(self, *_: object, **__: object):
        yield from ()
        return True

    def answer_to(self, pending):
        assert pending.is_done
        yield from ()


def _opened(link: Link, *, is_transacted: bool):
    state = make_state(link, transacted=is_transacted)
    answer(link, state.open().frame, Kind.REPLY, structures.encode({"last_commit": 0}))
    sender, opening = open_sender(link, state, hms.Queue("q"), "")
    answer(link, opening.pending.frame, Kind.REPLY, structures.encode({"last_sequence": 0}))
    return state, sender


def _add(sender) -> PendingSend:
    send = PendingSend(1, [], SendOptions())
    sender.add(hms.Message(b"x").encode(), send, is_persistent=True)
    return send


def test_what_waited_for_room_goes_with_its_transaction(link):
    """It left when the connection was back, and was committed with the next transaction."""
    state, sender = _opened(link, is_transacted=True)
    link.lose(LOST, is_final=False)
    for _ in range(2):  # as many frames as the window has
        _add(sender)
        sender.push()
    waiting = _add(sender)
    assert sender.has_pack

    state.rollback()

    assert isinstance(waiting.error, hms.TransactionRolledBack)
    up(link)
    assert sent(link, Kind.SEND) == []


@pytest.mark.parametrize("what", ["producer", "session"])
@pytest.mark.parametrize("is_written", [True, False])
def test_a_send_whose_sender_is_closed_during_an_outage_is_not_sent_again(link, what, is_written):
    """It was refused then, as nobody knew its producer any more, though it may have been stored."""
    state, sender = _opened(link, is_transacted=False)
    if is_written:
        send = _add(sender)
        sender.push()
    link.lose(LOST, is_final=False)
    if not is_written:
        send = _add(sender)
        sender.push()

    steps = SessionSteps(_Requests(link), state, is_asynchronous=False).closing()
    if what == "producer":
        steps = close_sender(_Requests(link), state, sender)
    for _ in steps:
        break

    expected = hms.SendInDoubt if is_written else hms.ConnectionLost
    assert isinstance(send.error, expected)
    up(link)
    assert sent(link, Kind.SEND) == []


def _asked(link: Link) -> list[type]:
    return [type(structures.decode_request(one)) for one in sent(link, Kind.REQUEST)]


def test_a_consumer_that_is_closed_during_an_outage_before_it_is_granted_stays_closed(link):
    """It was opened with the next connection, and held messages that nobody received."""
    state, _ = _opened(link, is_transacted=False)
    opening = OpenConsumer(7, state.number, "queue", "q", 10)
    prefetched, _ = open_prefetch_buffer(
        link, state, opening, hms.Queue("q"), None, is_ordered=False
    )
    link.lose(LOST, is_final=False)

    assert list(close_prefetch_buffer(_Requests(link), state, prefetched)) == []
    up(link)

    assert _asked(link)[-2:] == [OpenConsumer, CloseConsumer]


def test_a_session_that_is_closed_during_an_outage_before_it_is_granted_stays_closed(link):
    """The same, with all that was asked for in it."""
    state = make_state(link)
    state.open()
    link.lose(LOST, is_final=False)

    assert state.close().is_done
    up(link)

    assert _asked(link) == [OpenSession, CloseSession]
