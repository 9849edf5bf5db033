"""Which address a client tries when."""

import pytest

from hms.client.core.addresses import arranged
from hms.client.core.reconnection import MEMBERS_AFTER_S, Attempts
from hms.errors.catalogue import InvalidArgument

THREE = ("a", "b", "c")


def test_priority_takes_them_as_they_stand():
    """The operator's order is the order of preference."""
    assert arranged(THREE, "priority") == THREE


def test_round_robin_begins_one_further_each_time():
    """So the connections of one process are spread evenly."""
    found = [arranged(THREE, "round_robin") for _ in range(3)]

    assert {order[0] for order in found} == set(THREE)
    assert all(sorted(order) == list(THREE) for order in found)


def test_random_loses_none():
    """A client that is unlucky must still find the one node that answers."""
    assert sorted(arranged(THREE, "random")) == list(THREE)


def test_another_word_is_refused():
    """A typing error must not become an order."""
    with pytest.raises(InvalidArgument, match="round-robin"):
        arranged(THREE, "round-robin")


def test_members_are_tried_only_after_those_that_were_given_are_silent_for_long():
    """A stale list suffices, but a node that is booted anew is waited for: it knows what it has."""
    attempts = Attempts(["a"], interval_s=1, period_s=0)
    attempts.learn(["a", "m"])
    attempts.begin(0.0)
    for at in range(int(MEMBERS_AFTER_S)):
        attempts.failed(float(at))
        assert attempts.address == "a"

    tried = set()
    for at in range(3):
        attempts.failed(MEMBERS_AFTER_S + at)
        tried.add(attempts.address)

    assert tried == {"a", "m"}
