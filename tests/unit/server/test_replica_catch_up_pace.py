"""A catch-up gives way to what is written meanwhile, and ends under any load.

The clock is the test's: what a burst costs is what the test lets pass.
"""

import pytest

from hms.server.replicas.catch_up_pace import (
    BURST_FRAMES,
    BUSY_S,
    KEEPS_UP,
    PIECE_BYTES,
    REST_MAX_S,
    RESTS,
    CatchUpPace,
)


class Link:
    """One that sends what a copy lacks; `takes` lets time pass until the copy has it."""

    def __init__(self):
        self.pace, self.now_s, self.frame = CatchUpPace(), 100.0, 0

    def writes(self, size=0):
        self.pace.wrote(self.now_s, size)

    def sends(self, pieces=1):
        for _ in range(pieces):
            assert self.pace.may_send(self.now_s)
            assert self.rest_s == 0
            self.frame += 1
            self.pace.sent(self.frame, PIECE_BYTES, self.now_s)

    def takes(self, cost_s):
        self.now_s += cost_s
        self.pace.took(self.frame, self.now_s)

    @property
    def rest_s(self):
        return self.pace.rest_s(self.now_s)


@pytest.fixture
def link():
    return Link()


def test_it_rests_for_a_multiple_of_what_a_burst_cost_while_somebody_writes(link):
    """Also where others make it slow: the busier they are, the longer it rests."""
    link.writes()
    link.sends(BURST_FRAMES)
    assert not link.pace.may_send(link.now_s)
    link.takes(0.010)
    assert link.pace.may_send(link.now_s)
    assert link.rest_s == pytest.approx(RESTS * 0.010)
    link.now_s += RESTS * 0.010 + 0.0001
    assert link.rest_s == 0
    link.sends()
    link.takes(0.005)
    assert link.rest_s == pytest.approx(RESTS * 0.005)


def test_a_part_of_a_burst_is_no_end_of_it(link):
    """It is what the whole of it cost that counts."""
    link.writes()
    link.sends(2)
    link.pace.took(link.frame - 1, link.now_s + 0.001)
    assert link.rest_s == 0
    link.takes(0.030)
    assert link.rest_s == pytest.approx(RESTS * 0.030)


def test_nobody_who_writes_is_given_way_to_where_nobody_writes(link):
    """An idle node gives a copy all that it has; and so it is soon behind the last write."""
    link.sends(10 * BURST_FRAMES)
    link.takes(0.500)
    assert link.rest_s == 0
    link.writes()
    assert link.rest_s > 0
    link.now_s += BUSY_S
    assert link.rest_s == 0
    assert link.pace.may_send(link.now_s)


def test_it_does_not_rest_while_more_is_written_than_it_sends(link):
    """What the copy lacks would grow: it gets twice what is written, whatever that costs."""
    link.writes(size=PIECE_BYTES)
    link.sends(BURST_FRAMES)
    link.takes(0.010)
    assert link.rest_s > 0
    link.writes(size=BURST_FRAMES * PIECE_BYTES)
    assert link.rest_s == 0
    link.sends(KEEPS_UP * BURST_FRAMES - 1)
    link.takes(0.010)
    assert link.rest_s == 0
    link.sends()
    link.takes(0.010)
    assert link.rest_s > 0


def test_a_rest_has_an_end_however_long_a_burst_took(link):
    """A disk that stood still for a minute."""
    link.writes()
    link.sends()
    link.takes(60.0)
    link.writes()
    assert link.rest_s == REST_MAX_S


def test_the_way_to_a_copy_far_away_is_no_work(link):
    """It would get a piece in four ways there and back, and hold nobody up meanwhile."""
    link.pace.answered(0.040)
    link.pace.answered(0.400)  # behind pieces
    link.writes()
    link.sends()
    link.takes(0.041)
    assert link.rest_s == pytest.approx(RESTS * 0.001)
