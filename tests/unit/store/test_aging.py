"""What goes by its age goes as the node runs, whatever its machine's clock says."""

import os

import pytest

from hms.records.audit import NO_HASH, AuditEntry, audit_record, chained
from hms.store.aging import LEAD_S, Aging
from hms.store.journal.audit_files import retire_audit, write_audit_file
from hms.store.journal.disk import REAL_DISK

DAY_S, YEAR_S, NOW_S = 86_400, 365 * 86_400, 1_700_000_000
KEEP_S = 30 * DAY_S


class Machine:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self):
        self.wall_s, self.steady_s = float(NOW_S), 0.0

    def run(self, seconds):
        self.wall_s += seconds
        self.steady_s += seconds

    def boot(self):
        return Aging(lambda: self.wall_s, lambda: self.steady_s)


@pytest.fixture
def machine():
    return Machine()


def test_a_node_that_runs_lets_go_of_what_is_over(machine):
    """Also when nobody looked for weeks."""
    aging = machine.boot()
    first = aging.until_s(KEEP_S, lambda: NOW_S - KEEP_S)
    assert first == NOW_S - KEEP_S - LEAD_S
    machine.run(900)
    assert aging.until_s(KEEP_S, None) == machine.wall_s - KEEP_S
    for passed_s in (5, DAY_S, 20 * DAY_S):
        machine.run(passed_s)
        assert aging.until_s(KEEP_S, None) == machine.wall_s - KEEP_S
        assert aging.held_s == 0


@pytest.mark.parametrize("is_boot", [True, False])
def test_a_clock_that_jumps_years_ahead_takes_nothing_with_it(machine, is_boot):
    """At a boot or while the node runs; however often it boots, an hour takes a day at most."""
    oldest_s, aging = NOW_S - KEEP_S, machine.boot()
    before = aging.until_s(KEEP_S, lambda: oldest_s)
    machine.wall_s += 10 * YEAR_S
    if is_boot:
        for _ in range(500):
            aging = machine.boot()
            assert aging.until_s(KEEP_S, lambda: oldest_s) == before
            machine.run(800)
            assert aging.until_s(KEEP_S, None) < oldest_s
        aging = machine.boot()
        assert aging.until_s(KEEP_S, lambda: oldest_s) == before
    else:
        assert aging.until_s(KEEP_S, None) == before
    assert aging.held_s == pytest.approx(10 * YEAR_S, rel=0.01)
    machine.run(3600)
    assert aging.until_s(KEEP_S, None) - before == 3600 + DAY_S
    machine.run(30 * DAY_S)  # nobody looked
    assert aging.until_s(KEEP_S, None) - before == 3600 + 30 * DAY_S + 2 * DAY_S


def test_a_clock_that_is_set_right_again_holds_nothing(machine):
    """An alert ends."""
    aging = machine.boot()
    aging.until_s(KEEP_S, lambda: NOW_S)
    machine.wall_s += YEAR_S
    aging.until_s(KEEP_S, None)
    assert aging.held_s > 0
    machine.wall_s -= YEAR_S
    assert aging.until_s(KEEP_S, None) == NOW_S - KEEP_S
    assert aging.held_s == 0


def test_where_nothing_is_there_it_begins_with_what_comes(machine):
    """An empty history at a boot with a clock years ahead, then a segment of before."""
    aging = machine.boot()
    machine.wall_s += YEAR_S
    aging.until_s(KEEP_S, lambda: None)
    assert aging.until_s(KEEP_S, lambda: NOW_S - 5) == NOW_S - 5 - LEAD_S


def test_an_audit_written_while_the_clock_was_behind_is_as_old_as_its_records(tmp_path, machine):
    """A machine without a clock battery boots in 1970; the records have the node's time."""
    at_ms = (NOW_S - 2 * DAY_S) * 1000
    entry = AuditEntry(1, at_ms, "u", "s", "purge", "q", "c", "", 0, 1, NO_HASH)
    (payload,) = audit_record(chained(entry)).parts
    file = tmp_path / f"{1:016d}.audit"
    write_audit_file(REAL_DISK, file, [bytes(payload)])
    os.utime(file, (1000, 1000))
    aging = Aging(steady_s=lambda: machine.steady_s)
    for keep_s in (100 * YEAR_S, 20 * YEAR_S):
        retire_audit(REAL_DISK, tmp_path, keep_s, aging)
        machine.run(YEAR_S)
    assert file.exists()
