"""The monitor: servers that run several calls at once."""

import pytest
from monitor_rig import S1, S2, Rig, answer_of, invoke_of

from hms.errors.catalogue import InvalidArgument, ServerLost
from tpmon.scheduling.monitor import Answer, Kill, Rules


def test_a_server_with_three_places_runs_three_calls_and_the_fourth_waits(rig):
    """A place that becomes free takes what waits, whichever call ends."""
    rig.serve(S1, "WORK", places=3)
    for number in range(4):
        rig.call("WORK", b"%d" % number, correlation=number)
    first, second, third = rig.effects()
    assert [one.data for one in (first, second, third)] == [b"0", b"1", b"2"]

    rig.finish(second)

    answer, fourth = rig.effects()
    assert (answer.origin.correlation, fourth.data) == (1, b"3")


def test_calls_go_round_the_servers(rig):
    """One with many places does not take all of them while others are idle."""
    rig.serve(S1, "WORK", places=2)
    rig.serve(S2, "WORK", places=2)

    for _ in range(4):
        rig.call("WORK")

    assert [one.connection for one in rig.effects()] == [S1, S2, S1, S2]


def test_a_lost_server_loses_all_its_calls_and_gets_no_more(rig):
    """What waits stays until another one offers the service."""
    rig.serve(S1, "WORK", name="w:1", places=2)
    rig.call("WORK", correlation=1)
    rig.call("WORK", correlation=2)
    rig.call("WORK", b"waits", correlation=3)
    rig.effects()

    rig.monitor.lost(S1)

    answers = rig.effects()
    assert [answer.origin.correlation for answer in answers] == [1, 2]
    assert {answer.head.error_number for answer in answers} == {ServerLost.number}
    rig.serve(S2, "WORK")
    assert invoke_of(rig.effects()).data == b"waits"


def test_a_server_with_a_hung_call_gets_no_others_until_it_returns():
    """Its process is ended, and what it would be given would be lost with it."""
    rig = Rig(rules={"SLOW": Rules(limit_ms=1000)})
    rig.serve(S1, "SLOW", "WORK", name="w:1", places=3)
    rig.call("SLOW")
    slow = invoke_of(rig.effects())

    rig.monitor.tick(1000)

    assert [type(effect) for effect in rig.effects()] == [Answer, Kill]
    rig.call("WORK")
    assert rig.effects() == []
    rig.finish(slow)
    assert invoke_of(rig.effects()).head.service == "WORK"


def test_listeners_of_two_sessions_share_a_server_and_one_session_stays_in_order(rig):
    """F-E2: messages of one session never overtake one another."""
    rig.serve(S1, "EAT", places=2)
    rig.listen("EAT", b"1a", session=1)
    rig.listen("EAT", b"1b", session=1)
    rig.listen("EAT", b"2a", session=2)

    assert [one.data for one in rig.effects()] == [b"1a", b"2a"]


@pytest.mark.parametrize("places", [0, -1, 257])
def test_a_number_of_places_that_no_server_has_is_refused(rig, places):
    """Nothing is offered."""
    with pytest.raises(InvalidArgument):
        rig.serve(S1, "WORK", places=places)
    assert not rig.monitor.is_offered("WORK")


def test_a_result_of_one_place_is_not_one_of_another(rig):
    """Each call is answered by its own result."""
    rig.serve(S1, "WORK", places=2)
    rig.call("WORK", correlation=1)
    rig.call("WORK", correlation=2)
    _, second = rig.effects()

    rig.finish(second, data=b"second")

    answer = answer_of(rig.effects())
    assert (answer.origin.correlation, answer.data) == (2, b"second")
