"""Conversations, unsolicited messages and events, against a real node and real servers."""

import queue

import pytest
from services_rig import WAIT_S, until
from tmax_rig import connected, running

import hms
import tpmon
from field_buffer import FieldBuffer

__all__ = ["connected", "running"]


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
