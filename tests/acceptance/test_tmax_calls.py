"""The tp functions of clients and services, against a real node and real server processes."""

import os
import queue
import threading
from pathlib import Path

import pytest
from services_rig import WAIT_S, until

import hms
import tpmon
from field_buffer import FieldBuffer
from hms.testing import node

CONFIG = """
[server.tmax]
module = "tmax_services"
MIN = 2
MAX = 2
restart_delay_s = 0
MAXRSTART = -1
[service.MEET]
concurrency = 1
[hms.topic.alerts]
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with node(config=CONFIG, python_path=[Path(__file__).parent]) as started:
        yield started


@pytest.fixture
def connected(running, monkeypatch):
    """tpstart() to a node whose servers are all there."""
    monkeypatch.setenv("HMS_ADDRESS", running.address)
    tpmon.tpstart(tpmon.TPSTART_T(usrname="ann", cltname="till"))
    until(lambda: tpmon.tpcall("WHO"), hms.ServiceNotFound)
    yield running
    tpmon.tpend()


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("data", ["text", b"bytes", {"a": [1, None]}, None, FieldBuffer({"A": 1})])
def test_every_type_of_buffer_comes_back_as_it_was(data):
    """STRING, CARRAY, a mapping, nothing and FIELD."""
    assert tpmon.tpcall("ECHO", data).data == data


@pytest.mark.usefixtures("connected")
def test_a_forwarded_call_is_answered_by_the_last_service():
    """tpforward: the caller sees one call."""
    assert tuple(tpmon.tpcall("FIRST", "to")) == (0, 7, "to first second")
    with pytest.raises(hms.ForwardLimit):
        tpmon.tpcall("CIRCLE", "")


@pytest.mark.usefixtures("connected")
def test_a_service_calls_another_one_without_connecting():
    """F-A3: a server is connected by being booted."""
    assert tpmon.tpcall("NESTED").data == "nested second"


@pytest.mark.usefixtures("connected")
def test_a_failure_of_the_application_comes_with_its_reply():
    """TPESVCFAIL, the data and tpurcode."""
    reply = tpmon.tpcall("FAIL")

    assert (reply.tperrno, reply.data) == (tpmon.TPESVCFAIL, "sold out")
    assert (tpmon.gettperrno(), tpmon.gettpurcode()) == (tpmon.TPESVCFAIL, 42)


@pytest.mark.usefixtures("connected")
def test_wrong_flags_and_wrong_types_are_refused_by_their_numbers():
    """TPEINVAL, TPEITYPE, TPEOTYPE."""
    for attempt, tperrno in (
        (lambda: tpmon.tpcall("ECHO", "", tpmon.TPNOREPLY), tpmon.TPEINVAL),
        (lambda: tpmon.tpcall("TEXT", b"bytes"), tpmon.TPEITYPE),
        (lambda: tpmon.tpcall("WHO", "text", tpmon.TPNOCHANGE), tpmon.TPEOTYPE),
        (lambda: tpmon.tpcall("NOBODY"), tpmon.TPENOENT),
        (lambda: tpmon.tpcall("GARBAGE"), tpmon.TPESVCFAIL),
        (lambda: tpmon.tpcall("DIE"), tpmon.TPESVCERR),
        (lambda: tpmon.tpgetrply(99), tpmon.TPEBADDESC),
    ):
        with pytest.raises(hms.HmsError):
            attempt()
        assert tpmon.gettperrno() == tperrno


@pytest.mark.usefixtures("connected")
def test_a_late_reply_never_becomes_the_reply_of_another_call(tmp_path):
    """TPETIME: what the service answers afterwards is dropped."""
    os.mkfifo(tmp_path / "pipe")
    tpmon.tpset_timeout(1)
    with pytest.raises(hms.ServiceTimeout):
        tpmon.tpcall("MEET", str(tmp_path / "pipe"))
    tpmon.tpset_timeout(0)
    late = tpmon.tpacall("ECHO", "mine")
    with (tmp_path / "pipe").open("w") as pipe:
        pipe.write("late")

    assert tpmon.tpgetrply(late).data == "mine"
    assert [tpmon.tpcall("ECHO", str(n)).data for n in range(20)] == [str(n) for n in range(20)]


@pytest.mark.usefixtures("connected")
def test_a_call_that_may_not_wait_is_refused_while_no_server_may_take_it(tmp_path):
    """TPNOBLOCK, here because of the service's concurrency of one."""
    os.mkfifo(tmp_path / "pipe")
    first = tpmon.tpacall("MEET", str(tmp_path / "pipe"))

    with pytest.raises(hms.ServiceBusy):
        tpmon.tpcall("MEET", "nothing", tpmon.TPNOBLOCK)
    with pytest.raises(hms.CallWouldBlock):
        tpmon.tpgetrply(first, tpmon.TPNOBLOCK)
    with (tmp_path / "pipe").open("w") as pipe:
        pipe.write("hello")

    assert tpmon.tpgetrply(first).data == "hello"


@pytest.mark.usefixtures("connected")
def test_the_reply_to_any_call_and_a_cancelled_one():
    """TPGETANY takes what is there; what was cancelled is never given."""
    calls = [tpmon.tpacall("ECHO", str(n)) for n in range(5)]
    tpmon.tpcancel(calls.pop())

    replies = {(reply := tpmon.tpgetrply(flags=tpmon.TPGETANY)).cd: reply.data for _ in calls}

    assert replies == {cd: str(n) for n, cd in enumerate(calls)}
    with pytest.raises(hms.CallDescriptorUnknown):
        tpmon.tpgetrply()


def test_the_comfortable_layer_calls_and_promises(connected):
    """conn.call, call_async, and what TPFAIL is there."""
    with hms.connect(connected.address) as conn:
        assert conn.call("ECHO", {"a": 1}, timeout_s=WAIT_S).data == {"a": 1}
        futures = [conn.call_async("ECHO", n_text) for n_text in ("1", "2", "3")]
        assert [f.result(WAIT_S).data for f in futures] == ["1", "2", "3"]
        with pytest.raises(hms.ServiceFailedReply) as failed:
            conn.call("FAIL")
        assert (failed.value.reply.data, failed.value.rcode) == ("sold out", 42)
        assert isinstance(conn.call_async("NOBODY").exception(WAIT_S), hms.ServiceNotFound)


@pytest.mark.usefixtures("connected")
def test_a_conversation_takes_turns_until_its_caller_leaves():
    """tpconnect, tpsend with and without control, tprecv, tpdiscon."""
    cd = tpmon.tpconnect("SUM", None, tpmon.TPSENDONLY)
    for amount in range(1, 50):
        assert tpmon.tpsend(cd, {"add": amount, "ask": False}) == 0
    assert tpmon.tpsend(cd, {"add": 50, "ask": True}, tpmon.TPRECVONLY) == 0

    assert tpmon.tprecv(cd) == (tpmon.TPEV_SENDONLY, {"sum": 1275})
    tpmon.tpdiscon(cd)
    with pytest.raises(hms.CallDescriptorUnknown):
        tpmon.tpsend(cd, {"add": 1, "ask": False})


def test_a_conversation_as_an_object(connected):
    """A generator on the server's side; control goes to and fro."""
    with (
        hms.connect(connected.address) as conn,
        conn.conversation("COUNTDOWN", {"from": 40}, start="receive") as talk,
    ):
        numbers = [talk.receive()["number"] for _ in range(40)]

        assert numbers == list(range(40, 0, -1))
        assert talk.receive() == "liftoff"
        with pytest.raises(hms.ConversationEnded):
            talk.receive()


@pytest.mark.usefixtures("connected")
def test_the_end_of_a_conversation_is_an_event_with_the_services_data():
    """TPEV_SVCSUCC, its data and its rcode."""
    cd = tpmon.tpconnect("COUNTDOWN", {"from": 1}, tpmon.TPRECVONLY)

    assert tpmon.tprecv(cd) == (0, {"number": 1})
    assert tpmon.tprecv(cd) == (tpmon.TPEV_SVCSUCC, "liftoff")
    assert (tpmon.gettperrno(), tpmon.gettpurcode()) == (tpmon.TPEEVENT, 5)


@pytest.mark.usefixtures("connected")
def test_who_has_no_control_may_not_speak():
    """TPEPROTO, and nothing is said."""
    cd = tpmon.tpconnect("SUM", None, tpmon.TPRECVONLY)
    with pytest.raises(hms.ConversationProtocol):
        tpmon.tpsend(cd, {"add": 1, "ask": False})
    tpmon.tpdiscon(cd)


@pytest.mark.usefixtures("connected")
def test_a_server_that_dies_in_a_conversation_is_an_event():
    """TPEV_SVCERR, not a wait without end."""
    cd = tpmon.tpconnect("CHATDIE", None, tpmon.TPSENDONLY)
    tpmon.tpsend(cd, "go", tpmon.TPRECVONLY)

    assert tpmon.tprecv(cd)[0] == tpmon.TPEV_SVCERR
    until(lambda: tpmon.tpcall("WHO"), hms.HmsError)


@pytest.mark.parametrize("leaves", ["tpdiscon", "close"])
def test_a_service_learns_that_its_caller_has_left(connected, tmp_path, leaves):
    """Whether it said so or was lost; the server is free again."""
    told = tmp_path / "told"
    with hms.connect(connected.address) as conn:
        talk = conn.conversation("WATCH", str(told), start="send")
        if leaves == "tpdiscon":
            talk.close()
    assert until(lambda: told.exists() and told.read_text()) == "ConversationEnded"


@pytest.mark.usefixtures("connected")
def test_unsolicited_messages_reach_whom_they_are_for():
    """By name with tpbroadcast, by a request's cltid with tpnotify."""
    got = queue.SimpleQueue()
    tpmon.tpsetunsol(lambda data, *_: got.put(data))

    assert tpmon.tpbroadcast(cltname="nobody", data="x") == 0
    assert tpmon.tpbroadcast(usrname="ann", data={"all": 1}) >= 1
    assert got.get(timeout=WAIT_S) == {"all": 1}
    assert tpmon.tpcall("TELL").data == "done"
    assert got.get(timeout=WAIT_S) == "soon"


@pytest.mark.usefixtures("connected")
def test_unsolicited_messages_are_kept_for_who_asks_for_them():
    """tpgetunsol, tpchkunsol."""
    tpmon.tpnotify(tpmon.tpgetclid(), "kept")

    until(tpmon.tpchkunsol)

    assert tpmon.tpgetunsol() == "kept"
    assert tpmon.tpgetunsol() is None
    with pytest.raises(hms.HandleUnknown):
        tpmon.tpnotify(10**9, "gone")


@pytest.mark.usefixtures("connected")
def test_an_event_reaches_its_subscribers_until_they_unsubscribe():
    """With a filter; events are topics underneath."""
    got = queue.SimpleQueue()
    tpmon.tpsetunsol(lambda data, *_: got.put(data))
    sd = tpmon.tpsubscribe("alerts", "LEVEL > 3")

    tpmon.tppost("alerts", FieldBuffer({"LEVEL": 1}))
    tpmon.tppost("alerts", FieldBuffer({"LEVEL": 5}))

    assert got.get(timeout=WAIT_S)["LEVEL"] == [5]
    tpmon.tpunsubscribe(sd)
    tpmon.tppost("alerts", FieldBuffer({"LEVEL": 9}))
    assert got.empty()
    with pytest.raises(hms.DestinationNotFound):
        tpmon.tppost("nowhere", "x")


@pytest.mark.usefixtures("connected")
def test_each_thread_has_a_context_of_its_own():
    """One thread's tperrno and connection are not another's."""
    seen = []

    def other():
        try:
            tpmon.tpcall("WHO")
        except hms.NotConnected as error:
            seen.append((error.tperrno, tpmon.gettperrno()))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(WAIT_S)

    assert seen == [(tpmon.TPEPROTO, tpmon.TPEPROTO)]
    assert tpmon.tpcall("WHO").data
