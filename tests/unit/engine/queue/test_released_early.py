"""A client whose clock is ahead takes a message for expired that is not: it comes again, later."""

import pytest

from hms.engine.engine import Return
from tests.support.order_rig import OrderRig


@pytest.fixture
def rig():
    return OrderRig()


def test_what_was_released_too_early_comes_again_after_a_while_and_untried(rig):
    """At once, it would go to and fro until the node's clock is as far."""
    rig.send("m", ttl_ms=2_500)
    assert rig.consume("c") == ["m"]

    rig.give_back("c", Return.RELEASED, "m")
    assert rig.taken("c") == []
    rig.pass_time(1_000)

    assert rig.taken("c") == ["m"]
    assert rig.line().counters.redelivered == 0
    rig.give_back("c", Return.RELEASED, "m")
    rig.pass_time(2_000)
    assert rig.taken("c") == []
    assert (rig.line().counters.expired, rig.line().out_count) == (1, 0)


def test_what_never_expires_comes_again_at_once(rig):
    """Nothing is wrong with that one's time."""
    rig.send("m")
    rig.consume("c")
    rig.taken("c")

    rig.give_back("c", Return.RELEASED, "m")

    assert rig.taken("c") == ["m"]
