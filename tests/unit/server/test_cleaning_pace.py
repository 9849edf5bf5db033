"""Cleaning gives way to clients, and never falls behind them (P13)."""

import pytest

from hms.server.cleaning_pace import REST_MAX_S, CleaningPace
from tests.unit.engine.log.test_log_cleaning import life
from tests.unit.engine.log.test_pinning import NO_HISTORY, STANDING, TURN, churn, standing


class Log:
    newest_segment = 7
    is_waiting_for_space = False
    refused = None

    def sends_refused(self):
        return self.refused


class Watched:
    """A pace whose rests are counted, beside clients that take the lock when asked to."""

    def __init__(self):
        self.log, self.holds, self.rests = Log(), 0, []
        self.pace = CleaningPace(self.log, lambda: self.holds, self.rests.append)
        self.pace.begin()

    def piece(self, *, clients):
        self.holds += 2 + clients
        self.pace.took_lock()
        self.pace.took_lock()
        self.pace.rest()


def test_it_rests_behind_a_piece_in_which_clients_had_work_and_not_alone():
    """An idle node cleans at once; a busy one a fifth of the time."""
    watched = Watched()
    watched.piece(clients=0)
    assert watched.rests == []
    watched.piece(clients=1)
    watched.piece(clients=30)
    assert len(watched.rests) == 2
    assert all(0 < rest <= REST_MAX_S for rest in watched.rests)
    watched.piece(clients=0)
    assert len(watched.rests) == 2


@pytest.mark.parametrize(
    "change",
    [{"newest_segment": 8}, {"is_waiting_for_space": True}, {"refused": "no space"}],
    ids=["a segment was written", "senders wait", "senders are refused"],
)
def test_it_rests_no_more_once_it_is_late_or_space_is_wanted(change):
    """Slower than what is appended, the log would grow without end."""
    watched = Watched()
    for name, value in change.items():
        setattr(watched.log, name, value)
    watched.piece(clients=5)
    assert watched.rests == []


def test_what_is_done_under_one_hold_of_the_lock_is_bounded(tmp_path, monkeypatch):
    """A standing queue is told of in pieces: nobody waits for all of it (P5, P13)."""
    monkeypatch.setattr("hms.server.log_cleaning.PINNED_AT_ONCE", 1)
    node = life(tmp_path, limits=NO_HISTORY)
    told = []
    pin = node.engine.pin

    def counted(segment, part, blocks, fx):
        pin(segment, part, blocks, fx)
        told.append((segment, part, sum(block.live for block in blocks), len(fx.records)))

    monkeypatch.setattr(node.engine, "pin", counted)
    standing(node)
    churn(node, 2 * TURN)

    assert {part for _, part, _, _ in told} == {0}
    assert sum(live for _, _, live, _ in told) >= STANDING - 256
    assert all(live <= 256 for _, _, live, _ in told)
    assert all(records == 1 for _, _, _, records in told)
    node.close()
