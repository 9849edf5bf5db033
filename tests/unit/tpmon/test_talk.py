"""Talk: one side of a conversation, without a node."""

import pickle

import pytest

import hms
from hms.client.core.conversation_state import (
    DATA,
    DISCONNECTED,
    ROOM,
    WINDOW,
    ConversationState,
    Part,
)
from hms.errors.catalogue import ConnectionLost, ConversationProtocol, RequestTimeout
from hms.wire.structures import TalkHead, decode_with_body
from tpmon.constants import TPEV_DISCONIMM, TPEV_SVCERR


class Wire:
    """Keeps what a side says."""

    def __init__(self):
        self.said = []

    def tell(self, _, payload=b""):
        self.said.append(decode_with_body(payload, TalkHead))


def side(*, is_server=False, has_control=True):
    wire = Wire()
    return ConversationState(wire, 5, is_server=is_server, has_control=has_control), wire


def outcome(steps):
    """Drive an operation that must not wait; a wait that is not over is a time-out."""
    try:
        step = next(steps)
        while True:
            step = steps.send(bool(step.is_done()))
    except StopIteration as ended:
        return ended.value


def test_a_client_has_no_room_until_the_service_begins():
    """What it says before would have to be kept by the node."""
    talk, wire = side()
    with pytest.raises(RequestTimeout):
        outcome(talk.sending(Part(), 0))

    talk.arrived(TalkHead(5, ROOM, count=1), b"")

    assert outcome(talk.sending(Part(0, b"hello"), 0)) == 0
    assert wire.said[-1] == (TalkHead(5, DATA, 0), b"hello")
    with pytest.raises(RequestTimeout):
        outcome(talk.sending(Part(), 0))


def test_control_goes_to_and_fro():
    """Who has handed it over listens."""
    talk, _ = side(is_server=True)
    outcome(talk.sending(Part(gives_control=True), 0))
    with pytest.raises(ConversationProtocol):
        outcome(talk.sending(Part(), 0))

    talk.arrived(TalkHead(5, DATA, gives_control=True), b"yours")

    assert outcome(talk.receiving(0)) == (0, Part(6, b"yours", gives_control=True))
    with pytest.raises(ConversationProtocol):
        outcome(talk.receiving(0))


def test_what_came_before_the_end_is_heard_before_it():
    """The last words count."""
    talk, _ = side(has_control=False)
    talk.arrived(TalkHead(5, DATA, 0), b"last words")
    talk.arrived(TalkHead(5, DISCONNECTED), b"")

    assert outcome(talk.receiving(0))[1].data == b"last words"
    assert outcome(talk.receiving(0))[0] == TPEV_DISCONIMM


def test_a_side_that_talks_too_much_is_left():
    """P8: its partner's memory is not its own."""
    talk, wire = side(is_server=True, has_control=False)
    for _ in range(WINDOW + 1):
        talk.arrived(TalkHead(5, DATA), b"")

    assert talk.event == TPEV_DISCONIMM
    assert wire.said[-1][0].what == DISCONNECTED


def test_room_is_given_back_as_words_are_taken():
    """Otherwise a conversation would end after its first window."""
    talk, wire = side(is_server=True, has_control=False)
    for _ in range(WINDOW):
        talk.arrived(TalkHead(5, DATA), b"")
    for _ in range(WINDOW):
        outcome(talk.receiving(0))

    assert sum(head.count for head, _ in wire.said if head.what == ROOM) == WINDOW


def test_a_lost_connection_ends_it():
    """For the client the server is gone, for the server its caller."""
    client, _ = side()
    server, _ = side(is_server=True)
    for talk in (client, server):
        talk.lost(ConnectionLost(address="x", reason="y"))

    assert (client.event, server.event) == (TPEV_SVCERR, TPEV_DISCONIMM)


@pytest.mark.parametrize("verdict", [hms.Reject("no"), hms.Retry("later", delay_s=2)])
def test_a_verdict_survives_a_process_boundary(verdict):
    """A handler may have it raised in a pool of processes."""
    again = pickle.loads(pickle.dumps(verdict))

    assert (type(again), again.fields) == (type(verdict), verdict.fields)
