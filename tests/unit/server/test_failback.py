"""When the preferred copy leads again by itself."""

from hms.server.replicas.failback import WAIT_MAX_S, Failback, note_move, recent_moves
from hms.store.journal.disk import REAL_DISK

AFTER_S = 60


def look_until(decision, now_s, until_s, start=5, why=""):
    """The second at which it is to lead, looked at every second; None for not until then."""
    while now_s < until_s:
        if decision.look(now_s, start, why):
            return now_s
        now_s += 1
    return None


def test_it_leads_again_when_it_had_everything_for_the_time():
    """Neither sooner nor never."""
    decision = Failback("a", AFTER_S)
    assert look_until(decision, 0, 30, start=0, why="a is no copy that counts") is None
    assert look_until(decision, 30, 200) == 90


def test_a_break_begins_the_time_anew():
    """An alarm, a frame that it lacks, or another start of its process between two looks."""
    decision = Failback("a", AFTER_S)
    assert look_until(decision, 0, 59) is None
    assert not decision.look(59, 5, "c lacks a part of the log")
    assert "c lacks" in decision.state
    assert look_until(decision, 60, 119) is None
    assert look_until(decision, 119, 300, start=6) == 179


def test_a_copy_that_comes_and_goes_moves_the_group_less_and_less():
    """It dies a second after each move back, for a day: each move doubles the next wait."""
    moves, now_s = [], 0
    while now_s < 86_400:
        decision = Failback("a", AFTER_S, recent=len(moves))
        if (at_s := look_until(decision, now_s, 86_400, start=len(moves) + 1)) is None:
            break
        moves.append(at_s)
        now_s = at_s + 1
    waits = [b - a - 1 for a, b in zip([-1, *moves], moves, strict=False)]
    assert waits[:5] == [60, 120, 240, 480, 960]
    assert max(waits) == WAIT_MAX_S
    assert len(moves) < 30  # of 1,416 without


def test_a_move_that_was_refused_is_tried_later_and_later():
    """Each try holds deliveries up."""
    decision = Failback("a", AFTER_S)
    assert look_until(decision, 0, 1000) == 60
    decision.refused()
    assert look_until(decision, 61, 1000) == 181
    decision.refused()
    assert look_until(decision, 182, 1000) == 422


def test_a_copy_that_an_operator_sent_away_leads_again_after_its_next_boot():
    """The process that handed over begins anew at once, to follow: that is no boot of a machine."""
    decision = Failback("a", AFTER_S, sent_away_in=7)
    assert look_until(decision, 0, 1000, start=8) is None
    assert "after its next boot" in decision.state
    assert look_until(decision, 1000, 2000, start=9) == 1060


def test_moves_of_the_last_day_are_known_over_processes(tmp_path):
    """Also with a clock that was set back; a file that is damaged is none."""
    assert recent_moves(REAL_DISK, tmp_path, 1e9) == 0
    note_move(REAL_DISK, tmp_path, 1e9)
    note_move(REAL_DISK, tmp_path, 1e9 + 86_000)
    assert recent_moves(REAL_DISK, tmp_path, 1e9 + 86_001) == 2
    assert recent_moves(REAL_DISK, tmp_path, 1e9 + 86_401) == 1
    assert recent_moves(REAL_DISK, tmp_path, 1e9 - 500_000) == 2
    (tmp_path / "FAILBACK").write_bytes(b"\0" * 10)
    assert recent_moves(REAL_DISK, tmp_path, 1e9) == 0
