"""A connection that ends for good, sans-IO: what was sent and not answered is in doubt (P11), what
was never written is known not to be sent, and nobody waits on."""

import pytest
from client_link import LOST
from client_session import make_state

import hms
from hms.client.core.link import Link
from hms.client.core.pending_requests import OnLoss, Pending
from hms.client.pending_sends import PendingSend, SendOptions
from hms.client.send_buffer import Sender
from hms.wire.structures import Administer, Browse

CLOSED = hms.ConnectionClosed(what="connection")
ENDS = pytest.mark.parametrize("error", [CLOSED, LOST], ids=["closed", "lost for good"])


def send(link: Link, *, is_transacted: bool = False) -> PendingSend:
    """A message on its way."""
    sender = Sender(link, 9, hms.Queue("q"), lambda: 0.0, is_transacted=is_transacted)
    pending = PendingSend(1, [], SendOptions())
    sender.add(hms.Message(b"x").encode(), pending, is_persistent=True)
    sender.push()
    return pending


@ENDS
def test_a_send_without_an_answer_is_in_doubt(link, error):
    """The node may have stored it: ConnectionClosed would invite to send it again."""
    pending = send(link)

    link.lose(error, is_final=True)

    assert isinstance(pending.error, hms.SendInDoubt)


@ENDS
def test_a_send_that_never_left_is_known_not_to_be_sent(link, error):
    """In doubt would be a truth too, but a worse one."""
    link.lose(LOST, is_final=False)
    pending = send(link)

    link.lose(error, is_final=True)

    assert type(pending.error) is type(error)


def test_a_send_of_the_connection_before_is_in_doubt(link):
    """It was to be repeated, and never will be."""
    pending = send(link)
    link.lose(LOST, is_final=False)

    link.lose(CLOSED, is_final=True)

    assert isinstance(pending.error, hms.SendInDoubt)


def test_a_send_of_a_transaction_is_rolled_back(link):
    """Nothing of a transaction takes effect without its commit."""
    pending = send(link, is_transacted=True)

    link.lose(CLOSED, is_final=True)

    assert isinstance(pending.error, hms.TransactionRolledBack)


@ENDS
@pytest.mark.parametrize("where", ["open", "closed", "looked for"])
def test_a_commit_without_an_answer_is_in_doubt(link, error, where):
    """At once: whoever waits for it must not wait for request_timeout_s."""
    state = make_state(link, transacted=True)
    state.open()
    state.has_work = True
    commit = state.commit()
    if where == "closed":
        state.close()
    elif where == "looked for":
        link.lose(LOST, is_final=False)
        assert not commit.is_done

    link.lose(error, is_final=True)

    assert isinstance(commit.error, hms.CommitInDoubt)
    assert link.doubts == {}


def test_a_commit_of_a_closed_session_is_in_doubt_when_the_connection_is_lost(link):
    """The session is not opened again, so nobody asks what became of it."""
    state = make_state(link, transacted=True)
    state.open()
    state.has_work = True
    commit = state.commit()
    state.close()

    link.lose(LOST, is_final=False)

    assert isinstance(commit.error, hms.CommitInDoubt)


def test_a_commit_that_never_left_did_not_happen(link):
    """It was asked for during an outage."""
    state = make_state(link, transacted=True)
    state.open()
    link.lose(LOST, is_final=False)
    state.has_work, state.is_doomed = True, False
    commit = state.commit()

    link.lose(CLOSED, is_final=True)

    assert isinstance(commit.error, hms.ConnectionClosed)


@pytest.mark.parametrize("on_loss", [OnLoss.FAIL, OnLoss.REPEAT])
def test_a_request_without_an_answer_was_lost(link, on_loss):
    """ConnectionClosed says that it was not sent."""
    pending = link.request(Administer("queue.purge"), Pending("Administer", on_loss))

    link.lose(CLOSED, is_final=True)

    assert isinstance(pending.error, hms.ConnectionLost)
    assert "closed before the answer came" in str(pending.error)


def test_what_the_loss_brings_about_is_done(link):
    """A rollback has taken effect."""
    pending = link.request(Browse(1, "queue", "q"), Pending("Rollback", OnLoss.DONE))

    link.lose(CLOSED, is_final=True)

    assert pending.is_done
    assert pending.error is None


def test_an_acknowledgement_without_an_answer_may_have_taken_effect(link):
    """As when the connection is lost (F-K9)."""
    error = hms.AcknowledgeLost(message_id="1", when="during")
    pending = link.request(Administer("x"), Pending("ack()", OnLoss.FAIL, error_if_lost=error))

    link.lose(CLOSED, is_final=True)

    assert isinstance(pending.error, hms.AcknowledgeLost)
