"""The node's scheduler when the machine's clock is set."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from hms.boot import scheduler as scheduling


def test_a_job_runs_although_the_clock_was_set_back_by_an_hour(monkeypatch):
    """A node whose clock was corrected must still expire, retry and beat its heart."""
    ahead_s, ran = [100.0], threading.Event()
    monkeypatch.setattr(scheduling, "_ahead_s", lambda: ahead_s[0])
    monkeypatch.setattr(scheduling, "LOOKS_EVERY_S", 0.01)
    scheduler = scheduling.EvenScheduler(pytest.fail)
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    scheduler.add_job(ran.set, "date", run_date=in_an_hour, misfire_grace_time=None)
    scheduler.start()
    try:
        assert not ran.wait(0.1)
        ahead_s[0] -= 3600  # as if the job had been planned before the clock was set back
        assert ran.wait(60)
    finally:
        scheduler.shutdown()


def test_a_timer_has_a_time_however_far_away_it_is():
    """A schedule in millions of years once stopped the node, and every boot after it."""
    for left_ms in (-(1 << 40), 0, 1 << 40, 1 << 64):
        wanted = datetime.now(UTC) + timedelta(milliseconds=min(left_ms, scheduling.TIMER_MS_MAX))
        assert abs(scheduling.after_ms(left_ms) - wanted) < timedelta(minutes=5)


def test_small_corrections_move_nothing(monkeypatch):
    """A time service slews all the time; moving the jobs each time would add up."""
    scheduler, moved = scheduling.EvenScheduler(pytest.fail), []
    looks = iter([5.0, *(5.0 + 0.01 * n for n in range(15))])
    done = threading.Event()

    def ahead_s():
        now = next(looks, None)
        if now is None:
            done.set()
        return 5.1 if now is None else now

    monkeypatch.setattr(scheduling, "_ahead_s", ahead_s)
    monkeypatch.setattr(scheduling, "LOOKS_EVERY_S", 0.001)
    monkeypatch.setattr(scheduler, "_move", moved.append)
    scheduler.start()
    try:
        assert done.wait(60)
        assert moved == []
    finally:
        scheduler.shutdown()


def test_a_clock_that_cannot_be_read_is_told_and_not_a_scheduler_that_is_silently_gone(monkeypatch):
    """A node without ticks would expire and retry nothing, and look well."""
    told, done = [], threading.Event()

    def ahead_s():
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    def on_fault(fault):
        told.append(fault)
        done.set()

    monkeypatch.setattr(scheduling, "_ahead_s", ahead_s)
    scheduler = scheduling.EvenScheduler(on_fault)
    scheduler.start()
    try:
        assert done.wait(60)
    finally:
        scheduler.shutdown()
    assert isinstance(told[0], OverflowError)
