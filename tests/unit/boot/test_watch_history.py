"""The alert of a past that stays though its time is over."""

from types import SimpleNamespace

import pytest

from hms.boot.monitoring.watch import Watch
from hms.boot.sections import Alerts as Limits
from hms.server.alerts import Alerts
from hms.server.histograms import SECONDS
from hms.store.aging import HELD_S


@pytest.fixture
def rig():
    """A node whose store says what stands in `told`; .look() is what is wrong then, by name."""
    told = {"history_held_s": 0.0}
    store = SimpleNamespace(sends_refused=lambda: None, describe=lambda: told)
    broker = SimpleNamespace(
        commit_counts=lambda: [0] * (len(SECONDS) + 1),
        look=lambda _at: None,
        backed_up_ms=0,
        shipped_ms=0,
        around=None,
    )
    alerts = Alerts(lambda: 0, lambda: 0.0)
    parts = SimpleNamespace()
    made = Watch(broker, store, alerts, Limits(), lambda: (1, 1), lambda: 0, lambda: 0, parts)
    made._node = made._parts = SimpleNamespace(look=lambda: None)  # they have tests of their own

    def look():
        made.look()
        return {one["alert"]: one["text"] for one in alerts.active()}

    return SimpleNamespace(told=told, look=look)


def test_a_past_that_stays_beyond_its_time_is_an_alert_until_it_goes(rig):
    """A clock that was set ahead, or a node that did not run: nothing goes by it for a day."""
    rig.told["history_held_s"] = HELD_S
    assert rig.look() == {}
    rig.told["history_held_s"] = 3.5 * HELD_S
    assert rig.look() == {
        "history_held": "3.5 days of history or audit stay though their time is over; was the "
        "clock set ahead?"
    }
    rig.told["history_held_s"] = 0
    assert rig.look() == {}
