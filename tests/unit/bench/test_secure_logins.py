"""The parts of bench.secure that have a bar of their own, small: what they say is what they did."""

import re

from bench.secure_logins import topics


def test_publications_reach_the_same_subscribers_with_permissions_and_without():
    """publish() counts the deliveries; a ratio of two different works would say nothing."""
    said = topics(rounds=1, size=200)

    assert re.search(r"200 wildcard subscriptions of 100 users, 8 match: .* ratio \d+\.\d\d", said)
