"""The mixed load's own parts: its histogram, its books, its search for the maximum."""

import random

import pytest

from bench.mixed_figures import Books, Minute, Outcome, faults, summary
from bench.mixed_histogram import BUCKETS, Histogram, bucket_of, middle_us
from bench.mixed_maximum import P99_MS_MAX, Kept, find_maximum
from bench.mixed_report import outcome_lines, row
from bench.mixed_tally import Tally
from bench.mixed_words import KINDS, Said, parts

# ---- the histogram


def test_a_bucket_errs_by_less_than_a_hundredth():
    """A p99.9 that is 5 % off could not tell flat from growing."""
    rng = random.Random(1)
    for value in [*range(3000), *(int(10 ** rng.uniform(0, 8)) for _ in range(3000))]:
        assert abs(middle_us(bucket_of(value)) - value) <= value / 100


def test_percentiles_are_those_of_the_latencies_themselves():
    """What an hour comes to is read from buckets only."""
    values = [int(random.Random(seed).lognormvariate(7, 1.5)) for seed in range(5000)]
    times = Histogram()
    for value in values:
        times.record(value)

    for percent in (50, 99, 99.9):
        exact = sorted(values)[round(percent / 100 * len(values)) - 1]
        assert times.percentile_us(percent) == pytest.approx(exact, rel=0.02)
    assert times.figures_ms()["max"] == round(max(values) / 1000, 3)


def test_what_one_process_recorded_is_added_to_the_whole_once():
    """A report tells what is new; told twice, a slow second would count twice."""
    ours, whole = Histogram(), Histogram()
    for value in (5, 5, 70_000):
        ours.record(value)
    most = ours.most_us
    whole.add(ours.taken(), most)
    whole.add(ours.taken(), ours.most_us)

    assert (whole.count, whole.most_us, ours.count) == (3, 70_000, 0)
    assert whole.percentile_us(50) == 5


def test_a_latency_beyond_the_last_bucket_is_still_the_maximum():
    """A hang of ten minutes must not be cut down to what the buckets hold."""
    times = Histogram()
    times.record(600_000_000)

    assert bucket_of(600_000_000) == BUCKETS - 1
    assert times.figures_ms()["max"] == 600_000


# ---- the books


@pytest.mark.parametrize(
    ("numbers", "received", "lost", "doubled"),
    [([1, 2, 3], 3, 0, 0), ([1, 3], 2, 1, 0), ([1, 1, 2], 2, 0, 1), ([2, 1, 3], 2, 1, 1)],
)
def test_each_message_is_looked_for_in_its_order(numbers, received, lost, doubled):
    """A load that lost a message would be faster for it."""
    tally = Tally()
    for number in numbers:
        tally.arrived(0, number, 0, 1000)

    said = tally.told()
    assert (said.received, said.lost, said.doubled) == (received, lost, doubled)


def test_every_subscriber_has_a_book_of_its_own():
    """One that gets nothing must not be covered by one that gets it twice."""
    tally = Tally()
    for copy in (0, 1, 0, 1):
        tally.arrived(copy, 1 + (tally.said.received > 1), 0, 1000)

    assert (tally.said.received, tally.said.doubled, tally.said.lost) == (4, 0, 0)


def test_books_that_do_not_balance_are_a_fault():
    """The exit code of an hour hangs on them."""
    books = Books(copies=4)
    books.add(Said(sent=10))
    books.add(Said(received=39))

    assert faults({"topic": books}, [])
    assert books.missing == 1
    books.add(Said(received=1))
    assert not faults({"topic": books}, [])


def test_one_message_too_many_is_a_fault_too():
    """Doubled is as bad as lost."""
    books = Books(copies=1, sent=1, received=1, doubled=1)

    assert faults({"queue": books}, [])


def test_the_shares_of_all_kinds_are_the_whole_rate():
    """Otherwise the rate that is told is not the rate that runs."""
    assert sum(kind.share for kind in KINDS.values()) == pytest.approx(1)
    made = parts("tcp://127.0.0.1:1", b"12345678")
    sending = [part for part in made if part.role in {"send", "call"}]
    whole = sum(part.kind.share * part.fraction for part in sending)
    assert whole == pytest.approx(1)


# ---- the maximum and the summary


def test_the_maximum_is_found_though_one_step_is_disturbed():
    """Another process that has the machine for a moment must not decide over an hour."""
    disturbed = iter([0.5])

    def step(rate, _):
        share = next(disturbed, 1.0 if rate <= 5000 else 5000 / rate) if rate > 900 else 1.0
        return Kept(share, 5)

    said = []
    found = find_maximum(step, 500, said.append)

    assert 4000 <= found <= 5200
    assert said


def test_a_rate_that_is_kept_up_with_for_a_moment_only_is_no_maximum():
    """Buffers hide a few seconds of too much load; an hour at a share of it would fail."""
    found = find_maximum(lambda rate, steps: Kept(1.0 if rate * steps < 4000 else 0.5, 5), 500, str)

    assert 800 <= found < 1000


def test_a_rate_at_which_messages_are_late_is_no_maximum():
    """An overloaded node takes more at once and keeps up with the rate, seconds behind it."""
    found = find_maximum(lambda rate, _: Kept(1.0, 5 if rate < 4000 else P99_MS_MAX + 1), 500, str)

    assert 3000 <= found < 4000


def test_a_node_that_follows_no_rate_has_no_maximum():
    """Then nothing is run, and the command says so."""
    assert find_maximum(lambda *_: Kept(0.1, 5), 500, lambda _: None) == 0


def _minute(number, rss_mib, p999_ms=3.0):
    times = {"p50": 1.0, "p99": 2.0, "p99.9": p999_ms, "max": 9.0}
    return Minute(
        number=number,
        seconds=60,
        rates=dict.fromkeys(KINDS, 100.0),
        times_ms=dict.fromkeys(KINDS, times),
        cores={"node": 0.5, "clients": 0.5, "others": 0.0},
        node_rss_mib=rss_mib,
        clients_rss_mib=300,
        log_mib=64,
        waiting=3,
    )


def test_growth_is_told_without_the_first_minute():
    """A node takes memory while it begins; what it takes each minute later is the question."""
    minutes = [_minute(n, 20 if n == 1 else 40 + n, p999_ms=n) for n in range(1, 10)]

    found = summary(minutes)

    assert found.slope_kib == pytest.approx(1024)
    assert found.p999_ms["queue"] == (2, 8)
    assert found.rss_mib == (42.5, 48.5)
    assert row(minutes[0]).startswith("  1")


def test_a_run_that_failed_at_once_still_says_what_was_wrong():
    """Without a minute there is no summary."""
    assert list(outcome_lines(Outcome(faults=["queue send: HMS-4012"])))[-1].endswith("HMS-4012")
