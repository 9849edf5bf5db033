"""Time goes on where a standby saw it run, and nothing old is taken for new."""

import pytest

from hms.boot.clock import EvenClock
from hms.boot.node_time import NodeTime

MS, HOUR_MS = 1_000_000, 3_600_000


class Machine:
    """One whose wall clock is off by some hours."""

    def __init__(self, hours):
        self.steady = 5 * MS
        self.wall = (20 + hours) * HOUR_MS * MS
        self.clock = EvenClock(lambda: self.wall, lambda: self.steady)
        self.time = NodeTime(lambda: self.steady)

    def wait(self, ms):
        self.steady += ms * MS
        self.wall += ms * MS


@pytest.mark.parametrize("hours", [-1, 1])
def test_time_goes_on_from_what_was_heard(hours):
    """By the time that has passed here since then."""
    machine = Machine(hours)
    machine.time.saw("beat 1", 20 * HOUR_MS)
    machine.wait(200)
    machine.time.saw("beat 2", 20 * HOUR_MS + 200)
    machine.time.saw("beat 2", 20 * HOUR_MS + 200)
    machine.wait(5000)

    machine.time.go_on(machine.clock)

    assert machine.clock() == 20 * HOUR_MS + 5200


def test_what_was_there_at_the_first_look_may_be_old():
    """The owner may have been gone for days: then it is as at a boot."""
    machine = Machine(0)
    for _ in range(3):
        machine.time.saw("beat 1", 7)
        machine.wait(1000)

    machine.time.go_on(machine.clock)

    assert machine.clock() == 20 * HOUR_MS + 3000


def test_a_sign_that_tells_no_time_takes_back_what_was_told():
    """An owner of the release before took over meanwhile: what is known of before is old."""
    machine = Machine(0)
    machine.time.saw("beat 1", 7)
    machine.time.saw("beat 2", 8)
    machine.time.saw("old beat", None)

    machine.time.go_on(machine.clock)

    assert machine.clock() == 20 * HOUR_MS
