"""A watch over a store that grows: exact over restarts, alerts once, with a real Spark."""

import json
import os
import signal

import pytest
from history_rig import MINUTE_MS, ORDERS, START_MS, batch, begin, write

import hms
import hms.testing
from hms.errors.catalogue import ConnectionRefused, HistoryError
from hms.history.minutes import minutes
from hms.history.watch import watch
from hms.records import Cause, RecordType, ranges
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CONFIG = {"hms": {"queue": {"alerts": {}}}}
RULE = "queue:orders sent >= 50"


def taken(running):
    """The alerts that the node has, each taken once."""
    with hms.connect(running.address) as connection, connection.session() as own:
        waiting = connection.administer("queue.show", {"name": "alerts"})["waiting"]
        consumer = own.consumer(hms.Queue("alerts"))
        return [json.loads(consumer.receive(timeout_s=60).body) for _ in range(waiting)]


def test_a_watch_goes_on_where_it_was_and_raises_each_alert_once(spark, running, tmp_path):
    """Counts over a restart are those of one run, and an alarm is not told twice."""
    journal = begin(tmp_path / "store")
    given = {"checkpoint": tmp_path / "c", "rules": [RULE, "* expired > 0"], "is_once": True}
    given |= {"address": running.address, "alert": "alerts"}
    write(journal, batch(1, 30), batch(31, 40))
    first = watch(spark, tmp_path / "store", **given)
    one = taken(running)
    write(journal, batch(71, 60, at_ms=START_MS + MINUTE_MS))
    write(journal, batch(131, 10, at_ms=START_MS + 2 * MINUTE_MS))
    gone = ranges(RecordType.DISCARDED, ORDERS, START_MS + MINUTE_MS, [(1, 2)], Cause.EXPIRED)
    write(journal, gone, batch(141, 50, at_ms=START_MS + 5 * MINUTE_MS))
    journal.close()
    second = watch(spark, tmp_path / "store", **given)
    third = watch(spark, tmp_path / "store", **given)

    begun = {
        (m.minute_ms - START_MS) // MINUTE_MS: m.times
        for m in minutes(tmp_path / "c")
        if m.event == "sent"
    }
    assert begun == {0: 70, 1: 60, 2: 10, 5: 50}
    assert [(a["rule"], a["count"]) for a in one] == [(RULE, 70)]
    assert {(a["rule"], a["count"]) for a in taken(running)} == {("* expired > 0", 2), (RULE, 50)}
    assert (first.alerts, second.alerts, third.alerts) == (1, 2, 0)


def test_an_alert_that_nobody_takes_is_sent_by_the_next_watch(spark, running, tmp_path):
    """The counts are there, the alert is not lost, and it is not sent twice."""
    journal = begin(tmp_path / "store")
    write(journal, batch(1, 60))
    journal.close()
    given = {"checkpoint": tmp_path / "c", "rules": [RULE], "alert": "alerts", "is_once": True}
    with pytest.raises((ConnectionRefused, HistoryError)):
        watch(spark, tmp_path / "store", address="tcp://127.0.0.1:1", **given)
    watch(spark, tmp_path / "store", address=running.address, **given)

    assert [alert["count"] for alert in taken(running)] == [60]


def _once(call):
    """A second Ctrl-C means more than the first: another batch must not send it."""
    done = []

    def at_first(*_):
        if not done:
            done.append(True)
            call()

    return at_first


def test_an_interrupted_watch_ends_without_a_traceback(spark, tmp_path, capfd, caplog):
    """Ctrl-C is how a watch ends; the next one goes on where this one was."""
    journal = begin(tmp_path / "store")
    write(journal, batch(1, 60))
    journal.close()
    given = {"checkpoint": tmp_path / "c", "interval_s": 0.1}
    before = signal.getsignal(signal.SIGINT)

    done = watch(
        spark,
        tmp_path / "store",
        tell=_once(lambda: os.kill(os.getpid(), signal.SIGINT)),
        **given,
    )

    assert done.batches >= 1
    assert signal.getsignal(signal.SIGINT) is before
    assert sum(m.times for m in minutes(tmp_path / "c") if m.event == "sent") == 60
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err + caplog.text


def test_a_watch_that_ends_within_a_batch_shows_no_traceback(spark, tmp_path, capfd, caplog):
    """The batch is cancelled; it was counted, and the next watch does not count it again."""
    journal = begin(tmp_path / "store")
    write(journal, batch(1, 60))
    journal.close()
    given = {"checkpoint": tmp_path / "c", "interval_s": 0.1}
    cancelled = []

    interrupt = _once(lambda: os.kill(os.getpid(), signal.SIGINT))

    def interrupt_within(*_):
        interrupt()
        query = spark.streams.active[0]
        wait_until(lambda: not query.isActive)
        cancelled.append(True)
        spark.range(10_000).count()

    watch(spark, tmp_path / "store", tell=interrupt_within, **given)
    said = capfd.readouterr()
    watch(spark, tmp_path / "store", is_once=True, **given)

    assert cancelled
    assert "Traceback" not in said.out + said.err + caplog.text
    assert sum(m.times for m in minutes(tmp_path / "c") if m.event == "sent") == 60


def test_a_rule_without_a_place_for_its_alerts_is_refused(tmp_path):
    """Before Spark starts."""
    with pytest.raises(HistoryError, match="a rule needs"):
        watch(None, tmp_path, checkpoint=tmp_path / "c", rules=[RULE])
