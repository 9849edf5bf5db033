"""What a primary tells of its copies: how long they take to sync, what they lack, who proves that
it leads, and how it came to lead."""

import pytest

from hms.errors.catalogue import ArbiterUnavailable
from hms.server.replicas.frames import Ack, AppliedUpTo, Clock
from hms.server.replicas.machine_clocks import KEPT as CLOCKS_KEPT
from hms.server.replicas.machine_clocks import KNOWN_MIN, MachineClock
from hms.server.replicas.sync_times import KEPT, SyncTimes
from hms.server.replicas.take_over import TakeOver
from tests.unit.server.test_replica_hand_over import LEASE_S, Pair


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path)


def row(pair):
    (found,) = pair.primary.describe()["replicas"]
    return found


def test_how_long_a_copy_takes_to_sync_is_known_of_the_last_batches():
    """By the whole batch: an answer to a later one is one to those before it too."""
    times = SyncTimes()
    assert times.describe() is None
    for mark in range(1, 101):
        times.sent(mark, float(mark))
    times.synced(98, 98.5)  # 0.5 s for the last, 97.5 s for the first
    assert times.describe() == {"p50": 49_500.0, "p99": 97_500.0}
    times.synced(98, 500.0)  # nothing new
    assert times.describe() == {"p50": 49_500.0, "p99": 97_500.0}
    for mark in range(200, 200 + 2 * KEPT):
        times.sent(mark, 1000.0)
        times.synced(mark, 1000.002)
    assert times.describe() == {"p50": 2.0, "p99": 2.0}  # the old ones are forgotten


def test_the_status_tells_how_long_a_copy_took_from_sent_to_synced(pair):
    """A batch of before it answered is none."""
    before = row(pair)["sync_ms"]
    mark = pair.writes()
    pair.now_s += 0.25
    pair.says(Ack(mark, 2))
    assert before is None or before["p99"] == 0
    assert row(pair)["sync_ms"]["p99"] == 250.0


def test_the_status_tells_up_to_which_record_a_copy_has_applied_the_log(pair):
    """None of one that does not say it."""
    assert row(pair)["applied_lsn"] is None
    pair.says(AppliedUpTo(1, pair.end, 41))
    assert row(pair)["applied_lsn"] == 41
    pair.says(AppliedUpTo(1, pair.end))
    assert row(pair)["applied_lsn"] is None


def test_a_file_is_lacked_until_the_copy_has_taken_it(pair, tmp_path):
    """Also while it is on its way."""
    (tmp_path / "files").mkdir()
    name = "ab" * 16
    (tmp_path / "files" / name).write_bytes(b"abc")
    assert row(pair)["files_behind"] == 0
    pair.primary.file_there(name)
    pair.primary._serve_once()
    (link,) = pair.primary._links.values()
    assert row(pair)["files_behind"] == 1
    pair.says(Ack(pair.primary._passed, link.sent - 1))
    assert row(pair)["files_behind"] == 1
    pair.says(Ack(pair.primary._passed, link.sent))
    assert row(pair)["files_behind"] == 0


def test_who_proves_that_it_leads_is_the_one_that_did_so_last(pair):
    """An arbiter that is away proves nothing, and neither do copies that are silent."""
    assert pair.primary.describe()["proof"] == "arbiter"

    def away():
        raise ArbiterUnavailable(endpoint="etcd", detail="down")

    pair.primary._arbiter.renew = away
    pair.now_s += LEASE_S / 2
    pair.answers_beats()
    pair.keeps()
    assert pair.primary.describe()["proof"] == "members"
    pair.now_s += 2 * LEASE_S
    assert pair.primary.describe()["proof"] == ""


def test_a_take_over_is_told_with_what_is_known_of_it_and_no_more():
    """Times since the other one was heard; none of a boot, and no total before a confirmation."""
    took = TakeOver("a", "LOST", 100.0, 100.5)
    told = {"at_ms": None, "from": "a", "to": "b", "cause": "LOST", "detection_s": 0.5}
    assert took.describe("b") == {**told, "total_s": None}
    took.confirmed(101.25, 77)
    took.confirmed(200.0, 99)
    assert took.describe("b") == {**told, "at_ms": 77, "total_s": 1.25}
    booted = TakeOver("b", "BOOT", None, 100.5)
    booted.confirmed(101.25, 77)
    said = booted.describe("b")
    assert (said["at_ms"], said["detection_s"], said["total_s"]) == (77, None, None)


def test_the_first_confirmation_of_an_epoch_ends_the_take_over(pair):
    """Not a later one."""
    pair.primary._took = TakeOver("a", "SILENT", 990.0, 999.0)
    assert pair.primary.describe()["last_take_over"]["total_s"] is None
    pair.primary._confirmation.left("a" * 32)
    pair.passes(2.0)  # a counts no more
    pair.primary.synced()
    first = pair.primary.describe()["last_take_over"]["total_s"]
    assert first == round(pair.now_s - 990.0, 3)
    pair.now_s += 5
    pair.primary.synced()
    assert pair.primary.describe()["last_take_over"]["total_s"] == first


@pytest.mark.parametrize(
    ("theirs_ms", "took_s", "ahead_s"),
    [
        (5_000, 0.0, 4.0),
        (0, 0.0, -1.0),
        (5_000, 2.0, 4.0),  # 5 s in the middle of the way, that may be off by 1 s
        (1_000, 60.0, 0.0),  # it stood still: nothing is known but the way
        (1_000, float("inf"), 0.0),
    ],
)
def test_a_clock_is_ahead_by_what_the_way_does_not_explain(theirs_ms, took_s, ahead_s):
    """Ours says 1,000 ms. An answer that comes late makes no clock wrong."""
    clock = MachineClock()
    for _ in range(KNOWN_MIN):
        assert clock.ahead_s is None
        clock.said(theirs_ms, 1_000, took_s)
    assert clock.ahead_s == ahead_s


def test_the_answer_that_took_the_least_counts_and_old_ones_are_forgotten():
    """A clock that was set right is right after ten beats."""
    clock = MachineClock()
    for took_s in (30.0, 0.0, 30.0):
        clock.said(61_000, 1_000, took_s)
    assert clock.ahead_s == 60.0
    for _ in range(CLOCKS_KEPT):
        clock.said(1_000, 1_000, 0.001)
    assert clock.ahead_s == 0.0


def test_the_primary_knows_by_how_much_the_clock_of_a_copy_is_ahead(pair):
    """Of one that says it, as long as it is heard."""
    assert row(pair)["clock_ahead_s"] is None
    for _ in range(KNOWN_MIN):
        pair.says(Clock(pair.now_s, 8_200_000))
    assert row(pair)["clock_ahead_s"] is None  # our own cannot be read
    pair.machine_ms = 1_000_000
    for _ in range(KNOWN_MIN):
        pair.says(Clock(pair.now_s, 8_200_000))
    assert row(pair)["clock_ahead_s"] == 7200.0
    assert pair.primary.clocks() == [{"node": "a", "clock_ahead_s": 7200.0}]
    pair.now_s += 2 * LEASE_S
    assert pair.primary.clocks() == []


@pytest.mark.parametrize("at_s", [1e300, float("inf"), float("nan")])
def test_an_answer_to_a_beat_that_was_not_sent_says_nothing_of_a_clock(pair, at_s):
    """It is refused and counted."""
    pair.machine_ms = 1_000_000
    before = pair.primary.refused
    for _ in range(KNOWN_MIN):
        pair.says(Clock(at_s, 8_200_000))
    assert row(pair)["clock_ahead_s"] is None
    assert pair.primary.refused == before + KNOWN_MIN
