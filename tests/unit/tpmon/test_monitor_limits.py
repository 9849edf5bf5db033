"""The monitor: how calls end when their time is over."""

import pytest
from monitor_rig import S1, Rig, answer_of, invoke_of

from hms.errors.catalogue import ServiceHung, ServiceTimeout
from tpmon.scheduling.monitor import Kill, Rules


def test_a_waiting_call_ends_at_its_deadline(rig):
    """The caller has stopped waiting; nobody needs it to run."""
    rig.serve(S1, "SLOW")
    rig.call("SLOW", b"long")
    rig.call("SLOW", b"short", timeout_ms=1500, now_ms=1000)
    rig.effects()

    rig.monitor.tick(2499)
    assert rig.effects() == []
    rig.monitor.tick(2500)

    head = answer_of(rig.effects()).head
    assert (head.error_number, head.error_fields["timeout_s"]) == (ServiceTimeout.number, 1.5)


def test_a_result_after_the_deadline_is_dropped_and_frees_the_server(rig):
    """Each call is answered once, and a slow handler must not cost its server."""
    rig.serve(S1, "SLOW")
    rig.call("SLOW", timeout_ms=1000)
    late = invoke_of(rig.effects())
    rig.monitor.tick(1000)
    assert answer_of(rig.effects()).head.error_number == ServiceTimeout.number
    rig.call("SLOW", b"next")
    assert rig.effects() == []

    rig.finish(late, data=b"too late")

    assert invoke_of(rig.effects()).data == b"next"


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(5000, 5000), (0, 2000)])
def test_the_callers_block_time_holds_before_the_services_and_the_nodes(timeout_ms, waits_ms):
    """Who waits knows best how long; who says nothing waits as long as the operator thinks."""
    rig = Rig(rules={"SLOW": Rules(block_ms=2000)}, block_ms=9000)
    rig.serve(S1, "SLOW", "PLAIN")

    rig.call("SLOW", timeout_ms=timeout_ms)
    assert invoke_of(rig.effects()).head.deadline_ms == waits_ms
    rig.call("PLAIN")
    rig.monitor.tick(9000)

    assert [a.head.error_number for a in rig.effects()] == [ServiceTimeout.number] * 2


def test_a_service_that_runs_past_its_limit_is_a_server_error_and_its_process_is_ended():
    """It would be busy for ever; the caller is told that it is the server's fault."""
    rig = Rig(rules={"SLOW": Rules(limit_ms=1000)})
    rig.serve(S1, "SLOW", name="slow:7")
    rig.call("SLOW", now_ms=500)
    rig.effects()

    rig.monitor.tick(1499)
    assert rig.effects() == []
    rig.monitor.tick(1500)
    rig.monitor.tick(2500)

    answer, kill = rig.effects()
    assert answer.head.error_number == ServiceHung.number
    assert kill == Kill("slow:7")


def test_a_server_whose_caller_gave_up_before_is_ended_at_the_limit_too():
    """Otherwise calls with a short patience could make every server hang."""
    rig = Rig(rules={"SLOW": Rules(limit_ms=1000)})
    rig.serve(S1, "SLOW", name="slow:7")
    rig.call("SLOW", timeout_ms=100)
    rig.effects()

    rig.monitor.tick(100)
    rig.monitor.tick(1000)

    answer, kill = rig.effects()
    assert (answer.head.error_number, kill) == (ServiceTimeout.number, Kill("slow:7"))


def test_the_services_own_limit_ends_a_listeners_call_too():
    """A handler that hangs must not hold a message, and its session, for ever."""
    rig = Rig(rules={"SLOW": Rules(limit_ms=1000)})
    rig.serve(S1, "SLOW")
    rig.listen("SLOW", b"m1")
    rig.listen("SLOW", b"m2")
    rig.effects()

    rig.monitor.tick(1000)

    assert answer_of(rig.effects()).origin.token == b"m1"


def test_the_node_is_told_when_the_next_call_is_over():
    """A call that may take 100 ms is not over only at the next second."""
    rig = Rig(rules={"LIMITED": Rules(limit_ms=300)})
    rig.serve(S1, "SLOW", "LIMITED")
    rig.call("SLOW", timeout_ms=100, now_ms=1000)
    rig.call("SLOW", timeout_ms=50, now_ms=1000)
    assert rig.monitor.times.due_ms == 1060

    rig.monitor.tick(1060)
    assert rig.monitor.times.due_ms == 1100

    rig.monitor.tick(1100)
    assert rig.monitor.times.due_ms is None
    invoke, *late = rig.effects()
    assert [a.head.error_number for a in late] == [ServiceTimeout.number] * 2
    rig.finish(invoke)
    rig.call("LIMITED", now_ms=1100)
    assert rig.monitor.times.due_ms == 1400
