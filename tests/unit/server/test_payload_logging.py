"""Payloads in a log for a while: what was ordered ends by itself."""

import pytest

from hms.server.log_payloads import LogPayloads
from hms.wire.operations import SetLogPayloads


@pytest.mark.parametrize("is_configured", [False, True])
def test_what_was_ordered_for_a_time_goes_back_to_what_is_configured(is_configured):
    """What shows bodies for an hour must not do so for a year."""
    now, told = [0.0], []
    payloads = LogPayloads(is_configured, told.append, clock=lambda: now[0])
    payloads.change(SetLogPayloads(not is_configured, 60))
    payloads.tick()
    now[0] = 60.0
    payloads.tick()
    assert told == [not is_configured, is_configured]

    payloads.change(SetLogPayloads(not is_configured, 60))
    payloads.change(SetLogPayloads(not is_configured, 0))
    now[0] = 1e9
    payloads.tick()
    assert told[-1] is not is_configured


def test_who_has_not_heard_is_told_again():
    """A server process whose pipe was full went on as before."""
    told = []
    payloads = LogPayloads(is_configured=False, tell=told.append)
    for _ in range(3):
        payloads.tick()
    assert told == [False] * 3
