"""A commit that the node refuses leaves the transaction open there, sans-IO."""

from client_link import LOST, answer, sent
from client_session import make_state

import hms
from hms.client.core.link import Link
from hms.client.opening_steps import close_sender, open_sender
from hms.client.pending_sends import PendingSend, SendOptions
from hms.errors.catalogue import DestinationNotFound, QueueFull
from hms.wire import structures
from hms.wire.frames import Kind
from hms.wire.structures import Commit, encode_error

FULL = QueueFull(kind="queue", destination="q", count=1, key="max_messages", limit=1)


def _open(link: Link):
    state = make_state(link, transacted=True)
    opened = state.open()
    answer(link, opened.frame, Kind.REPLY, structures.encode({"last_commit": 0}))
    return state


def _commits(link: Link) -> list[int]:
    asked = map(structures.decode_request, sent(link, Kind.REQUEST))
    return [one.number for one in asked if isinstance(one, Commit)]


def test_a_refused_commit_can_be_asked_for_again(link):
    """The second one returned at once, as if there were nothing to commit, and all was rolled back
    when the session closed."""
    state = _open(link)
    state.has_work = True
    refused = state.commit()
    answer(link, refused.frame, Kind.ERROR, encode_error(FULL))
    state.forget_commit()
    assert isinstance(refused.error, hms.QueueFull)

    again = state.commit()
    answer(link, again.frame, Kind.REPLY, b"\xc3")

    assert _commits(link) == [1, 2]
    assert state.commit() is None


def test_a_commit_that_was_refused_goes_with_the_connection(link):
    """The transaction was open at the node, and is lost with it."""
    state = _open(link)
    state.has_work = True
    answer(link, state.commit().frame, Kind.ERROR, encode_error(FULL))
    state.forget_commit()

    link.lose(LOST, is_final=False)

    assert state.is_doomed


def test_a_commit_that_was_rolled_back_leaves_nothing_to_commit(link):
    """The node has dropped it."""
    state = _open(link)
    state.has_work = True
    error = hms.TransactionRolledBack(reason="it was idle")
    answer(link, state.commit().frame, Kind.ERROR, encode_error(error))

    assert state.commit() is None


def test_what_nobody_waited_for_and_was_refused_is_in_no_later_commit(link):
    """It was said to be in doubt; the node has kept it with what was done since."""
    state = _open(link)
    state.has_work = True
    late = state.commit()
    state.forget_commit()
    state.has_work = True
    answer(link, late.frame, Kind.ERROR, encode_error(FULL))

    assert isinstance(state.failed_send, hms.QueueFull)


def test_a_producer_that_is_refused_fails_the_transaction_of_its_sends(link):
    """The rest was committed without them."""
    state = _open(link)
    sender, opening = open_sender(link, state, hms.Queue("q"), "")
    sender.add(hms.Message(b"x").encode(), PendingSend(1, [], SendOptions()), is_persistent=True)

    error = DestinationNotFound(kind="queue", destination="q")
    answer(link, opening.pending.frame, Kind.ERROR, encode_error(error))

    assert isinstance(state.failed_send, hms.DestinationNotFound)


def test_a_producer_that_was_closed_before_it_is_opened_again_may_be_refused(link):
    """Whoever read the answer got a KeyError, and what came behind it was not read."""
    state = _open(link)
    sender, opening = open_sender(link, state, hms.Queue("q"), "")
    answer(link, opening.pending.frame, Kind.REPLY, structures.encode({"last_sequence": 0}))
    state._sender_back(sender.number, opening.pending)
    del state.senders[sender.number]

    opening.pending.error = DestinationNotFound(kind="queue", destination="q")
    state._sender_back(sender.number, opening.pending)

    assert link.calls == []


class _Requests:
    def __init__(self, link: Link) -> None:
        self.link = link


def test_a_producer_that_is_closed_before_it_is_granted_stays_closed(link):
    """It was opened again with each connection until its session closed."""
    state = _open(link)
    sender, opening = open_sender(link, state, hms.Queue("q"), "")

    assert list(close_sender(_Requests(link), state, sender)) == []
    answer(link, opening.pending.frame, Kind.REPLY, structures.encode({"last_sequence": 0}))

    assert state.all_senders == []
    last = structures.decode_request(sent(link, Kind.REQUEST)[-1])
    assert last == structures.CloseProducer(sender.number)
