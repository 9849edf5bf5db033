"""Minutes and rules of a watch, without Spark."""

import pytest

from hms.errors.catalogue import HistoryError
from hms.history.minutes import MINUTE_MS, Minute, minutes, open_minutes
from hms.history.rules import parse_rule

RULE = parse_rule("queue:orders sent >= 100")


def counted(*times, event="sent", place="queue:orders", first=0):
    """A count for each minute from the first on; None is no count."""
    return [
        Minute((first + i) * MINUTE_MS, place, event, count)
        for i, count in enumerate(times)
        if count is not None
    ]


@pytest.fixture
def kept(tmp_path):
    with open_minutes(tmp_path / "c", "/store") as made:
        yield made


def alerts(kept):
    return [(one.minute_ms // MINUTE_MS, one.count) for one in kept.alerts_behind(0)]


def test_a_batch_that_comes_again_changes_nothing(kept):
    """Spark runs a batch again when it dies behind it; counts are whole, so they stay."""
    for _ in range(2):
        kept.apply(counted(5, 200), [RULE])
    kept.apply(counted(7), [RULE])

    assert [one.times for one in kept.all()] == [7, 200]
    assert alerts(kept) == [(1, 200)]


def test_an_alert_is_raised_once_for_each_crossing(kept):
    """Ten minutes above the limit are one alarm; below and above again are another."""
    kept.apply(counted(120, 130), [RULE])
    kept.apply(counted(150, first=2), [RULE])
    kept.apply(counted(20, 140, None, 160, first=3), [RULE])

    assert alerts(kept) == [(0, 120), (4, 140), (6, 160)]


def test_a_late_minute_beside_one_that_was_told_belongs_to_it(kept):
    """What comes late makes the crossing longer, not a second one."""
    kept.apply(counted(90, 130), [RULE])
    kept.apply(counted(110), [RULE])

    assert alerts(kept) == [(1, 130)]


def test_a_rule_holds_for_its_place_and_event_alone(kept):
    """Each place and each rule crosses for itself."""
    rules = [RULE, parse_rule("* dead-lettered > 0"), parse_rule("bills.* sent > 5")]
    kept.apply(counted(100, place="queue:other") + counted(100, event="expired"), rules)
    assert alerts(kept) == []
    kept.apply(counted(1, event="dead_lettered") + counted(6, place="queue:bills.eu"), rules)

    assert {(one.rule, one.place) for one in kept.alerts_behind(0)} == {
        ("* dead-lettered > 0", "queue:orders"),
        ("bills.* sent > 5", "queue:bills.eu"),
    }


@pytest.mark.parametrize(
    "text", ["", "orders", "orders sent", "orders sent < 5", "orders went > 5", "a b c > 5"]
)
def test_a_rule_that_nobody_can_mean_is_refused(text):
    """A rule that never holds would be silence where an alarm was wanted."""
    with pytest.raises(HistoryError, match="rule"):
        parse_rule(text)


def test_a_checkpoint_belongs_to_one_store(tmp_path):
    """Counts of two stores in one table would be those of none."""
    with open_minutes(tmp_path, "/one") as made:
        name = made.name
    with open_minutes(tmp_path, "/one") as again:
        assert again.name == name
    with pytest.raises(HistoryError, match="/one, not /other"), open_minutes(tmp_path, "/other"):
        pass


def test_what_was_counted_is_read_from_the_checkpoint(tmp_path):
    """Other programs read the minutes while the watch goes on."""
    with open_minutes(tmp_path, "/one") as made:
        made.apply(counted(3), [])

        assert minutes(tmp_path) == counted(3)
    with pytest.raises(HistoryError, match="no checkpoint"):
        minutes(tmp_path / "none")
