"""Calls while a node starts its servers: they wait, and not for ever."""

import pytest
from monitor_rig import S1, Rig, answer_of, invoke_of

from hms.errors.catalogue import ServiceNotFound
from tpmon.scheduling.service_registry import EXPECTED_MS


@pytest.fixture
def rig():
    rig = Rig()
    rig.monitor.begins()
    return rig


def test_a_call_waits_for_a_server_that_is_being_started(rig):
    """Behind a take-over clients are there before the servers are."""
    rig.call("ECHO", b"early")
    assert rig.effects() == []
    rig.serve(S1, "ECHO")
    assert invoke_of(rig.effects()).data == b"early"


def test_what_no_server_has_is_told_when_all_are_there(rig):
    """And from then on at once."""
    rig.call("NOWHERE")
    rig.monitor.begun()
    assert answer_of(rig.effects()).head.error_number == ServiceNotFound.number
    with pytest.raises(ServiceNotFound):
        rig.call("NOWHERE")


def test_a_server_that_never_comes_is_waited_for_for_a_while(rig):
    """A process that hangs in its start is no reason to wait for ever."""
    rig.call("ECHO")
    rig.monitor.tick(0, lambda _name: False)
    assert rig.effects() == []
    rig.monitor.tick(EXPECTED_MS, lambda _name: False)
    assert answer_of(rig.effects()).head.error_number == ServiceNotFound.number
