"""Replay is killed, with its Spark, and goes on by the same command (F-Q3)."""

import random

import pytest

from bench.replays import under_kills

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

MESSAGES, KILLS = 15_000, 2


def test_a_replay_that_is_killed_loses_nothing_and_sends_nothing_twice():
    """A nightly job dies with its machine; the same command must finish it."""
    seed = random.SystemRandom().randrange(1 << 32)
    outcome = under_kills(MESSAGES, KILLS, seed)

    assert outcome.faults == [], f"seed {seed}"
    assert outcome.kills == KILLS, f"seed {seed}"
