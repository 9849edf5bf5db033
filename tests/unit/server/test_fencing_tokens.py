"""Fencing tokens: the position in the log of a delivery, by which a resource tells who is late."""

import pytest

from hms.engine.effects import Deliver, Effects
from hms.engine.messages import StoredMessage
from hms.server.effect_release import EffectRelease
from hms.wire.frames import decode_delivery
from hms.wire.packed_messages import unpack_delivered


class Outlet:
    """What peers are told."""

    def __init__(self):
        self.tokens = []

    def put(self, items):
        for _, (_, payload) in items:
            _, count, at = decode_delivery(payload)
            self.tokens += [row.fencing_token for row, _, _ in unpack_delivered(payload, count, at)]


@pytest.fixture
def releases():
    made = EffectRelease()
    made.peers[1] = "peer"
    made.outlet = Outlet()
    return made


def deliver(releases, messages, last_lsn, consumers=(5,), *, is_recorded=True):
    fx = Effects()
    fx.must_wait = is_recorded
    fx.out += [
        Deliver(1, consumer, 0, messages, None, kind="topic", is_recorded=is_recorded)
        for consumer in consumers
    ]
    releases.add(fx, last_lsn)
    releases.release(last_lsn)


@pytest.fixture(params=[1, 10], ids=["alone", "a pack that is shared"])
def messages(request):
    return [
        StoredMessage.of(one, one, 1, 0, 4, 0, 0, b"x", is_persistent=True)
        for one in range(request.param)
    ]


def test_a_later_delivery_of_the_same_message_has_a_higher_token(releases, messages):
    """H18: also where the bytes of a fan-out are put together once."""
    deliver(releases, messages, 7, (5, 6))
    deliver(releases, messages, 9)

    count = len(messages)
    assert releases.outlet.tokens == [7] * count + [9] * count


def test_what_no_record_says_has_none(releases, messages):
    """It is nobody's proof."""
    deliver(releases, messages, 7, is_recorded=False)

    assert set(releases.outlet.tokens) == {0}
