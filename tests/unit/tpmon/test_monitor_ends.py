"""The monitor: how calls end when somebody is lost, and the turns of listeners."""

import pytest
from monitor_rig import CLIENT, OTHER, S1, S2, answer_of, invoke_of
from msgspec.structs import replace

from hms.errors.catalogue import ServerLost, ServiceNotFound
from hms.server.service_monitor import Verdict
from tpmon.scheduling import service_registry
from tpmon.scheduling.monitor import TPSUCCESS, Invoke

# lost servers and clients


def test_the_loss_of_a_server_ends_the_call_that_it_ran(rig):
    """Whether the service took effect is unknown, so the caller must be told and decide."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO")
    rig.effects()

    rig.monitor.lost(S1)

    assert answer_of(rig.effects()).head.error_number == ServerLost.number
    assert not rig.monitor.is_offered("ECHO")


def test_calls_that_wait_go_on_with_the_servers_that_are_left(rig):
    """They have not begun, so nothing speaks against running them elsewhere."""
    rig.serve(S1, "ECHO")
    rig.serve(S2, "ECHO")
    for data in (b"1", b"2", b"3"):
        rig.call("ECHO", data)
    _, second = rig.effects()

    rig.monitor.lost(S1)
    rig.effects()
    rig.finish(second)

    assert [e.data for e in rig.effects() if isinstance(e, Invoke)] == [b"3"]


def test_calls_that_wait_for_the_last_server_are_refused_when_it_leaves(rig):
    """Nobody will run them; who called a moment later was refused as well."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO", b"1")
    rig.call("ECHO", b"2", correlation=2)
    first = invoke_of(rig.effects())

    rig.monitor.unadvertise(S1, "ECHO")

    answer = answer_of(rig.effects())
    assert (answer.origin.correlation, answer.head.error_number) == (2, ServiceNotFound.number)
    rig.finish(first)
    assert answer_of(rig.effects()).head.rval == TPSUCCESS


def test_calls_wait_for_a_server_that_the_node_starts_again(rig):
    """One crash of a handler should cost its caller a retry, not all other callers an error."""
    rig.serve(S1, "ECHO", name="echo:100")
    rig.monitor.lost(S1)
    rig.monitor.tick(0)

    rig.call("ECHO", b"meanwhile")
    rig.serve(S2, "ECHO", name="echo:101")

    assert invoke_of(rig.effects()).data == b"meanwhile"


def test_a_server_that_does_not_come_back_is_given_up(rig):
    """After it, callers are refused at once again."""
    rig.serve(S1, "ECHO", name="echo:100")
    rig.monitor.lost(S1)
    rig.call("ECHO")
    rig.monitor.tick(0)
    assert rig.effects() == []

    rig.monitor.tick(service_registry.EXPECTED_MS)

    assert answer_of(rig.effects()).head.error_number == ServiceNotFound.number
    with pytest.raises(ServiceNotFound):
        rig.call("ECHO")
    assert rig.monitor.describe() == []


def test_calls_wait_as_long_as_the_node_goes_on_starting_a_server(rig):
    """A server that is killed again while it starts takes longer than any fixed time; its callers
    have a time of their own."""
    rig.serve(S1, "ECHO", name="echo:100")
    rig.monitor.lost(S1)
    rig.call("ECHO")
    started = {"echo"}
    rig.monitor.tick(0, started.__contains__)
    rig.monitor.tick(service_registry.EXPECTED_MS, started.__contains__)
    assert rig.effects() == []

    started.clear()
    rig.monitor.tick(service_registry.EXPECTED_MS + 1, started.__contains__)

    assert answer_of(rig.effects()).head.error_number == ServiceNotFound.number


def test_the_calls_of_a_lost_client_are_not_run_any_more(rig):
    """Nobody reads the answer; what runs already is finished and dropped."""
    rig.serve(S1, "ECHO")
    rig.call("ECHO", b"1")
    rig.call("ECHO", b"2")
    rig.call("ECHO", b"3", client=OTHER)
    first = invoke_of(rig.effects())

    rig.monitor.lost(CLIENT)
    rig.finish(first)

    assert invoke_of(rig.effects()).data == b"3"


def test_a_result_from_a_server_that_does_not_run_the_call_is_ignored(rig):
    """A server cannot end another one's call, nor one call twice."""
    rig.serve(S1, "ECHO")
    rig.serve(S2, "ECHO")
    rig.call("ECHO")
    invoke = invoke_of(rig.effects())

    rig.finish(replace(invoke, connection=S2))
    rig.finish(replace(invoke, connection=CLIENT))
    rig.finish(invoke)
    rig.finish(invoke)

    assert len(rig.effects()) == 1


# listeners


def test_a_sessions_messages_run_one_after_the_other_however_many_servers_there_are(rig):
    """F-E2: one message at a time per session, in order."""
    rig.serve(S1, "L")
    rig.serve(S2, "L")
    rig.listen("L", b"m1", consumer=1)
    rig.listen("L", b"m2", consumer=2)
    rig.listen("L", b"other", session=2)

    first, other = rig.effects()
    rig.finish(first)

    assert (first.data, other.data) == (b"m1", b"other")
    answer, second = rig.effects()
    assert (answer.origin.token, second.data) == (b"m1", b"m2")


def test_a_message_whose_service_has_left_goes_back_to_its_queue(rig):
    """There it can be seen, browsed, and taken by others; here it would only be held."""
    rig.serve(S1, "L")
    rig.listen("L", b"m1")
    rig.listen("L", b"m2", session=2)
    rig.effects()

    rig.monitor.unadvertise(S1, "L")
    rig.monitor.release_orphans()

    answer = answer_of(rig.effects())
    assert (answer.origin.token, answer.head.verdict) == (b"m2", Verdict.RELEASED)


def test_a_lost_server_fails_the_listeners_message_and_the_next_one_follows(rig):
    """A message that kills its server must reach the dead letter queue, not kill for ever."""
    rig.serve(S1, "L")
    rig.listen("L", b"m1")
    rig.listen("L", b"m2", consumer=2)
    rig.effects()

    rig.monitor.lost(S1)
    answer = answer_of(rig.effects())
    rig.serve(S2, "L")

    assert (answer.origin.token, answer.head.error_number) == (b"m1", ServerLost.number)
    assert invoke_of(rig.effects()).data == b"m2"


def test_what_a_closed_consumer_left_waiting_is_not_run(rig):
    """The engine has given its messages to others: running them here would process them twice."""
    rig.serve(S1, "L")
    rig.listen("L", b"running", session=1, consumer=1)
    rig.listen("L", b"closed", session=1, consumer=1)
    rig.listen("L", b"open", session=1, consumer=2)
    running = invoke_of(rig.effects())

    rig.monitor.withdraw(CLIENT, 1, 1)
    assert rig.effects() == []
    rig.finish(running)

    assert invoke_of(rig.effects()).data == b"open"


def test_a_closed_session_leaves_nothing_behind(rig):
    """Sessions come and go for as long as the node runs."""
    for message in (b"m1", b"m2", b"m3"):
        rig.listen("L", message)

    rig.monitor.withdraw(CLIENT, 1)

    assert rig.effects() == []
    assert rig.monitor.describe() == []


def test_calls_wait_for_the_process_that_follows_one_that_leaves(rig):
    """TPEXIT ends a process in order; its service is away for a moment only."""
    rig.serve(S1, "ECHO", name="shop:1")
    rig.monitor.unadvertise(S1, "ECHO", is_expected=True)
    rig.call("ECHO", b"later")
    rig.monitor.lost(S1)
    assert rig.effects() == []

    rig.serve(S2, "ECHO", name="shop:2")

    assert invoke_of(rig.effects()).data == b"later"
