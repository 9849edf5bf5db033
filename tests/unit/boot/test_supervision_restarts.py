"""Restarts and demand: when a server process is started again, and when there are more or fewer."""

from hms.boot.restarts import IDLE_S, Demand, Restarts


def test_a_process_is_started_again_after_its_delay():
    """Without a delay a fault at start would keep a processor busy."""
    restarts = Restarts(2.0, 5, 60)

    assert restarts.ended(100.0) == 102.0
    assert restarts.count == 1


def test_a_process_that_ends_too_often_is_given_up():
    """MAXRSTART within GPERIOD: it will not become better by itself."""
    restarts = Restarts(0, 2, 60)

    assert [restarts.ended(now) for now in (0.0, 1.0, 2.0)] == [0.0, 1.0, None]


def test_restarts_that_are_older_than_the_period_do_not_count():
    """A crash a day is an annoyance, not a reason to give the service up."""
    restarts = Restarts(0, 1, 60)

    assert [restarts.ended(now) for now in (0.0, 60.0, 119.0)] == [0.0, 60.0, None]


def test_the_pause_doubles_up_to_its_limit_and_begins_anew_after_a_quiet_period():
    """A fault that stays must not keep a processor busy; one of long ago is no reason to wait."""
    restarts = Restarts(1.0, -1, 60, 5.0)

    assert [restarts.ended(now) - now for now in (0.0, 1.0, 2.0, 3.0)] == [1.0, 2.0, 4.0, 5.0]
    assert restarts.ended(100.0) == 101.0


def test_no_restart_and_any_number_of_restarts_can_be_asked_for():
    """MAXRSTART 0 and -1."""
    assert Restarts(0, 0, 60).ended(0.0) is None
    endless = Restarts(0, -1, 60)
    assert all(endless.ended(0.0) is not None for _ in range(1000))


def _change(demand, now, started, *, busy, waiting, connected=None):
    return demand.change(now, started, started if connected is None else connected, busy, waiting)


def test_one_more_is_started_when_all_are_busy_and_calls_wait():
    """MAX is there to be used, one process at a time."""
    demand = Demand(1, 3)

    assert _change(demand, 0, 1, busy=1, waiting=5) == 1
    assert _change(demand, 1, 2, connected=1, busy=1, waiting=5) == 0
    assert _change(demand, 2, 2, busy=2, waiting=5) == 1
    assert _change(demand, 3, 3, busy=3, waiting=5) == 0


def test_one_is_ended_when_not_all_were_needed_for_long():
    """A burst must not leave its processes behind, nor a lull end those of the next second."""
    demand = Demand(1, 3)

    assert _change(demand, 0, 3, busy=1, waiting=0) == 0
    assert _change(demand, IDLE_S - 1, 3, busy=1, waiting=0) == 0
    assert _change(demand, IDLE_S, 3, busy=1, waiting=0) == -1
    assert _change(demand, IDLE_S + 1, 2, busy=1, waiting=0) == 0
    assert _change(demand, 2 * IDLE_S + 1, 2, busy=1, waiting=0) == -1


def test_a_moment_in_which_all_are_busy_begins_the_wait_anew():
    """They were needed after all."""
    demand = Demand(1, 3)
    _change(demand, 0, 2, busy=0, waiting=0)
    _change(demand, IDLE_S - 1, 2, busy=2, waiting=0)

    assert _change(demand, IDLE_S + 1, 2, busy=0, waiting=0) == 0


def test_the_least_number_is_kept():
    """MIN processes are there however quiet it is."""
    demand = Demand(1, 3)

    assert [_change(demand, now, 1, busy=0, waiting=0) for now in (0, 1000)] == [0, 0]
