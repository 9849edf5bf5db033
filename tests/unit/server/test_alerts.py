"""Alerts: a condition that holds becomes one, with a begin, an end and a line for each."""

import pytest

from hms.server.alerts import ALERTS_MAX, Alerts


@pytest.fixture
def clock():
    return [100.0]


@pytest.fixture
def alerts(clock):
    return Alerts(lambda: round(clock[0] * 1000), lambda: clock[0])


def test_an_alert_begins_when_its_condition_has_held_and_ends_with_it(alerts, clock, caplog):
    """A moment's pause of a consumer wakes nobody; what lasts is told once, and its end too."""
    alerts.set("stuck_queue", "queue:orders", "3 messages wait", after_s=10)
    assert alerts.active() == []
    clock[0] += 10
    alerts.set("stuck_queue", "queue:orders", "5 messages wait", after_s=10)
    alerts.set("stuck_queue", "queue:orders", "6 messages wait", after_s=10)
    (active,) = alerts.active()
    assert (active["alert"], active["destination"]) == ("stuck_queue", "queue:orders")
    assert (active["text"], active["since_ms"]) == ("6 messages wait", 100_000)

    clock[0] += 5
    alerts.clear("stuck_queue", "queue:orders")
    assert alerts.active() == []
    assert [one["until_ms"] for one in alerts.ended()] == [115_000]
    begins, ends = [record.getMessage() for record in caplog.records]
    assert begins == "alert stuck_queue begins at queue:orders: 5 messages wait"
    assert ends == "alert stuck_queue ends at queue:orders after 15 s"


def test_a_condition_that_ends_in_time_was_no_alert(alerts, clock, caplog):
    """Its time begins anew when it comes again."""
    alerts.put("memory_high", 1, "full", after_s=10)
    clock[0] += 9
    alerts.put("memory_high", 0, "")
    alerts.put("memory_high", 1, "full", after_s=10)
    clock[0] += 9
    alerts.put("memory_high", 1, "full", after_s=10)
    assert (alerts.active(), alerts.ended(), caplog.records) == ([], [], [])


def test_alerts_of_destinations_that_are_gone_end(alerts):
    """Nobody could end them any more."""
    alerts.set("unconsumed_queue", "queue:a", "old")
    alerts.set("unconsumed_queue", "queue:b", "old")
    alerts.set("memory_high", "", "full")
    alerts.keep({"queue:b"})
    assert [one["destination"] for one in alerts.active()] == ["queue:b", ""]


def test_there_are_only_so_many(alerts):
    """A hundred thousand stuck queues must not fill the memory that they are short of."""
    for number in range(ALERTS_MAX + 5):
        alerts.set("stuck_queue", f"queue:{number}", "")
    assert (len(alerts.active()), alerts.left_out) == (ALERTS_MAX, 5)
