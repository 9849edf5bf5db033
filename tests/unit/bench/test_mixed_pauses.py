"""The mixed load's pauses: what is one, and what may explain it."""

import os

import pytest

from bench.mixed_figures import faults
from bench.mixed_pauses import Pauses, covered_ms
from bench.mixed_probe import OWN_LOAD, Glance, Others, thread_times
from bench.mixed_report import pause_line
from bench.mixed_tally import Tally

MS = 1_000_000


def test_messages_that_were_slow_together_are_one_pause():
    """A stop of a second delays hundreds of messages; it is one event."""
    tally = Tally()
    tally.arrived(0, 1, 0, 50 * MS)
    for number, due_ms in enumerate(range(100, 400, 10), 2):
        tally.arrived(0, number, due_ms * MS, 600 * MS)
    tally.arrived(0, 32, 700 * MS, 850 * MS)

    first, second = tally.told().slow
    assert first == (100 * MS, 600 * MS, 100 * MS, 600 * MS)
    assert second == (700 * MS, 850 * MS, 700 * MS, 850 * MS)
    assert tally.told().slow == []


def _pause(*glances, kinds=("queue",)):
    pauses = Pauses()
    for kind in kinds:
        pauses.slow(kind, 1000 * MS, 1300 * MS, (1000 * MS, 1300 * MS))
    for glance in glances:
        pauses.saw(glance)
    (pause,) = pauses.settle(2000 * MS)
    return pause


def _glance(cause, begin_ms, end_ms, who=""):
    return Glance(cause, begin_ms * MS, end_ms * MS, who)


@pytest.mark.parametrize(
    ("glances", "is_explained"),
    [
        ([], False),
        ([_glance("disk", 900, 1250)], True),
        ([_glance("disk", 900, 1150)], False),
        ([_glance("disk", 1000, 1120), _glance("machine", 1150, 1260)], True),
        ([_glance("disk", 1000, 1120), _glance("machine", 1000, 1120)], False),
        ([_glance("disk", 1400, 1900)], False),
        ([_glance("processor", 1000, 1250, "node 7")], True),
        ([_glance("processor", 1000, 1250, "topic subscribe 7")], False),
        ([_glance(OWN_LOAD, 1000, 1290, "node 7")], False),
        ([_glance("processor", 1000, 1110, f"node {n}") for n in range(9)], False),
    ],
)
def test_a_pause_is_explained_by_what_was_lost_in_it(glances, is_explained):
    """An excuse from another moment, of another process, or counted twice would hide our own."""
    assert _pause(*glances).is_explained is is_explained


def test_kinds_that_were_slow_at_the_same_time_share_a_pause():
    """The list of an hour is read by a person."""
    pause = _pause(kinds=("queue", "topic"))

    assert pause.kinds == {"queue", "topic"}
    assert "UNEXPLAINED" in pause_line(pause, 0)
    assert faults({}, [pause]) == ["1 pauses are unexplained"]


def test_a_pause_waits_until_it_is_over():
    """What a probe tells of it may come a moment later."""
    pauses = Pauses()
    pauses.slow("queue", 0, 300 * MS, (0, 300 * MS))

    assert pauses.settle(200 * MS) == []
    pauses.saw(_glance("disk", 0, 290))
    (pause,) = pauses.settle(400 * MS)
    assert pause.is_explained
    assert pauses.done == [pause]


def test_times_that_lie_over_each_other_count_once():
    """A slow disk and a slow processor at the same moment cost that moment once."""
    assert covered_ms([(0, 10 * MS), (5 * MS, 12 * MS), (20 * MS, 21 * MS)]) == 13


def test_the_kernel_tells_how_long_threads_waited():
    """Without it a busy machine looks like a slow node; a process that is gone says nothing."""
    assert any(who.startswith(f"{os.getpid()}/") for who in thread_times(os.getpid()))
    assert thread_times(2**22 + 1) == {}


def test_processors_that_others_had_are_told_from_our_own():
    """A node that waits for its own clients must not be excused as one that waits for strangers."""
    second, others = 1_000_000_000, Others()

    found = [
        others.cores(at * second, busy_s, ran_ns)
        for at, busy_s, ran_ns in ((1, 10, 0), (2, 11.5, 1.5 * second), (3, 13.5, 0.5 * second))
    ]

    assert found == [0.0, 0.0, 0.75]
