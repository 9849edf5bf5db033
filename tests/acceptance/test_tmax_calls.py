"""The tp functions of clients and services, against a real node and real server processes."""

import asyncio
import os
import threading

import pytest
from services_rig import WAIT_S
from tmax_rig import connected, running

import hms
import tpmon
from field_buffer import FieldBuffer


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("data", ["text", b"bytes", {"a": [1, None]}, None, FieldBuffer({"A": 1})])
def test_every_type_of_buffer_comes_back_as_it_was(data):
    """STRING, CARRAY, a mapping, nothing and FIELD."""
    assert tpmon.tpcall("ECHO", data).data == data


__all__ = ["connected", "running"]


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
    """TPETIME: what the service answers afterwards is dropped. On a busy machine the node's own
    word comes later than GRACE_S, and the caller says that the node is silent."""
    os.mkfifo(tmp_path / "pipe")
    tpmon.tpset_timeout(1)
    with pytest.raises((hms.ServiceTimeout, hms.NodeSilent)):
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


def test_the_asyncio_twin_calls_and_promises(connected):
    """The same names, awaited."""

    async def calls():
        async with hms.aio.connect(connected.address) as conn:
            first = await conn.call("ECHO", "one", timeout_s=WAIT_S)
            tasks = [conn.call_async("ECHO", text) for text in ("two", "three")]
            with pytest.raises(hms.ServiceFailedReply):
                await conn.call("FAIL")
            return [first.data, *[(await task).data for task in tasks]]

    assert asyncio.run(calls()) == ["one", "two", "three"]
