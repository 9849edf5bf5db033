"""The node's clock when the machine's is set."""

import random
import time

from hms.boot.clock import EvenClock, awake_and_asleep_ns

S = 1_000_000_000
HOUR = 3600 * S


class Machine:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self):
        self.wall, self.steady = 1_700_000_000 * S, 55 * S
        self.clock = EvenClock(lambda: self.wall, lambda: self.steady)

    def wait(self, ns):
        self.wall += ns
        self.steady += ns


def test_the_clock_tells_the_time_of_the_machine():
    """Timestamps are read by people and by other systems."""
    machine = Machine()
    for _ in range(10):
        machine.wait(7 * S)
        assert machine.clock() == machine.wall // 1_000_000


def test_a_step_of_an_hour_moves_it_by_at_most_a_hundredth_of_the_time_that_passes():
    """A message that should live for a minute must live for a minute."""
    for step in (HOUR, -HOUR):
        machine = Machine()
        before = machine.clock()
        machine.wall += step
        assert machine.clock() == before
        machine.wait(60 * S)
        assert 59_400 <= machine.clock() - before <= 60_600


def test_it_follows_the_machine_in_the_end():
    """A clock that was wrong at boot must not stay wrong for ever."""
    machine = Machine()
    machine.wall += 60 * S
    for _ in range(700):
        machine.wait(10 * S)
        machine.clock()
    assert machine.clock() == machine.wall // 1_000_000


def test_it_begins_where_the_log_ends_and_goes_on_from_there():
    """Delays, redelivery and expiry stood still for as long as the machine's clock was behind."""
    machine = Machine()
    ends_ms = machine.wall // 1_000_000 + 3_600_000
    machine.clock.begin_at(ends_ms)
    assert machine.clock() == ends_ms
    machine.wait(60 * S)
    assert 59_400 <= machine.clock() - ends_ms <= 60_000
    machine.clock.begin_at(ends_ms)
    assert machine.clock() > ends_ms


def test_time_that_the_machine_slept_has_passed():
    """CLOCK_MONOTONIC stops meanwhile; this one does not."""
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert before <= awake_and_asleep_ns() <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    machine = Machine()
    now = machine.clock()
    machine.wait(HOUR)  # both go on while it sleeps
    assert machine.clock() - now == 3_600_000


def test_it_never_goes_back():
    """Order and ids lean on it."""
    machine, chance, last = Machine(), random.Random(5), 0
    for _ in range(2000):
        machine.wall += chance.choice((0, 0, HOUR, -HOUR, S))
        machine.wait(chance.randrange(3 * S))
        now = machine.clock()
        assert now >= last
        last = now
