"""The Tmax layer, hms_ and tp functions, against a scripted node."""

import threading

import pytest
from client_frames import browsed
from client_rig import WAIT_S, FakeNode

import hms
import tpmon
from field_buffer import FieldBuffer
from hms.client import settlement
from hms.wire import structures
from hms.wire.frames import Action, Kind
from hms.wire.structures import Browse, CallHead, OpenConsumer, OpenSession, ResultHead


@pytest.fixture
def connected(node: FakeNode, monkeypatch: pytest.MonkeyPatch):
    """tpstart() to the fake node, tpend() after the test."""
    monkeypatch.setenv("HMS_ADDRESS", node.address)
    tpmon.tpstart(tpmon.TPSTART_T(usrname="app", cltname="test"))
    yield
    tpmon.tpend()


def answer_calls(node: FakeNode, respond) -> None:
    """Answer each CALL with what respond(head, data) gives: a ResultHead and bytes."""

    def script(payload: bytes):
        result, data = respond(*structures.decode_with_body(payload, CallHead))
        return Kind.ANSWER, structures.encode_with_body(result, data)

    node.on[Kind.CALL] = script


def echo(head: CallHead, data: bytes) -> tuple[ResultHead, bytes]:
    return ResultHead(0, tpmon.TPSUCCESS, 7, head.kind), data


@pytest.mark.usefixtures("connected")
def test_a_message_goes_out_and_comes_back_through_the_hms_functions(node):
    """The call order of Tmax's own samples."""
    session = hms.hms_create_session("hms01")
    sender = hms.hms_create_sender(session, "orders", "p1")
    message = hms.hms_alloc(session, 1024)
    hms.hms_set_property(message, "Month", hms.HMS_SHORT, 5)
    hms.hms_set_body(message, b"body")
    hms.hms_sendex(sender, message, hms.HMS_DLV_PERSISTENT, 4, 60)
    receiver = hms.hms_create_receiver(session, "orders", "c1")
    node.deliver((7, b"answer"))

    got = hms.hms_recvex(receiver, WAIT_S)

    assert hms.hms_get_property(message, "$MessageID")[1] == "000000000001"
    assert hms.hms_get_property(message, "Month") == (hms.HMS_SHORT, 5)
    assert hms.hms_get_body(got) == b"answer"
    hms.hms_close_receiver(receiver)
    hms.hms_close_sender(sender)
    hms.hms_close_session(session)
    hms.hms_free(message)


@pytest.mark.usefixtures("connected")
def test_a_receive_that_takes_too_long_is_tpetime():
    """TMAX.md: a program tests tperrno for TPETIME."""
    session = hms.hms_create_session("hms01")
    receiver = hms.hms_create_receiver(session, "orders", "c1")

    with pytest.raises(hms.TpTimeout) as late:
        hms.hms_recvex(receiver, 0.01)

    assert late.value.tperrno == tpmon.gettperrno() == tpmon.TPETIME


@pytest.mark.usefixtures("connected")
def test_acknowledging_upthrough_takes_what_came_before(node):
    """HMS_ACK_UPTHROUGH: this one and all earlier ones of its consumer."""
    session = hms.hms_create_session("hms01", 0, hms.HMS_CLIENT_ACK)
    receiver = hms.hms_create_receiver(session, "orders", "c1")
    node.deliver(*((number, b"x") for number in range(1, 5)))
    messages = [hms.hms_recv(receiver) for _ in range(4)]

    hms.hms_ack(messages[3], hms.HMS_ACK_ONE)
    hms.hms_ack(messages[1], hms.HMS_ACK_UPTHROUGH)

    assert sorted(node.settled(Action.ACKNOWLEDGE)) == [1, 2, 4]


@pytest.mark.usefixtures("connected")
def test_a_transacted_session_commits_and_rolls_back(node):
    """hms_commit, hms_rollback."""
    session = hms.hms_create_session("hms01", hms.HMS_TRANSACTED_SESSION)
    publisher = hms.hms_create_publisher(session, "news")
    hms.hms_send(publisher, hms.hms_alloc(session))
    hms.hms_commit(session)
    hms.hms_rollback(session)

    assert node.commits == {session.state.number: 1}


@pytest.mark.usefixtures("connected")
def test_the_acknowledgement_modes_of_tmax_are_those_of_the_session(node, monkeypatch):
    """HMS_DUPS_OK_ACK is lazy (F-B3), and without meaning in a transacted session (F-B5)."""
    monkeypatch.setattr(settlement, "LAZY_TICK_S", 10 * WAIT_S)  # their number alone decides
    lazy = hms.hms_create_session("hms01", hms.HMS_NORMAL_SESSION, hms.HMS_DUPS_OK_ACK)
    both = hms.hms_create_session("hms01", hms.HMS_TRANSACTED_SESSION, hms.HMS_DUPS_OK_ACK)
    receiver = hms.hms_create_receiver(lazy, "orders", "c1")
    node.deliver(*((number, b"x") for number in range(1, 12)))
    for _ in range(11):
        hms.hms_recvex(receiver, WAIT_S)

    node.wait(lambda: node.settled(Action.ACKNOWLEDGE) == list(range(1, 11)))

    assert (lazy.ack_mode, both.ack_mode) == (hms.AckMode.DUPS_OK, hms.AckMode.AUTO)
    assert [opening.ack_mode for opening in node.requests(OpenSession)] == [1, 0]
    hms.hms_close_session(lazy)
    assert node.settled(Action.ACKNOWLEDGE) == list(range(1, 12))
    with pytest.raises(hms.IllegalState):
        hms.hms_create_session("hms01", hms.HMS_TRANSACTED_SESSION, hms.HMS_CLIENT_ACK)


@pytest.mark.usefixtures("connected")
def test_a_durable_subscriber_and_a_listener_name_what_they_are(node):
    """HMS_DURABLE and svcname reach the node."""
    session = hms.hms_create_async_session("hms01")
    hms.hms_create_durable_subscriber(session, "news", "billing", "A = 1", "NEWS_SVC")
    hms.hms_unsubscribe_durable_subscriber(session, "news", "billing")

    opening = node.requests(OpenConsumer)[0]
    assert (opening.durable, opening.listener, opening.selector) == ("billing", "NEWS_SVC", "A = 1")


@pytest.mark.usefixtures("connected")
def test_a_browser_ends_with_none(node):
    """Tmax does not say what the end is; ours is None."""
    node.on[Browse] = lambda _: browsed((1, b"a"), follows=False, position=1)
    browser = hms.hms_create_browser(
        hms.hms_create_session("hms01"), "orders", None, hms.HMS_QB_FIRST
    )

    assert hms.hms_browser_nextmsg(browser).body == b"a"
    assert hms.hms_browser_nextmsg(browser) is None
    assert hms.hms_browser_get_queue(browser) == "orders"
    assert node.requests(Browse)[0].is_oldest_first


def test_without_tpstart_there_is_no_connection():
    """TPEPROTO, as in Tmax; and it is per thread."""
    with pytest.raises(hms.NotConnected):
        hms.hms_create_session("hms01")
    assert tpmon.gettperrno() == tpmon.TPEPROTO


@pytest.mark.usefixtures("connected")
def test_the_context_belongs_to_the_thread():
    """A second thread has to call tpstart() itself."""
    found = []

    def look() -> None:
        try:
            tpmon.tpget_timeout()
        except hms.NotConnected as error:
            found.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(WAIT_S)

    assert len(found) == 1


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("data", [None, b"bytes", "text", {"A": 1}, FieldBuffer({"A": "1"})])
def test_data_of_every_kind_goes_through_a_call(node, data):
    """A service gets what its caller gave, and the other way round."""
    answer_calls(node, echo)

    tperrno, tpurcode, reply = tpmon.tpcall("ECHO", data)

    assert (tperrno, tpurcode, reply) == (0, 7, data)
    assert tpmon.gettpurcode() == 7


@pytest.mark.usefixtures("connected")
def test_a_service_that_fails_itself_is_replied_not_raised(node):
    """TPFAIL carries data; only errors of the system raise."""
    answer_calls(node, lambda head, data: (ResultHead(0, tpmon.TPFAIL, 3, head.kind), data))

    reply = tpmon.tpcall("FAILS", "why")

    assert (reply.tperrno, reply.tpurcode, reply.data) == (tpmon.TPESVCFAIL, 3, "why")
    assert tpmon.gettperrno() == tpmon.TPESVCFAIL


@pytest.mark.usefixtures("connected")
def test_an_unknown_service_is_tpenoent(node):
    """The catalogue's error comes from the node."""

    def refuse(head: CallHead, data: bytes):
        raise hms.ServiceNotFound(service=head.service, at="node n")

    answer_calls(node, refuse)
    with pytest.raises(hms.ServiceNotFound, match="NOWHERE"):
        tpmon.tpcall("NOWHERE")
    assert tpmon.gettperrno() == tpmon.TPENOENT


@pytest.mark.usefixtures("connected")
def test_replies_are_fetched_by_number_or_as_they_come(node):
    """tpacall, tpgetrply, TPGETANY."""
    answer_calls(node, echo)
    first, second = tpmon.tpacall("ECHO", "1"), tpmon.tpacall("ECHO", "2")

    assert tpmon.tpgetrply(second).data == "2"
    reply = tpmon.tpgetrply(0, tpmon.TPGETANY)
    assert (reply.cd, reply.data) == (first, "1")
    with pytest.raises(hms.CallDescriptorUnknown):
        tpmon.tpgetrply(first)


@pytest.mark.usefixtures("connected")
def test_a_reply_that_is_not_here_yet_can_be_asked_for_without_waiting(node):
    """TPNOBLOCK; and a cancelled call is unknown."""
    node.on[Kind.CALL] = lambda _: None
    cd = tpmon.tpacall("SLOW")

    with pytest.raises(hms.CallWouldBlock):
        tpmon.tpgetrply(cd, tpmon.TPNOBLOCK)
    tpmon.tpcancel(cd)
    with pytest.raises(hms.CallDescriptorUnknown):
        tpmon.tpgetrply(cd)


def test_the_context_object_is_connection_and_session_at_once(node):
    """F-B9: the simple case in two lines."""
    with hms.context(node.address, request_timeout_s=WAIT_S) as context:
        assert context.send(hms.Queue("q"), b"x").message_id == "000000000001"
        assert context.receive(hms.Queue("q"), timeout_s=0.01) is None
        node.deliver((1, b"y"))
        assert context.receive("q", timeout_s=WAIT_S).body == b"y"
