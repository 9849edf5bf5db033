"""The figures of hms bench: computed right, and the bare disk is left without a trace."""

from array import array

import pytest

from hms.boot.bench.load import MAGIC, STAMP, WARM_UP, Load, Sink, bodies, timed_bodies
from hms.boot.bench.measure import Figures
from hms.boot.bench.pairs import medians, rows_text
from hms.boot.bench.workloads import WORKLOADS
from hms.boot.cli.figures import measure_disk, percentiles_ms


@pytest.fixture
def load():
    return Load(destination="queue:bench", count=20, size=64)


def test_percentiles_are_those_of_the_sorted_times():
    """A wrong index would flatter every figure of the project."""
    times = [number * 1_000_000 for number in range(10_000, 0, -1)]

    found = percentiles_ms(times)

    assert found == {
        "p50": 5001.0,
        "p99": 9900.0,
        "p99.9": 9990.0,
        "p99.99": 9999.0,
        "max": 10_000.0,
    }
    assert percentiles_ms([]) == {}
    assert percentiles_ms(array("q", [2_000_000]))["p99.99"] == 2.0


def test_the_bare_disk_is_measured_and_left_as_it_was(tmp_path):
    """The measurement stands in the folder of a store."""
    assert measure_disk(tmp_path, message_bytes=100, count=25, batch=10) > 0
    assert list(tmp_path.iterdir()) == []


def test_bodies_have_the_size_that_was_asked_for_and_numbers_of_their_own(load):
    """A smaller body would be faster, a repeated number would hide a loss."""
    made = [*bodies(load), *timed_bodies(load)]

    assert {len(body) for body in made} == {64}
    numbers = [STAMP.unpack_from(body)[3] for body in made]
    assert numbers == [*range(20), *range(20)]
    assert STAMP.unpack_from(made[0])[4] == 0
    assert STAMP.unpack_from(made[-1])[4] > 0


def test_a_sink_counts_its_own_run_and_tells_what_came_out_of_order(load):
    """Old messages would count as very slow ones; a disordered run is no success."""
    sink = Sink(load, 20)
    warm = STAMP.pack(MAGIC, load.run, WARM_UP, 0, 0) + bytes(32)
    stranger = STAMP.pack(MAGIC, b"another!", 0, 0, 0) + bytes(32)

    for body in (warm, stranger, b"short", "text", *bodies(load)):
        sink.take(body)
    assert (sink.count, sink.others, sink.misordered) == (20, 3, 0)
    assert sink.is_full

    sink.take(bodies(load)[3])
    assert (sink.count, sink.misordered) == (21, 1)


def test_latency_is_counted_from_when_a_message_was_due(load):
    """A sender that falls behind must not flatter the figure."""
    sink = Sink(load, 20)

    for body in timed_bodies(load):
        sink.take(body)

    assert len(sink.times) == 20
    assert min(sink.times) >= 0


def _figures(system, rate):
    return Figures(
        system=system,
        workload="W2",
        messages=100,
        seconds=1.0,
        rate=rate,
        times_ms={"p50": 1.0, "p99": 2.0, "p99.9": 3.0},
        system_cpu_us=5.0,
        clients_cpu_us=2.0,
        system_rss_mib=40.0,
        clients_rss_mib=30.0,
        misordered=0,
        machine={},
    )


def test_the_ratio_is_the_median_of_the_ratios_of_each_pair():
    """In a slow minute both are slow; the ratio of medians would compare different minutes."""
    ours = [_figures("hms", rate) for rate in (100.0, 10.0, 90.0)]
    limit = [_figures("limit", rate) for rate in (200.0, 20.0, 900.0)]

    row = medians(WORKLOADS["W2"], limit, ours)

    assert (row.rate, row.rate_min, row.rate_max, row.ratio) == (200.0, 20.0, 900.0, 0.5)
    assert medians(WORKLOADS["W2"], ours, ours).ratio is None
    assert "0.50" in rows_text([row])
