"""hms capacity: what it estimates is what a node takes, within a fifth."""

import os
import time

import pytest

import hms
from hms.boot.doctor.capacity import Load, estimate
from hms.testing import node as booted

CONFIG = {"hms": {"queue": {"orders": {}}}, "node": {"node1": {"segment_bytes": "64 MiB"}}}
CLOSE = 0.2
WAIT_S = 60


@pytest.mark.parametrize(("size", "count"), [(10, 8000), (1000, 8000), (20_000, 1000)])
def test_an_estimate_is_within_a_fifth_of_what_is_measured(size, count, record_property):
    """Memory that is counted, and what is live in the log."""
    with booted(config=CONFIG) as node, hms.connect(node.address) as connection:
        producer = connection.session().producer("orders")
        for _ in range(count - 1):
            producer.send_async(os.urandom(size), compress=False)
        producer.send(os.urandom(size), compress=False)
        said = estimate(Load(rate=1, size=size, backlog=count))
        until = time.monotonic() + WAIT_S
        found = connection.administer("status")
        while found["live_bytes"] < said["live_log_bytes"] * (1 - CLOSE):
            assert time.monotonic() < until  # where they lie is counted behind their commit
            found = connection.administer("status")
    ratios = {
        "memory": said["counted_bytes"] / found["waiting_bytes"],
        "log": said["live_log_bytes"] / found["live_bytes"],
    }
    record_property("figures", {"test": "capacity", "size": size, **ratios})
    assert all(1 - CLOSE <= ratio <= 1 + CLOSE for ratio in ratios.values()), ratios
