"""What ran out of time, or comes home from a link beside, goes out once and is told."""

from concurrent.futures import Future
from time import monotonic

import pytest

from hms.client.core.inquiry import Inquiry
from hms.client.core.link import NO_LIMITS, Link
from hms.client.core.side_link import SideLink
from hms.client.destinations import Queue
from hms.client.pending_sends import PendingSend, SendOptions
from hms.client.send_buffer import Sender
from hms.errors.catalogue import ConnectionLost, LoginRefused
from hms.wire import frames
from hms.wire.frames import Kind
from hms.wire.structures import ErrorReply, Hello, OpenProducer, OpenSession, Welcome, encode

ONE = (SendOptions().bare_row(1), b"", b"x")
LOG, OTHER_LOG = b"A" * 16, b"B" * 16


class Reopening:
    """A participant that asks for its producer again."""

    tick_s = 0

    def __init__(self, link):
        self._link = link

    def restore(self):
        self._link.tell(Kind.REQUEST, b"OPEN")

    def lost(self, error):
        pass


@pytest.fixture
def link():
    made = Link(Hello(uid=1, request_timeout_ms=30_000))
    made.participants.append(Reopening(made))
    greeted(made, LOG)
    return made


def written(link):
    """Kind and correlation of what is to be written; nothing is left of it."""
    found = [frames.decode_envelope(list(one), 1 << 24) for one in link.outbox]
    link.outbox.clear()
    return [(one.kind, one.correlation) for one in found]


def greeted(link, log):
    link.greet(monotonic())
    link.outbox.clear()
    said = encode(Welcome(1, "n", 1, NO_LIMITS, log=log))
    link.receive(frames.frame(Kind.WELCOME, said, link._greeting), monotonic())


def sent(sender, is_persistent=True):
    one = PendingSend(1, [], SendOptions(), future=Future(), is_unattended=True)
    sender.add(ONE, one, is_persistent=is_persistent)
    return one


def lose(link):
    link.lose(ConnectionLost(address="x", reason="gone"), is_final=False)


def confirm_all(link):
    for number in list(link.asked):
        frame = link.asked.pop(number)
        for one in frame.sends:
            frame.sender._end(one, None)
        frame.sender._out_of_flight(frame)


def test_what_waits_behind_a_late_frame_goes_out_once_behind_its_producer(link):
    """It went twice, once before the producer was opened again: refused there, stored here."""
    written(link)
    sender = Sender(link, 5, Queue("Q"), monotonic, is_transacted=False)
    late = [sent(sender), sent(sender)]
    sender.push()
    sent(sender)
    written(link)
    lose(link)
    link.greet(monotonic())
    link.outbox.clear()
    for one in late:
        sender.overdue(one, 30)

    said = encode(Welcome(1, "n", 1, NO_LIMITS, log=LOG))
    link.receive(frames.frame(Kind.WELCOME, said, link._greeting), monotonic())

    kinds = [kind for kind, _ in written(link)]
    assert kinds.count(Kind.SEND) == 1
    assert kinds.index(Kind.REQUEST) < kinds.index(Kind.SEND)


def test_packs_that_come_home_from_a_link_beside_go_on(link):
    """They stayed for ever, and nobody was told."""
    sender = Sender(link, 5, Queue("Q"), monotonic, is_transacted=False)
    sender.opening = (OpenSession(1, 1), OpenProducer(5, 1, "queue", "Q", "", ""))
    link.known.found(LOG, ["tcp://a:1", "tcp://a:2"])
    sends = [sent(sender)]
    sender.push()
    written(link)
    lose(link)
    for _ in range(15):
        sends.append(sent(sender))
        sender.push()
    sends += [sent(sender), sent(sender, is_persistent=False)]
    link.address = "tcp://b:1"

    def beside(log):
        link.side = SideLink.beside(link, log)
        return link.side is not None

    link.on_part = beside
    greeted(link, OTHER_LOG)
    side = link.side
    assert sender.link is side
    busy = Sender(link, 6, Queue("Q"), monotonic, is_transacted=False)
    for _ in range(3):
        sent(busy)
        busy.push()

    side.lose(LoginRefused(address="tcp://a:1"), is_final=True)
    assert sender.link is link
    for _ in range(5):
        confirm_all(link)

    assert not sender.packs
    assert all(one.is_done for one in sends)


def test_an_answer_to_an_inquiry_that_is_nonsense_says_nothing(link):
    """It ended the connection for good."""
    fields = {"epoch": "x", "node": "n", "primary": "p", "addresses": ""}
    answer = frames.frame(Kind.ERROR, encode(ErrorReply(5072, fields)), 1)

    class Transport:
        def receive(self):
            return [list(answer)]

    class Loop:
        pass

    loop = Loop()
    loop.link = link
    assert not Inquiry(loop)._answered(Transport(), "tcp://a:1")
