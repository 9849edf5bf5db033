"""The monitor: whose turn it is, and what is refused."""

import pytest
from monitor_rig import CLIENT, S1, S2, Rig, answer_of, invoke_of

from hms.errors.catalogue import InvalidArgument, ServiceLimit, ServiceNotFound, TooManyRequests
from hms.wire.structures import ResultHead
from tpmon.scheduling import call_scheduler, service_registry
from tpmon.scheduling.monitor import TPFAIL, TPSUCCESS, Answer, Invoke, Load, Origin


def test_a_call_runs_on_its_server_and_its_result_goes_to_whoever_asked(rig):
    """It is what a TP monitor is for."""
    rig.serve(S1, "ECHO")

    rig.call("ECHO", b"hello", correlation=7, kind=1)
    invoke = invoke_of(rig.effects())
    rig.finish(invoke, data=b"world", rcode=3, kind=2)

    assert (invoke.connection, invoke.head.service, invoke.data) == (S1, "ECHO", b"hello")
    assert invoke.head.kind == 1
    assert rig.effects() == [
        Answer(Origin(CLIENT, 7), ResultHead(0, TPSUCCESS, rcode=3, kind=2), b"world")
    ]


def test_a_call_goes_to_the_server_that_has_been_idle_longest(rig):
    """Otherwise one process works while its siblings sleep."""
    rig.serve(S1, "ECHO")
    rig.serve(S2, "ECHO")

    taken = []
    for _ in range(4):
        rig.call("ECHO")
        taken.append(invoke_of(rig.effects()))
        rig.finish(taken[-1])
        rig.effects()

    assert [invoke.connection for invoke in taken] == [S1, S2, S1, S2]


def test_a_busy_server_gets_its_next_call_only_after_its_result(rig):
    """A handler runs alone in its process; a second INVOKE would wait there, unseen by others."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO", b"1")
    rig.call("ECHO", b"2")
    first = invoke_of(rig.effects())

    rig.finish(first)

    answer, second = rig.effects()
    assert (first.data, second.data) == (b"1", b"2")
    assert isinstance(answer, Answer)


def test_a_server_of_two_services_takes_the_call_that_waits_longest(rig):
    """A busy service must not starve another that the same process offers."""
    rig.serve(S1, "A", "B")
    rig.call("A", b"running")
    running = invoke_of(rig.effects())
    for number, service in enumerate("BABA"):
        rig.call(service, b"%d" % number)

    taken = []
    while running:
        taken.append(running.data)
        rig.finish(running)
        running = next((e for e in rig.effects() if isinstance(e, Invoke)), None)

    assert taken == [b"running", b"0", b"1", b"2", b"3"]


def test_a_call_of_a_service_that_nobody_offers_is_refused(rig):
    """The caller learns it at once instead of by a timeout, and at which node: another one may
    offer it."""
    with pytest.raises(ServiceNotFound):
        rig.call("ECHO")

    assert rig.effects() == []
    with pytest.raises(ServiceNotFound, match="the service ECHO at node east"):
        Rig(node="east").call("ECHO")


def test_a_result_that_carries_an_error_or_another_rval_is_a_failure(rig):
    """A listener's message must not be acknowledged because a number is unknown."""
    rig.serve(S1, "ECHO")
    for more in ({"rval": 9}, {"rval": TPSUCCESS, "error_number": 6003}):
        rig.call("ECHO")
        rig.finish(invoke_of(rig.effects()), **more)
        assert answer_of(rig.effects()).head.rval == TPFAIL


def test_a_call_without_a_reply_is_answered_to_nobody(rig):
    """TPNOREPLY: the caller has no correlation to which an answer could belong."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO", is_reply_wanted=False)

    rig.finish(invoke_of(rig.effects()))

    assert rig.effects() == []


def test_advertising_twice_is_advertising_once(rig):
    """A request repeated after a reconnect must not fail, nor make one server look like two."""
    rig.serve(S1, "ECHO", "ECHO")

    (found,) = rig.monitor.describe()
    assert (found["name"], found["servers"], found["idle"]) == ("ECHO", 1, 1)


# limits


def test_calls_beyond_the_limit_are_refused(rig, monkeypatch):
    """P8: a service that hangs must not fill the node's memory with calls."""
    monkeypatch.setattr(call_scheduler, "CALLS_WAITING_MAX", 2)
    rig.serve(S1, "SLOW")
    for _ in range(3):
        rig.call("SLOW")

    with pytest.raises(ServiceLimit):
        rig.call("SLOW")


def test_the_bytes_of_waiting_calls_are_limited():
    """P8: ten thousand calls of 16 MiB each would be within the limit of calls."""
    rig = Rig(bytes_waiting_max=10)
    rig.serve(S1, "SLOW")
    rig.call("SLOW", b"running" * 100)
    running = invoke_of(rig.effects())
    rig.call("SLOW", b"12345678")
    with pytest.raises(TooManyRequests):
        rig.call("SLOW", b"123")

    rig.finish(running)
    rig.call("SLOW", b"123")

    assert rig.monitor.describe()[0]["waiting"] == 1


@pytest.mark.parametrize("timeout_ms", [-1, 1 << 63])
def test_a_timeout_that_is_no_time_is_refused(rig, timeout_ms):
    """A deadline beyond 64 bits could not be sent to the server, and would stop the node."""
    rig.serve(S1, "ECHO")

    with pytest.raises(InvalidArgument):
        rig.call("ECHO", timeout_ms=timeout_ms)


@pytest.mark.parametrize("name", ["", "x" * 128, "a\nb"])
def test_a_name_that_cannot_be_shown_is_refused(rig, name):
    """Names go into logs and tables."""
    with pytest.raises(InvalidArgument):
        rig.monitor.advertise(S1, name)


def test_a_connection_cannot_offer_services_without_end(rig, monkeypatch):
    """P8: every table has a limit."""
    monkeypatch.setattr(service_registry, "SERVICES_PER_SERVER_MAX", 2)
    rig.serve(S1, "A", "B")

    with pytest.raises(TooManyRequests):
        rig.monitor.advertise(S1, "C")


# looking


def test_the_load_of_each_server_counts_its_processes_and_waiting_calls(rig):
    """By it the node starts and ends processes between MIN and MAX."""
    rig.serve(S1, "A", "B", name="orders:100")
    rig.serve(S2, "A", "B", name="orders:101")
    rig.serve(3, "C", name="by hand")
    for service in "AABC":
        rig.call(service)

    assert rig.monitor.load() == [Load("orders", servers=2, busy=2, waiting=1)]
    assert rig.monitor.connections_of("orders:101") == [S2]
    assert rig.monitor.connections_of("") == []
