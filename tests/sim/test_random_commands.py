"""Boot fuzz (see random_commands.py): whatever a node has taken, it boots and lives on.

Some seeds run always. The long form runs new ones until the time is over:

    HMS_FUZZ_SECONDS=3600 python -m pytest tests/sim -k random_commands -s
"""

import itertools
import os
import time

import msgspec
import pytest

from hms.boot import scheduler
from hms.engine.schedule import schedule_plans
from hms.engine.session import deduplication
from hms.records import Definition
from hms.wire import frames
from tests.sim.random_commands import REQUESTS, World
from tests.support.spreads import tiny_spreads

SECONDS = float(os.environ.get("HMS_FUZZ_SECONDS", "0"))
RUNS_MAX = 40
LIKELY = {"_no_last_time": 2, "_no_last_sequence": 8, "_client_id_not_counted": 3}
"""Seeds that found them when this was written."""


@pytest.mark.timeout(max(300, SECONDS + 300))
def test_random_commands_leave_a_store_that_boots_and_lives_on(
    tmp_path, record_property, monkeypatch
):
    """No accepted command may make a node that cannot be booted, and no frame may stop it."""
    begun, used_s, done = time.monotonic(), time.process_time(), 0
    seeds = range(6) if not SECONDS else itertools.count(time.time_ns() % 10**9)
    for seed in seeds:
        with monkeypatch.context() as patch:
            if seed % 2:
                tiny_spreads(patch)
            world = World(seed, tmp_path, 4_000 if SECONDS else 500)
            assert world.run() == ""
        done += world.done
        if SECONDS and time.monotonic() - begun > SECONDS:
            break
    per_minute = round(60 * done / (time.process_time() - used_s))
    record_property("commands a minute of the processor", per_minute)
    passed_s = round(time.monotonic() - begun)
    print(
        f"{done} commands in {passed_s} s, {per_minute} a minute of the processor, "
        "the boots and their hours included"
    )


def _no_last_time(patch):
    """Fault 1: a time that no calendar knows is taken, and its timer planned."""
    patch.setattr(schedule_plans, "TIME_MS_MAX", 1 << 64)
    patch.setattr(scheduler, "TIMER_MS_MAX", 1 << 64)


def _no_last_sequence(patch):
    """Fault 2: the last number of 64 bits is confirmed, and the one behind it is told."""
    patch.setattr(frames, "SEQUENCE_MAX", 1 << 70)
    patch.setattr(deduplication, "SEQUENCE_MAX", 1 << 70)


def _client_id_not_counted(patch):
    """Fault 4: the dictionary outgrows a segment."""

    def about(self):
        texts = (self.name, self.selector, self.topic_string, self.correlation_id)
        return 240 + 4 * sum(map(len, texts))

    patch.setattr(Definition, "size_bytes", property(about))


@pytest.mark.parametrize(
    ("plant", "error"),
    [
        (_no_last_time, "OverflowError"),
        (_no_last_sequence, "OverflowError"),
        (_client_id_not_counted, "RecordTooLarge"),
    ],
)
def test_a_planted_fault_is_found(plant, error, tmp_path, monkeypatch, record_property):
    """Each of them made a node unbootable once."""
    plant(monkeypatch)
    for runs, seed in enumerate([LIKELY[plant.__name__], *range(100, 100 + RUNS_MAX)], 1):
        found = World(seed, tmp_path).run()
        if error in found:
            record_property("runs", runs)
            return
    raise AssertionError("it is not found")


def test_every_request_of_the_protocol_is_drawn(tmp_path):
    """What is added to the protocol is asked for here, too."""
    world = World(1, tmp_path)
    asked = [msgspec.msgpack.decode(world._request(None, 0)[1])[0] for _ in range(4_000)]

    assert {one.__name__ for one in REQUESTS} == set(asked)
