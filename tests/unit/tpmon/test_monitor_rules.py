"""The monitor: priorities, concurrency, forwarding, signatures, conversations, and its counts."""

import pytest
from monitor_rig import CLIENT, S1, S2, Rig, answer_of, invoke_of

from hms.errors.catalogue import (
    ForwardLimit,
    ServerLost,
    ServiceBusy,
    ServiceMismatch,
    ServiceNotFound,
)
from hms.wire.structures import TalkHead
from tpmon.constants import TPFAIL
from tpmon.scheduling.call_statistics import Tally
from tpmon.scheduling.conversation_relay import DATA, DISCONNECTED
from tpmon.scheduling.monitor import Invoke, Rules, Say


def test_the_call_of_the_higher_priority_goes_first():
    """PRIO of [service.NAME]: the till before the report."""
    rig = Rig(rules={"TILL": Rules(priority=90)})
    rig.serve(S1, "REPORT", "TILL")
    for service in ("REPORT", "REPORT", "TILL"):
        rig.call(service, service.encode())
    running = invoke_of(rig.effects())

    rig.finish(running)

    assert rig.effects()[-1].data == b"TILL"


def test_a_service_runs_no_more_calls_at_once_than_its_concurrency():
    """A database that takes two at a time is not asked by ten."""
    rig = Rig(rules={"NARROW": Rules(concurrency=1)})
    rig.serve(S1, "NARROW", "OTHER")
    rig.serve(S2, "NARROW", "OTHER")
    rig.call("NARROW", b"1")
    rig.call("NARROW", b"2")
    running = invoke_of(rig.effects())

    rig.call("OTHER", b"beside")
    assert invoke_of(rig.effects()).data == b"beside"
    rig.finish(running)

    assert rig.effects()[-1].data == b"2"


def test_a_lost_server_makes_room_in_its_services_concurrency():
    """Otherwise a crash would narrow the service for ever."""
    rig = Rig(rules={"NARROW": Rules(concurrency=1)})
    rig.serve(S1, "NARROW")
    rig.serve(S2, "NARROW")
    rig.call("NARROW", b"1")
    rig.call("NARROW", b"2")
    rig.effects()

    rig.monitor.lost(S1)

    answer, invoke = rig.effects()
    assert answer.head.error_number == ServerLost.number
    assert (invoke.connection, invoke.data) == (S2, b"2")


def test_a_call_that_may_not_wait_is_refused_when_nobody_is_free(rig):
    """TPNOBLOCK."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO", may_wait=False)

    with pytest.raises(ServiceBusy):
        rig.call("ECHO", may_wait=False)


def test_a_forwarded_call_keeps_its_caller_and_its_deadline(rig):
    """tpforward: the caller's patience is one."""
    rig.serve(S1, "FIRST")
    rig.serve(S2, "SECOND")
    rig.call("FIRST", correlation=7, timeout_ms=1000, now_ms=50)

    rig.finish(invoke_of(rig.effects()), data=b"on", forward="SECOND")
    second = invoke_of(rig.effects())
    rig.finish(second, data=b"done")

    assert (second.connection, second.head.deadline_ms, second.data) == (S2, 1050, b"on")
    assert answer_of(rig.effects()).origin.correlation == 7


@pytest.mark.parametrize(("to", "error"), [("FIRST", ForwardLimit), ("NOBODY", ServiceNotFound)])
def test_a_call_is_not_forwarded_in_circles_nor_to_nobody(rig, to, error):
    """It would run for ever, or be lost."""
    rig.serve(S1, "FIRST")
    rig.call("FIRST")
    effects = rig.effects()
    while isinstance(effects[0], Invoke):
        rig.finish(effects[0], forward=to)
        effects = rig.effects()

    assert answer_of(effects).head.error_number == error.number


def test_two_servers_of_one_name_must_take_the_same(rig):
    """New code of the same server may differ: it replaces the old."""
    rig.monitor.introduce(S1, "shop:1")
    rig.monitor.advertise(S1, "BUY", "request of JSON")
    rig.monitor.introduce(S2, "shop:2")
    rig.monitor.advertise(S2, "BUY", "request of STRING")

    rig.monitor.introduce(3, "mall:3")
    with pytest.raises(ServiceMismatch) as refused:
        rig.monitor.advertise(3, "BUY", "conversation")

    assert refused.value.fields["ours"] == "conversation"
    assert {s["name"]: s["servers"] for s in rig.monitor.describe()} == {"BUY": 2}


def test_the_parts_of_a_conversation_find_the_other_side(rig):
    """Each side knows it by a number of its own."""
    rig.serve(S1, "CHAT")
    rig.call("CHAT", correlation=9, mode=1)
    number = invoke_of(rig.effects()).head.call

    rig.monitor.talk(CLIENT, TalkHead(9, DATA), b"to the server")
    rig.monitor.talk(S1, TalkHead(number, DATA, is_from_server=True), b"to the client")
    rig.monitor.talk(S2, TalkHead(number, DATA, is_from_server=True), b"from a stranger")

    there, back = rig.effects()
    assert (there.connection, there.head.call, there.data) == (S1, number, b"to the server")
    assert (back.connection, back.head.call, back.data) == (CLIENT, 9, b"to the client")


@pytest.mark.parametrize("leave", ["disconnect", "lost"])
def test_a_server_is_told_that_its_partner_has_left(rig, leave):
    """It must not wait for words that never come; its result is for nobody."""
    rig.serve(S1, "CHAT")
    rig.call("CHAT", correlation=9, mode=1)
    invoke = invoke_of(rig.effects())

    if leave == "lost":
        rig.monitor.lost(CLIENT)
    else:
        rig.monitor.talk(CLIENT, TalkHead(9, DISCONNECTED), b"")
    (told,) = rig.effects()
    rig.finish(invoke)

    assert isinstance(told, Say)
    assert (told.connection, told.head.what) == (S1, DISCONNECTED)
    assert rig.effects() == []
    assert rig.monitor._calls.conversations == {}


def test_the_counts_tell_calls_failures_and_run_times(rig):
    """What hms service list shows."""
    rig.serve(S1, "ECHO", name="echo:1")
    for number in range(10):
        rig.call("ECHO", now_ms=number)
        rig.finish(invoke_of(rig.effects()[-1:]), elapsed_us=1000 * (number + 1))
    rig.call("ECHO")
    rig.finish(rig.effects()[-1], rval=TPFAIL, rcode=3)
    rig.monitor.tick(0)
    rig.monitor.tick(2000)

    (found,) = rig.monitor.describe()
    groups = rig.monitor.describe_groups()

    assert (found["calls"], found["failed"], found["last_error"]) == (11, 1, "TPFAIL, rcode 3")
    assert 5 <= found["p50_ms"] <= 7
    assert 10 <= found["p99_ms"] <= 13
    assert groups["echo"]["calls"] == 11


def test_a_tally_is_a_histogram_of_few_buckets_whose_sum_is_exact():
    """Each service has a series for each bucket, so there are fewer than for a percentile."""
    tally = Tally()
    for elapsed_us in (400, 90_000, 20_000_000):
        tally.ended(elapsed_us)
    tally.broke_off()
    told = tally.histogram()
    assert told["bounds"] == [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0]
    assert (told["counts"], told["sum"]) == ([1, 0, 0, 1, 0, 0, 0, 1], 20.0904)
