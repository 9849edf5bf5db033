"""A node that drains, and says that it took nothing of what it has not answered: what a client
gives back, and what it takes along to the next primary."""

import pytest
from client_link import LOST, sent, up

import hms
from hms.client.core.link import Link
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.destinations import Queue
from hms.client.pending_sends import PendingSend, SendOptions
from hms.client.send_buffer import Sender
from hms.client.session_state import SessionState
from hms.constants import AckMode
from hms.wire import frames, structures
from hms.wire.frames import Kind
from hms.wire.structures import CallHead, Hello, OpenProducer, encode_with_body

LOG = b"L" * 16
CALL = encode_with_body(CallHead("ECHO", 0, 0), b"x")


@pytest.fixture
def link():
    """To the primary of epoch 3."""
    made = Link(Hello(1))
    up(made, log=LOG, epoch=3)
    return made


def tell(link, what):
    """The node tells that event."""
    link.receive(frames.frame(Kind.EVENT, structures.encode(structures.Event(what))), 0.0)


def moved(link, *, is_drained):
    """Another primary answers."""
    if is_drained:
        tell(link, "drained")
    link.lose(LOST, is_final=False)
    up(link, log=LOG, epoch=4)


def transacted(link):
    """A session, and a sender in it that has sent a message."""
    session = SessionState(link, AckMode.AUTO, is_transacted=True, is_asynchronous=False)
    sender = Sender(link, 9, Queue("q"), lambda: 0.0, is_transacted=True)
    session.senders[9] = sender, OpenProducer(session.number, 9, "queue", "q")
    pending = PendingSend(1, [], SendOptions(is_persistent=True))
    sender.add(hms.Message(b"x").encode(), pending, is_persistent=True)
    sender.push()
    session.has_work = True
    link.participants.append(session)
    return session, pending


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_call_that_was_not_taken_goes_to_the_next_primary(link, is_drained):
    """Else nobody knows whether it ran."""
    pending = Pending("ECHO")
    link.ask(Kind.CALL, CALL, pending)
    moved(link, is_drained=is_drained)
    assert (pending.error is None, len(sent(link, Kind.CALL))) == (is_drained, is_drained)


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_message_that_no_log_keeps_is_not_in_doubt_when_it_was_not_taken(link, is_drained):
    """It was delivered to nobody."""
    sender = Sender(link, 9, Queue("q"), lambda: 0.0, is_transacted=False)
    pending = PendingSend(1, [], SendOptions(is_persistent=False))
    sender.add(hms.Message(b"x").encode(), pending, is_persistent=False)
    sender.push()
    moved(link, is_drained=is_drained)
    assert isinstance(pending.error, hms.SendInDoubt) is not is_drained
    assert len(sent(link, Kind.SEND)) == is_drained


def test_what_is_sent_between_that_word_and_the_loss_is_not_in_doubt_either(link):
    """The node takes nothing more, and the connection ends a moment later."""
    tell(link, "drained")
    sender = Sender(link, 9, Queue("q"), lambda: 0.0, is_transacted=False)
    pending = PendingSend(1, [], SendOptions(is_persistent=False))
    sender.add(hms.Message(b"x").encode(), pending, is_persistent=False)
    sender.push()
    assert sent(link, Kind.SEND) == []
    moved(link, is_drained=False)
    assert not pending.is_done
    assert len(sent(link, Kind.SEND)) == 1


@pytest.mark.parametrize("is_drained", [True, False])
def test_a_transaction_of_which_nothing_was_taken_goes_on_whole(link, is_drained):
    """With its commit behind its sends; else it is rolled back."""
    session, pending = transacted(link)
    commit = session.commit()
    moved(link, is_drained=is_drained)
    kinds = [frames.decode_envelope(parts, 1 << 30).kind for parts in link.outbox]
    if is_drained:
        assert not pending.is_done
        assert not commit.is_done
        assert kinds[-2:] == [Kind.SEND, Kind.REQUEST]
    else:
        assert isinstance(pending.error, hms.TransactionRolledBack)
        assert Kind.SEND not in kinds


def test_what_was_rolled_back_before_the_move_is_not_sent_again(link):
    """It would be a part of the next transaction."""
    session, pending = transacted(link)
    session.rollback()
    moved(link, is_drained=True)
    assert isinstance(pending.error, hms.TransactionRolledBack)
    assert sent(link, Kind.SEND) == []


def test_a_part_of_something_that_ends_with_the_connection_is_not_taken_along(link):
    """A block of a file is for an upload that the next primary begins anew."""
    block = Pending("FileBlock", OnLoss.BREAK)
    link.ask(Kind.FILE, b"x", block)
    moved(link, is_drained=True)
    assert block.is_done
    assert sent(link, Kind.FILE) == []


def test_the_next_loss_is_one_as_before(link):
    """Only the primary that said so took nothing."""
    moved(link, is_drained=True)
    pending = Pending("ECHO")
    link.ask(Kind.CALL, CALL, pending)
    moved(link, is_drained=False)
    assert pending.error is not None
