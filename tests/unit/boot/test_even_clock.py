"""The node's clock when the machine's is set."""

import os
import random
import signal
import time

import pytest

from hms.boot import compose, node
from hms.boot.clock import LATEST_NS, EvenClock, awake_and_asleep_ns, require_clock
from hms.errors.catalogue import ClockUnusable

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


def test_what_passed_before_the_log_was_read_is_not_counted_again():
    """A process that stands by, or reads a long log: each delay was over that much too early."""
    machine = Machine()
    machine.wait(3600 * S)
    ends_ms = machine.wall // 1_000_000 - 500
    machine.clock.begin_at(ends_ms)
    assert machine.clock() == machine.wall // 1_000_000


@pytest.mark.parametrize("away", [HOUR, -HOUR])
def test_where_another_machine_takes_over_it_goes_on_as_it_ran_there(away):
    """That machine's own clock is an hour away; it is followed as slowly as ever."""
    machine = Machine()
    there_ms = (machine.wall - away) // 1_000_000
    machine.clock.go_on_from(there_ms)
    assert machine.clock() == there_ms
    machine.wait(60 * S)
    assert 59_400 <= machine.clock() - there_ms <= 60_600


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


def _unreadable():
    raise OverflowError("timestamp too large to convert to C _PyTime_t")


@pytest.mark.parametrize("wall_ns", [_unreadable, lambda: LATEST_NS, lambda: 1 << 90])
def test_a_clock_past_the_year_2262_is_told_and_time_goes_on_evenly(wall_ns):
    """Nothing expires at once, and what asks the time is not the one that fails."""
    machine = Machine()
    machine.clock.check()
    before = machine.clock()
    machine.clock._wall_ns = wall_ns

    machine.steady += 60 * S

    assert machine.clock() == before + 60_000
    with pytest.raises(ClockUnusable, match="2262"):
        machine.clock.check()
    machine.clock._wall_ns = lambda: machine.wall
    machine.clock.check()


def test_a_clock_that_cannot_be_read_when_the_node_begins_is_no_fault_of_an_import():
    """The command line imports it, too."""
    clock = EvenClock(_unreadable, lambda: 5 * S)
    assert clock() == 0
    with pytest.raises(ClockUnusable):
        clock.check()


@pytest.fixture
def _signals():
    """A node's process hears them in its own way; that of the tests as before."""
    before = {number: signal.getsignal(number) for number in (*node._STOPPING, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_a_node_does_not_boot_with_a_clock_that_cannot_be_read(monkeypatch, capsys, tmp_path):
    """It says why, though a line of its log cannot be written."""
    monkeypatch.setattr(compose.clock_ms, "_wall_ns", _unreadable)
    monkeypatch.setattr(node.log, "critical", lambda *_, **__: _unreadable())
    monkeypatch.setattr(node, "_log_to_stderr", lambda *_: None)
    reading, writing = os.pipe()
    try:
        missing = ["--config", str(tmp_path / "hms.conf"), "--ready-fd", str(writing)]
        assert node.main(missing) == 1
        assert b"failed HMS-8006" in os.read(reading, 1000)
    finally:
        os.close(reading)
    assert "CRITICAL hms.node HMS-8006 the machine's clock is wrong" in capsys.readouterr().err


def test_what_overflows_while_the_clock_cannot_be_read_is_told_as_that(monkeypatch):
    """Whoever reads the log must see what to mend; another overflow is one."""
    fault = OverflowError("int too large")
    assert node._known(fault) is fault
    monkeypatch.setattr(compose.clock_ms, "_wall_ns", _unreadable)
    assert isinstance(node._known(fault), ClockUnusable)


def test_a_process_without_a_clock_ends_with_the_reason_and_without_a_traceback(monkeypatch):
    """Python cannot import its logging then: neither a node nor a command gets any further."""
    require_clock()
    monkeypatch.setattr(time, "time_ns", _unreadable)
    with pytest.raises(SystemExit, match="HMS-8006"):
        require_clock()
