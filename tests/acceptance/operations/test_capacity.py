"""hms capacity: what it estimates is what a node takes of a whole load, within a fifth."""

import pytest
from capacity_rig import Whole, measured

from hms.boot.doctor.capacity import Load, estimate

CLOSE = 0.2
pytestmark = pytest.mark.usefixtures("cold_boots")


@pytest.mark.parametrize(
    "whole",
    [
        Whole(size=100, backlog=40_000, passing=20_000),
        Whole(size=1000, backlog=15_000, passing=10_000, durable=0.5),
        Whole(size=20_000, backlog=1500, passing=800),
    ],
    ids=lambda whole: f"{whole.size} B, {whole.durable:.0%} durable",
)
def test_an_estimate_is_within_a_fifth_of_what_a_whole_load_takes(whole, record_property):
    """Messages that wait, and others that come and go: memory of the process and as it is counted,
    what is live in the log, what is written, sent over the network, and lies on the disk."""
    load = Load(whole.passing, whole.size, whole.durable, whole.backlog, retention_s=1, clients=1)
    said, found = estimate(load), measured(whole)
    ratios = {
        "counted": said["counted_bytes"] / found.counted,
        "process": said["memory_bytes"] / found.process,
        "live": said["live_log_bytes"] / found.live,
        "logged": said["log_bytes_per_s"] / found.logged,
        "network": said["network_bytes_per_s"] / found.network,
        "store": said["store_bytes"] / found.store,
    }
    shown = {name: round(ratio, 3) for name, ratio in ratios.items()}
    record_property("figures", {"test": "capacity", "size": whole.size, **shown})
    assert all(1 - CLOSE <= ratio <= 1 + CLOSE for ratio in ratios.values()), ratios
